"""Rights of clients that speak the dialect: each of its apis lets nobody do, or know, what a broker would not."""

# pyright: reportPrivateImportUsage=false
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, NewTopic, ResourceType

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.dialect.group import GroupMember, Told
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, resize
from kordon.testing.managed_writes import a_batch
from kordon.testing.messages.every_request import NO_ID, About
from kordon.testing.rights import Allowed, Secured, log_in, login
from kordon.testing.steps import plain
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

TOPIC, ORDINARY, GROUP = "dialect-guarded", "ordinary-guarded", "dialect-guarded-group"
COUNT = 4
"""Undeleted partitions: one more than it began with, so that one is gated."""
NAMING = (
    *((apis.PRODUCE, 9), (apis.FETCH, 12), (apis.METADATA, 9), (apis.DESCRIBE_TOPIC_PARTITIONS, 0)),
    *((apis.LIST_OFFSETS, 7), (apis.OFFSET_FOR_LEADER_EPOCH, 4), (apis.DELETE_RECORDS, 2)),
)


@pytest.fixture(scope="module")
def guarded(strict_cluster: Secured) -> Secured:
    """A managed topic that has grown, and one that is not managed; alice may use both, bob neither."""
    found = strict_cluster
    found.allow(*(Allowed(user, AclOperation.ALL, TOPIC) for user in ("kordon", "alice")))
    found.allow(Allowed("alice", AclOperation.ALL, ORDINARY), of_group("alice"))
    found.operator.create_topics([NewTopic(ORDINARY, VIRTUAL_PARTITIONS, 1)])[ORDINARY].result(60)
    admin = create_managed(found.kordon.bootstrap, TOPIC, login("admin"))
    with logged_in(found, "alice") as alice:
        assert alice.produce(TOPIC, 1, a_batch("one"), count=3).error_code == Code.NONE
    resize(admin, TOPIC, COUNT).result(60)
    return found


def of_group(user: str) -> Allowed:
    """The right to be a member of the group."""
    return Allowed(user, AclOperation.READ, GROUP, ResourceType.GROUP)


def logged_in(guarded: Secured, user: str) -> DialectConnection:
    """Returns a connection of the dialect on which a user has logged in."""
    return log_in(DialectConnection(guarded.kordon.bootstrap), user)


def requests_about(name: str, count: int) -> dict[tuple[int, int], dict[str, Any]]:
    """Requests by api key and version that name partition 1 of a topic; `count` is what the dialect adds."""
    about = About(name, NO_ID, GROUP, 1)
    asked = {(key, version): about.fields(key, version) for key, version in NAMING}
    committed = {"partition_index": 1, "committed_offset": 1}
    asked[apis.OFFSET_COMMIT, 8] = {"group_id": GROUP, "topics": [{"name": name, "partitions": [committed]}]}
    asked[apis.OFFSET_FETCH, 7] = {"group_id": GROUP, "topics": [{"name": name, "partition_indexes": [0, 1]}]}
    for row in (asked[apis.PRODUCE, 9]["topic_data"][0], asked[apis.FETCH, 12]["topics"][0]) if count >= 0 else ():
        row["undeleted_partition_count"] = count
    return asked


OF_DESCRIBE = {
    apis.METADATA,
    apis.DESCRIBE_TOPIC_PARTITIONS,
    apis.LIST_OFFSETS,
    apis.OFFSET_FOR_LEADER_EPOCH,
    apis.OFFSET_FETCH,
}
"""Api keys of what whoever may describe a topic may ask."""


@pytest.mark.parametrize("describes", [False, True], ids=["no right", "describe only"])
@pytest.mark.parametrize("in_group", [False, True], ids=["no group", "the group"])
def test_what_is_refused_is_refused_as_brokers_do(guarded: Secured, *, describes: bool, in_group: bool) -> None:
    """Api by api, field by field: the answer about a managed topic is that about an ordinary one."""
    rights = [Allowed("bob", AclOperation.DESCRIBE, name) for name in (TOPIC, ORDINARY)] if describes else []
    rights += [of_group("bob")] if in_group else []
    with guarded.allowed(*rights), logged_in(guarded, "bob") as bob:
        expected_code = Code.NONE if describes else Code.TOPIC_AUTHORIZATION_FAILED
        wait_until("bob's rights are known", lambda: bob.metadata(TOPIC).error_code == expected_code)
        ordinary, compared = requests_about(ORDINARY, -1), set[int]()
        for (key, version), fields in requests_about(TOPIC, COUNT).items():
            if describes and key in OF_DESCRIBE - ({apis.OFFSET_FETCH} if not in_group else set()):
                continue
            managed = str(plain(bob.ask(key, version, fields)))
            expected = str(plain(bob.ask(key, version, ordinary[key, version])))
            assert f"{Code.TOPIC_AUTHORIZATION_FAILED}" in managed or f"{Code.GROUP_AUTHORIZATION_FAILED}" in managed
            assert managed.replace(TOPIC, "<topic>") == expected.replace(ORDINARY, "<topic>"), key
            compared.add(key)
    assert len(compared) == 9 - (5 if in_group else 4) * describes


