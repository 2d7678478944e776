"""Commits of single offsets where brokers have ACLs: nobody does, or knows, what a broker would not let him."""

# pyright: reportPrivateImportUsage=false
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AclOperation, NewTopic, ResourceType

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.ranges import MOST_RANGES, Ranges
from kordon.testing.individual_member import Committed, IndividualMember, Where
from kordon.testing.managed_clients import create_managed
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.rights import Allowed, Secured, kordon_by_plain, log_in, login

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

ORDINARY, MANAGED, GROUP = "one-by-one-guarded", "one-by-one-guarded-managed", "one-by-one-guarded-group"
PARTITIONS = 60
MANY = Ranges([(2 * each, 2 * each + 1) for each in range(1, MOST_RANGES + 1)]).dump()


@pytest.fixture(scope="module")
def proxy(strict_cluster: Secured) -> Iterator[ProxyProcess]:
    """One that takes individual commits; alice may Read topics and the group, bob see them, mallory Read the group."""
    found = strict_cluster
    read, describe = AclOperation.READ, AclOperation.DESCRIBE
    found.allow(
        Allowed("kordon", AclOperation.ALL, MANAGED),
        *(Allowed("alice", read, each) for each in (ORDINARY, MANAGED)),
        *(Allowed("bob", describe, each) for each in (ORDINARY, MANAGED)),
        *(Allowed(user, read, GROUP, ResourceType.GROUP) for user in ("alice", "mallory")),
        Allowed("bob", describe, GROUP, ResourceType.GROUP),
    )
    with kordon_by_plain(found.cluster, ordering={"individual_commits": True}) as started:
        found.operator.create_topics([NewTopic(ORDINARY, PARTITIONS, 1)])[ORDINARY].result(60)
        create_managed(started.bootstrap, MANAGED, login("admin"))
        yield started


@contextmanager
def member(proxy: ProxyProcess, user: str | None, topic: str) -> Iterator[IndividualMember]:
    """A member, as a user or as nobody who has logged in."""
    connection = PlainConnection(proxy.bootstrap)
    with IndividualMember(log_in(connection, user) if user else connection, GROUP, topic) as made:
        yield made


def written(proxy: ProxyProcess) -> float:
    return proxy.metric("kordon_individual_commits_records_total", kind="written")


@pytest.mark.parametrize("topic", [ORDINARY, MANAGED])
def test_each_gets_what_his_rights_are_for(proxy: ProxyProcess, topic: str, strict_cluster: Secured) -> None:
    """Who may Describe is told, and begins and claims nothing; who may Read the group only is refused the topic."""
    with (
        member(proxy, "alice", topic) as alice,
        member(proxy, "bob", topic) as bob,
        member(proxy, "mallory", topic) as mallory,
        member(proxy, "carol", topic) as carol,
    ):
        alice.ask()
        assert alice.commit(0, (2, 5)) == Committed(Code.NONE, 0)
        told, before = alice.ask(), written(proxy)
        assert told == Where(0, ((2, 5),), alice.incarnation, "")
        assert bob.ask() == told
        for other in (bob, mallory, carol):
            other.incarnation = told.incarnation  # whatever he has it from
        assert bob.commit(3).code == Code.GROUP_AUTHORIZATION_FAILED
        assert mallory.refusal() == Code.TOPIC_AUTHORIZATION_FAILED
        assert mallory.commit(3).code == Code.TOPIC_AUTHORIZATION_FAILED
        assert carol.refusal() == Code.GROUP_AUTHORIZATION_FAILED
        assert carol.commit(3).code == Code.GROUP_AUTHORIZATION_FAILED
        for other in (bob, carol):
            assert other.commit(3, incarnation=77).code == Code.GROUP_AUTHORIZATION_FAILED
        assert (alice.ask(), written(proxy)) == (told, before)
        if topic == ORDINARY:
            reset(strict_cluster, topic)
            assert bob.ask() == Where(1, (), 0, "")
            assert written(proxy) == before
            assert alice.ask()[:2] == (1, ())


def reset(secured: Secured, topic: str) -> None:
    """As kafka-consumer-groups --reset-offsets does."""
    wanted = [ConsumerGroupTopicPartitions(GROUP, [TopicPartition(topic, 0, 1)])]
    for future in secured.operator.alter_consumer_group_offsets(wanted).values():
        future.result()


@pytest.mark.parametrize("topic", [ORDINARY, MANAGED, "one-by-one-missing"])
@pytest.mark.parametrize("wrong", [{}, {"offset_ranges": b"\xff" * 9}, {"incarnation": -1}, {"offset_ranges": MANY}])
def test_who_has_not_logged_in_is_answered_nothing(proxy: ProxyProcess, topic: str, wrong: dict[str, Any]) -> None:
    """Whatever stands in the fields that Kafka does not have; and nothing is counted of it."""
    before = proxy.metric("kordon_individual_commits_total"), written(proxy)
    fields: dict[str, Any] = {"incarnation": 5, **wrong}
    with member(proxy, None, topic) as nobody, pytest.raises((OSError, EOFError)):
        nobody.commit(3, (5, 6), **fields)
    with member(proxy, None, topic) as nobody, pytest.raises((OSError, EOFError)):
        nobody.ask()
    assert (proxy.metric("kordon_individual_commits_total"), written(proxy)) == before


def test_the_largest_request_is_served_as_far_as_its_bound_goes(proxy: ProxyProcess) -> None:
    """A megabyte of ranges; the rows behind it are refused, and others are served meanwhile."""
    with log_in(PlainConnection(proxy.bootstrap), "alice") as connection, member(proxy, "alice", MANAGED) as other:
        asked = [{"name": ORDINARY, "partition_indexes": list(range(PARTITIONS))}]
        fetch = {"groups": [{"group_id": GROUP, "topics": asked}], "with_ranges": True}
        ((told,),) = (group.topics for group in connection.ask(apis.OFFSET_FETCH, 8, fetch).groups)
        rows = [
            {
                "partition_index": row.partition_index,
                "committed_offset": 1,
                "offset_ranges": MANY,
                "incarnation": row.incarnation,
            }
            for row in told.partitions
        ]
        answer = connection.ask(
            apis.OFFSET_COMMIT, 8, {"group_id": GROUP, "topics": [{"name": ORDINARY, "partitions": rows}]}
        )
        fitting = (1 << 20) // len(MANY)
        (taken,) = (each.partitions for each in answer.topics)
        codes = [row.error_code for row in taken]
        assert codes == [Code.NONE] * fitting + [Code.INVALID_REQUEST] * (PARTITIONS - fitting)
        assert other.ask().stable >= -1
