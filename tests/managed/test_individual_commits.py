"""Groups that commit offset by offset, in front of a real broker: each proxy tells the same, and stock tools see it."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.codecs import apis
from kordon.codecs.dialect import COOPERATIVE
from kordon.codecs.error_codes import Code
from kordon.codecs.ranges import MOST_RANGES
from kordon.testing.cluster import Cluster
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.individual_member import Committed, IndividualMember, Where
from kordon.testing.managed_clients import committed, create_managed, wait_told_of
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker

TAKES = {"ordering": {"individual_commits": True}}


@pytest.fixture(scope="module")
def proxies(open_cluster: Cluster) -> Iterator[list[ProxyProcess]]:
    """Two that take individual commits."""
    bootstrap = open_cluster.bootstrap()
    with ProxyProcess.start(bootstrap, config=TAKES) as first, ProxyProcess.start(bootstrap, config=TAKES) as second:
        yield [first, second]


@pytest.fixture
def admin(open_cluster: Cluster) -> AdminClient:
    """At the brokers."""
    return AdminClient({"bootstrap.servers": open_cluster.bootstrap()})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    """A topic that is not managed."""
    name = f"one-by-one-{uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    wait_told_of(admin, name)
    return name


def member_at(bootstrap: str, group: str, topic: str, partition: int = 0) -> IndividualMember:
    """There is one broker, so any connection is to the coordinator."""
    return IndividualMember(PlainConnection(bootstrap), group, topic, partition)


def commit_without_kordon(admin: AdminClient, group: str, topic: str, offset: int) -> None:
    """As kafka-consumer-groups --reset-offsets does."""
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])]
    for future in admin.alter_consumer_group_offsets(wanted).values():
        future.result()


def test_proxies_tell_the_same_and_one_that_is_killed_takes_nothing_along(
    proxies: list[ProxyProcess], topic: str, open_cluster: Cluster
) -> None:
    """The coordinator has the stable offset, and stock clients see nothing else of it."""
    group = f"{topic}-readers"
    with member_at(proxies[0].bootstrap, group, topic) as first:
        assert first.ask()[:2] == (-1, ())
        assert first.commit(0, text="mine") == Committed(Code.NONE, 0)
        assert first.commit(0, (3, 5), (9, 10), text="mine") == Committed(Code.NONE, 0)
        assert first.commit(0, (1, 2), (3, 5), (9, 10), text="mine") == Committed(Code.NONE, 0)
        assert first.commit(2, (3, 5), (9, 10), text="mine") == Committed(Code.NONE, 2)
        told = Where(2, ((3, 5), (9, 10)), first.incarnation, "mine")
        assert first.ask() == told
    proxies[0].kill()
    try:
        with member_at(proxies[1].bootstrap, group, topic) as second:
            assert second.ask() == told
            assert second.commit(2, (3, 5), (9, 10)) == Committed(Code.NONE, 2)
            assert second.commit(5, (9, 10), text="yours") == Committed(Code.NONE, 5)
        assert committed(open_cluster.bootstrap(), group) == {0: 5}
        assert stock_metadata(proxies[1].bootstrap, group, topic) == "yours"
        assert stock_metadata(open_cluster.bootstrap(), group, topic).startswith("yourskc1:")
    finally:
        proxies[0].start_again()
    with member_at(proxies[0].bootstrap, group, topic) as third:
        assert third.ask() == Where(5, ((9, 10),), told.incarnation, "yours")


def stock_metadata(bootstrap: str, group: str, topic: str) -> str:
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    with PlainConnection(bootstrap) as connection:
        answer = connection.ask(apis.OFFSET_FETCH, 5, asked)
    metadata: str = answer.topics[0].partitions[0].metadata
    return metadata


def test_a_reset_begins_anew(proxies: list[ProxyProcess], topic: str, admin: AdminClient) -> None:
    """Whoever was told before is told so; what was done before the reset counts no more."""
    group = f"{topic}-readers"
    with member_at(proxies[0].bootstrap, group, topic) as late:
        late.ask()
        late.commit(10, (12, 20))
        commit_without_kordon(admin, group, topic, 4)
        with member_at(proxies[1].bootstrap, group, topic) as member:
            where = member.ask()
            assert where[:2] == (4, ())
            assert where.incarnation != late.incarnation
            assert late.commit(10, (12, 20)).code == Code.INDIVIDUAL_COMMIT_TOO_OLD
            assert member.commit(4, (6, 7)) == Committed(Code.NONE, 4)
            assert late.ask() == member.ask() == Where(4, ((6, 7),), where.incarnation, "")


def test_a_deleted_group_and_a_topic_made_anew_have_done_nothing(
    proxies: list[ProxyProcess], topic: str, admin: AdminClient, open_cluster: Cluster
) -> None:
    """Nothing of their former lives is told."""
    group = f"{topic}-readers"
    with member_at(proxies[0].bootstrap, group, topic) as member:
        member.ask()
        member.commit(10, (12, 20))
        admin.delete_consumer_groups([group])[group].result()
        assert member.ask()[:2] == (-1, ())
        member.commit(7, (9, 10))
        admin.delete_topics([topic])[topic].result()
        wait_until("the coordinator forgets the topic", lambda: not committed(open_cluster.bootstrap(), group))
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result()
        wait_told_of(admin, topic)
        assert member.ask()[:2] == (-1, ())


def test_clients_of_both_views_have_them_on_managed_topics(proxies: list[ProxyProcess]) -> None:
    """By virtual partitions on the topic's face, and by physical ones on the topic itself."""
    name = f"managed-{uuid4().hex[:8]}"
    create_managed(proxies[0].bootstrap, name)
    with member_at(proxies[0].bootstrap, name, name, 11) as virtual:
        assert virtual.ask()[:2] == (-1, ())
        assert virtual.commit(0, (2, 3)) == Committed(Code.NONE, 0)
    with IndividualMember(DialectConnection(proxies[1].bootstrap), name, name, 2) as physical:
        first = physical.ask()
        assert physical.commit(7, (9, 10)) == Committed(Code.NONE, 7)
    with IndividualMember(DialectConnection(proxies[0].bootstrap), name, name, 2) as physical:
        assert physical.ask() == Where(7, ((9, 10),), first.incarnation, "")
    with member_at(proxies[1].bootstrap, name, name, 11) as virtual:
        assert virtual.ask()[:2] == (0, ((2, 3),))