def test_layouts_are_told_to_those_who_may_describe(guarded: Secured) -> None:
    """PartitionLeaderEpochsForPartitions: not even whether there is such a topic; the rest of a request is answered."""
    others = ["no-such-topic", ORDINARY]
    with logged_in(guarded, "bob") as bob:
        for name in (TOPIC, *others):
            row = bob.leader_epochs(name)
            assert row.error_code == Code.TOPIC_AUTHORIZATION_FAILED, name
            assert (list(row.partitions), row.layout_epoch) == ([], -1)
    with guarded.allowed(Allowed("bob", AclOperation.DESCRIBE, TOPIC)), logged_in(guarded, "bob") as bob:
        wait_until("bob may describe it", lambda: bob.metadata(TOPIC).error_code == Code.NONE)
        asked = {"topics": [{"topic": name, "partitions": []} for name in (TOPIC, *others)]}
        rows = {row.topic: row for row in bob.ask(apis.PARTITION_LEADER_EPOCHS, 0, asked).topics}
        assert rows[TOPIC].error_code == Code.NONE
        assert [row.partition for row in rows[TOPIC].partitions] == list(range(COUNT))
        assert {rows[name].error_code for name in others} == {Code.TOPIC_AUTHORIZATION_FAILED}


@contextmanager
def members(guarded: Secured, *users: str) -> Iterator[list[GroupMember]]:
    """Connections to the group's coordinator, of some users; members they are when they have joined."""
    with ExitStack() as stack:
        yield [stack.enter_context(GroupMember(guarded.kordon.bootstrap, GROUP, user=user)) for user in users]


def test_positions_are_told_to_members_who_may_read_the_topic_and_the_group(guarded: Secured) -> None:
    """ConsumerGroupPosition: nothing is kept or told of what is refused; the group is judged first, as by brokers."""
    read, finds = Allowed("bob", AclOperation.READ, TOPIC), AclOperation.DESCRIBE
    with members(guarded, "alice") as (alice,):
        alice.sync(alice.join())
        assert alice.tell(TOPIC, {1: 1}).error_code == Code.NONE
        for rights, code in (
            ([], Code.GROUP_AUTHORIZATION_FAILED),
            ([read], Code.GROUP_AUTHORIZATION_FAILED),
            ([of_group("bob")], Code.TOPIC_AUTHORIZATION_FAILED),
        ):
            given = guarded.allowed(*rights, Allowed("bob", finds, GROUP, ResourceType.GROUP))
            with given, members(guarded, "bob") as (bob,):
                bob.member_id, bob.generation_id = alice.member_id, alice.generation_id  # he has heard of it
                assert bob.report(TOPIC, {1: 0}, [1]) == Told(code, {}, frozenset()), rights
        assert alice.tell(TOPIC, {1: 1}, [1]).positions == {1: 1}
        alice.leave()


def test_rights_that_are_given_later_are_used(guarded: Secured) -> None:
    """On the same connection, without logging in anew: Produce, Fetch, and what belongs to a group."""
    fields = requests_about(TOPIC, COUNT)
    with logged_in(guarded, "bob") as bob:
        assert bob.produce(TOPIC, 1, a_batch("later"), COUNT).error_code == Code.TOPIC_AUTHORIZATION_FAILED
        assert bob.fetch(TOPIC, {1: 0}, COUNT)[1].error_code == Code.TOPIC_AUTHORIZATION_FAILED
        rights = [Allowed("bob", AclOperation.READ, TOPIC), Allowed("bob", AclOperation.WRITE, TOPIC), of_group("bob")]
        with guarded.allowed(*rights):
            wait_until("bob may write", lambda: bob.produce(TOPIC, 1, a_batch("later"), COUNT).error_code == Code.NONE)
            wait_until("bob may read", lambda: bool(bob.fetch(TOPIC, {1: 0}, COUNT)[1].records))
            (topic,) = bob.ask(apis.OFFSET_COMMIT, 8, fields[apis.OFFSET_COMMIT, 8]).topics
            assert [row.error_code for row in topic.partitions] == [Code.NONE]
            (topic,) = bob.ask(apis.OFFSET_FETCH, 7, fields[apis.OFFSET_FETCH, 7]).topics
            assert {row.partition_index: row.committed_offset for row in topic.partitions} == {0: -1, 1: 1}


def test_who_may_not_describe_may_not_read_either(guarded: Secured) -> None:
    """DENY of DESCRIBE, of which brokers say nothing in Metadata but the refusal, counts for all of it."""
    denied = Allowed("alice", AclOperation.DESCRIBE, TOPIC, permission=AclPermissionType.DENY)
    with guarded.allowed(denied), logged_in(guarded, "alice") as alice:
        wait_until("it is known", lambda: bool(alice.metadata(TOPIC).error_code))
        assert alice.fetch(TOPIC, {1: 0}, COUNT)[1].error_code == Code.TOPIC_AUTHORIZATION_FAILED
        assert alice.leader_epochs(TOPIC).error_code == Code.TOPIC_AUTHORIZATION_FAILED
        assert alice.metadata(TOPIC).undeleted_partition_count == -1