def test_what_cannot_be_meant_costs_its_own_row_only(proxies: list[ProxyProcess], topic: str) -> None:
    """And whoever the coordinator refuses writes nothing."""
    group = f"{topic}-readers"
    with member_at(proxies[0].bootstrap, group, topic) as member:
        where = member.ask()
        member.commit(0, (2, 3))
        wrongs: list[dict[str, Any]] = [{"offset_ranges": b"\xff"}, {"committed_offset": -5}]
        wrongs += [{"incarnation": -1}, {"incarnation": 0}]
        for wrong in wrongs:
            assert member.commit(0, (5, 6), **wrong).code == Code.INVALID_REQUEST
        assert member.commit(0, (5, 6), incarnation=where.incarnation - 1).code == Code.INDIVIDUAL_COMMIT_TOO_OLD
        fenced = member.commit(0, (5, 6), generation_id_or_member_epoch=3, member_id="nobody")
        assert fenced.code in (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION)
        assert member.commit(0, (5, 6), text="x" * 4090).code == 12  # OFFSET_METADATA_TOO_LARGE
        assert member.ask()[:2] == (0, ((2, 3),))
        many = [(2 * each, 2 * each + 1) for each in range(1, MOST_RANGES + 1)]
        assert member.commit(0, *many) == Committed(Code.NONE, 0)
        assert member.commit(1, *many) == Committed(Code.NONE, 1)
        assert member.commit(0, (30_001, 30_002)).code == Code.MAX_INDIVIDUAL_COMMIT_REACHED
        assert member.commit(2, (3, 4), (30_001, 30_002)) == Committed(Code.NONE, 5)
        assert len(member.ask().ranges) == MOST_RANGES - 1


def test_it_is_announced(proxies: list[ProxyProcess]) -> None:
    """On stock connections and on those of the dialect."""
    with PlainConnection(proxies[0].bootstrap) as connection:
        for kordon_client in (0, 1):
            asked = {"client_software_name": "x", "client_software_version": "1", "kordon_client": kordon_client}
            answer = connection.ask(apis.API_VERSIONS, 3, asked)
            assert COOPERATIVE in [each.name for each in answer.supported_features]


def test_a_lost_log_has_groups_go_on_where_their_coordinators_have_them(
    proxies: list[ProxyProcess], topic: str, admin: AdminClient
) -> None:
    """Work is done again, and none is skipped; the topic is made anew, as it was."""
    group, own = f"{topic}-readers", "__kordon.individual_commits"
    with member_at(proxies[0].bootstrap, group, topic) as member:
        member.ask()
        member.commit(3, (5, 9))
        before = admin.list_topics().topics[own]
        admin.delete_topics([own])[own].result()
        wait_until("it is told", lambda: lost(proxies[0]))
        # Each partition of the log finds out by itself, perhaps later than one of another group.
        wait_until("the group's part is another one", lambda: member.ask()[:2] == (3, ()))
        assert member.commit(3, (5, 9)) == Committed(Code.NONE, 3)
        assert member.ask()[:2] == (3, ((5, 9),))
    found = admin.list_topics().topics
    assert len(found[own].partitions) == len(before.partitions) == len(found["__consumer_offsets"].partitions)


def lost(proxy: ProxyProcess) -> bool:
    return proxy.metric("kordon_individual_commits_failures_total", kind="lost") > 0


def test_a_proxy_that_takes_none_refuses_them_where_others_do(
    proxies: list[ProxyProcess], topic: str, open_cluster: Cluster
) -> None:
    """Its coordinator would have got an offset without a mark; what the group has done stays."""
    group = f"{topic}-readers"
    with ProxyProcess.start(open_cluster.bootstrap()) as other, member_at(proxies[0].bootstrap, group, topic) as member:
        told = member.ask()
        assert member.commit(3, (5, 9)) == Committed(Code.NONE, 3)
        wait_until("it is left out", lambda: other.metric("kordon_individual_commits_left_out") == 1)
        with member_at(other.bootstrap, group, topic) as elsewhere:
            elsewhere.incarnation = told.incarnation
            assert elsewhere.commit(4, (5, 9)).code == Code.INDIVIDUAL_COMMIT_NOT_ALLOWED
        assert member.ask() == Where(3, ((5, 9),), told.incarnation, "")
        assert other.events("individual_commits_left_out")
        assert other.metric("kordon_individual_commits_total", outcome="not_allowed") == 1
