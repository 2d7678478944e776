"""What brokers get of groups on managed topics, and what clients get back, api by api and version by version."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from kordon.codecs import apis
from kordon.codecs.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, build_versioned
from kordon.codecs.messages import request, response
from kordon.proxy.core import verdicts
from kordon.proxy.handlers.api_handler import TranslatedApi
from kordon.proxy.handlers.consumer_group_describe import ConsumerGroupDescribe
from kordon.proxy.handlers.describe_groups import DescribeGroups
from kordon.proxy.handlers.join_group import JoinGroup
from kordon.proxy.handlers.member_bytes import rename_assignment, rename_subscription
from kordon.proxy.handlers.offset_commit import OffsetCommit
from kordon.proxy.handlers.offset_delete import OffsetDelete
from kordon.proxy.handlers.offset_fetch import OffsetFetch
from kordon.proxy.handlers.subscriptions import Subscriptions
from kordon.proxy.handlers.sync_group import SyncGroup
from kordon.proxy.handlers.txn_offset_commit import TxnOffsetCommit
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.names import to_face, to_topic
from kordon.testing.messages.as_read import as_read

HANDLERS: dict[int, TranslatedApi[Any, Any]] = {
    each.key: each
    for each in (
        OffsetCommit(),
        OffsetFetch(),
        OffsetDelete(),
        TxnOffsetCommit(),
        JoinGroup(),
        SyncGroup(),
        DescribeGroups(),
        ConsumerGroupDescribe(),
    )
}
REAL_ID, FACE_ID, NEW_REAL_ID, NEW_FACE_ID, OTHER_ID, OWN_ID = (UUID(int=number) for number in range(1, 7))
FACE = "__kordon.orders"
UNKNOWN_TOPIC_ID, UNSTABLE_OFFSET_COMMIT, REBALANCE_IN_PROGRESS = 100, 88, 27
HEARTBEAT = Subscriptions(lambda: None)
"""Of a worker that has not heard yet which topics there are: names are translated all the same."""


def managed() -> ManagedTopics:
    """Knows `orders`, taken over with 2 partitions that are 4 now, and `new`, created with 1 that is 2."""
    topics = ManagedTopics()
    topics.add(ManagedTopic(Layout.unmanaged("orders", REAL_ID, 2, 4), FACE_ID))
    topics.add(ManagedTopic(Layout.created("new", NEW_REAL_ID, 1, 2), NEW_FACE_ID))
    return topics


def to_broker(api_key: int, version: int, fields: Mapping[str, Any]) -> tuple[Any, bool]:
    """Returns the request as the broker reads it, and whether it was changed."""
    value = parsed_request(api_key, version, fields)
    if api_key == apis.CONSUMER_GROUP_HEARTBEAT:
        reply = HEARTBEAT.look(value, managed())
        changed = reply is not None and reply.changed
    else:
        changed = HANDLERS[api_key].request(version, value, managed())
    return parsed_request(api_key, version, value), changed


def to_client(api_key: int, version: int, fields: Mapping[str, Any], asked: Mapping[str, Any]) -> Any:
    """Returns a broker's response as the client reads it."""
    table = response(api_key)
    value = as_read(table, version, fields)
    HANDLERS[api_key].response(version, value, managed(), parsed_request(api_key, version, asked))
    return as_read(table, version, value)


def parsed_request(api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
    """Returns a request as it is read from the wire."""
    return as_read(request(api_key), version, fields)


def versions(*api_keys: int) -> list[tuple[int, int]]:
    """Returns every version that Kordon lets through."""
    return [(key, version) for key in api_keys for version in verdicts.API_BY_KEY[key].versions]


def named(name: str, topic_id: UUID, **fields: Any) -> dict[str, Any]:
    """Returns a topic's row; each version takes the name or the id."""
    return {"name": name, "topic_id": topic_id, **fields}


def names(rows: Any) -> list[Any]:
    return [row.topic_id if "topic_id" in row else row.name for row in rows]


COMMITTING = versions(apis.OFFSET_COMMIT, apis.TXN_OFFSET_COMMIT, apis.OFFSET_DELETE)
BY_ID = {apis.OFFSET_COMMIT: 10, apis.TXN_OFFSET_COMMIT: 6}
"""The first versions that name topics by their ids."""


@pytest.mark.parametrize(("api_key", "version"), COMMITTING)
def test_commits_go_to_the_face_and_their_answers_name_the_topic(api_key: int, version: int) -> None:
    """All versions, those with topic ids included; other topics are left alone."""
    asked = {"topics": [named("orders", FACE_ID), named("other", OTHER_ID)]}
    sent, changed = to_broker(api_key, version, asked)
    by_id = version >= BY_ID.get(api_key, version + 1)
    assert names(sent.topics) == ([FACE_ID, OTHER_ID] if by_id else [FACE, "other"])
    assert changed is not by_id  # clients know the face's id anyway
    answer = to_client(api_key, version, {"topics": sent.topics}, asked)
    assert names(answer.topics) == ([FACE_ID, OTHER_ID] if by_id else ["orders", "other"])


@pytest.mark.parametrize(("api_key", "version"), COMMITTING)
def test_commits_on_other_topics_pass_as_they_came(api_key: int, version: int) -> None:
    """Nothing managed is named, so nothing is changed and no answer is held."""
    assert to_broker(api_key, version, {"topics": [named("other", OTHER_ID)]})[1] is False
    assert HANDLERS[api_key].answers_always is False


@pytest.mark.parametrize(("api_key", "version"), BY_ID.items())
def test_a_commit_by_the_id_of_old_goes_to_the_face(api_key: int, version: int) -> None:
    """A client may remember the id that its topic had before it was managed."""
    asked = {"topics": [named("", REAL_ID)]}
    sent, changed = to_broker(api_key, version, asked)
    assert (changed, names(sent.topics)) == (True, [FACE_ID])
    assert names(to_client(api_key, version, {"topics": sent.topics}, asked).topics) == [REAL_ID]


# OffsetFetch

FETCHING = versions(apis.OFFSET_FETCH)[1:]
"""Version 0 asks ZooKeeper."""
MANY = [(key, version) for key, version in FETCHING if version >= 2]
"""Versions that can ask for all topics."""


def of_groups(version: int, topics: list[Any] | None) -> dict[str, Any]:
    """Returns the fields of a request or a response about one group, in the form of its version."""
    return {"groups": [{"group_id": "g", "topics": topics}]} if version >= 8 else {"group_id": "g", "topics": topics}


def topics_of(value: Any) -> Any:
    return value.groups[0].topics if "groups" in value else value.topics


def asking(topics: Mapping[tuple[str, UUID], list[int]]) -> list[dict[str, Any]]:
    return [named(name, topic_id, partition_indexes=indexes) for (name, topic_id), indexes in topics.items()]


def commits(name: str, topic_id: UUID, offsets: Mapping[int, int], error: int = 0) -> dict[str, Any]:
    rows = [{"partition_index": v, "committed_offset": at, "error_code": error} for v, at in offsets.items()]
    return named(name, topic_id, partitions=rows)


def told(value: Any) -> dict[Any, dict[int, tuple[int, int]]]:
    rows = topics_of(value)
    return {
        name: {each.partition_index: (each.committed_offset, each.error_code) for each in row.partitions}
        for name, row in zip(names(rows), rows, strict=True)
    }


def shown(version: int, name: str, topic_id: UUID) -> Any:
    return topic_id if version >= 10 else name


@pytest.mark.parametrize(("api_key", "version"), FETCHING)
def test_commits_of_the_face_are_asked_for_together_with_those_from_before(api_key: int, version: int) -> None:
    """Only the first N of a topic that was taken over can have any from before (COMMITS-FOUND)."""
    asked = asking({("orders", FACE_ID): [0, 1, 2, 3], ("new", NEW_FACE_ID): [0, 1], ("other", OTHER_ID): [0]})
    sent, changed = to_broker(api_key, version, of_groups(version, asked))
    assert changed
    assert [list(row.partition_indexes) for row in topics_of(sent)] == [[0, 1, 2, 3], [0, 1], [0, 1], [0]]
    expected = [FACE, "orders", "__kordon.new", "other"]
    assert names(topics_of(sent)) == ([FACE_ID, REAL_ID, NEW_FACE_ID, OTHER_ID] if version >= 10 else expected)


@pytest.mark.parametrize(("api_key", "version"), FETCHING)
def test_a_commit_from_before_counts_until_the_face_has_one(api_key: int, version: int) -> None:
    """Each partition by itself (COMMITS-FOUND); the topic is shown once, by the name or id that the client uses."""
    asked = of_groups(version, asking({("orders", FACE_ID): [0, 1, 2, 3]}))
    answer = [
        commits(FACE, FACE_ID, {0: 70, 1: -1, 2: 30, 3: -1}),
        commits("orders", REAL_ID, {0: 50, 1: 60}),
    ]
    expected = {shown(version, "orders", FACE_ID): {0: (70, 0), 1: (60, 0), 2: (30, 0), 3: (-1, 0)}}
    assert told(to_client(api_key, version, of_groups(version, answer), asked)) == expected
    assert told(to_client(api_key, version, of_groups(version, answer[::-1]), asked)) == expected


@pytest.mark.parametrize(("api_key", "version"), MANY)
def test_all_commits_of_a_group_show_managed_topics_once_and_no_faces(api_key: int, version: int) -> None:
    """Admin clients ask for all; what is Kordon's own does not show."""
    answer = [
        commits("other", OTHER_ID, {0: 1}),
        commits("orders", REAL_ID, {0: 50, 1: 60, 3: 99}),
        commits(FACE, FACE_ID, {0: 70, 2: 30}),
        commits("new", NEW_REAL_ID, {0: 5}),
        *([commits("__kordon.layouts", OWN_ID, {0: 5})] if version < 10 else []),
    ]
    assert told(to_client(api_key, version, of_groups(version, answer), of_groups(version, None))) == {
        shown(version, "other", OTHER_ID): {0: (1, 0)},
        shown(version, "orders", FACE_ID): {0: (70, 0), 1: (60, 0), 2: (30, 0)},
    }
    assert to_broker(api_key, version, of_groups(version, None))[1] is False


def test_a_commit_from_before_that_is_still_in_a_transaction_is_waited_for() -> None:
    """The retriable error is passed on; other errors of the topic of old are not the client's concern."""
    asked = of_groups(9, asking({("orders", FACE_ID): [0, 1]}))
    face = commits(FACE, FACE_ID, {0: 70, 1: -1})
    unstable = commits("orders", REAL_ID, {0: -1, 1: -1}, error=UNSTABLE_OFFSET_COMMIT)
    gone = commits("orders", REAL_ID, {0: -1, 1: -1}, error=UNKNOWN_TOPIC_ID)
    merged = told(to_client(apis.OFFSET_FETCH, 9, of_groups(9, [face, unstable]), asked))
    assert merged == {"orders": {0: (70, 0), 1: (-1, UNSTABLE_OFFSET_COMMIT)}}
    merged = told(to_client(apis.OFFSET_FETCH, 9, of_groups(9, [face, gone]), asked))
    assert merged == {"orders": {0: (70, 0), 1: (-1, 0)}}


def test_a_commit_from_before_counts_up_to_where_its_virtual_partition_has_moved_on() -> None:
    """Groups of the dialect commit there on what others have written since: that is no progress of this one."""
    layout = Layout.unmanaged("orders", REAL_ID, 2, 4)
    taken = layout.changed(layout.next_epoch(2, Placement.OWN), {0: 30, 1: 30})
    moved = taken.changed(taken.next_epoch(2), {0: 40, 1: 40})
    topics = ManagedTopics()
    topics.add(ManagedTopic(moved, FACE_ID))
    asked = parsed_request(apis.OFFSET_FETCH, 9, of_groups(9, asking({("orders", FACE_ID): [0, 1]})))
    table = response(apis.OFFSET_FETCH)
    value = as_read(table, 9, of_groups(9, [commits("orders", REAL_ID, {0: 50, 1: 50})]))
    HANDLERS[apis.OFFSET_FETCH].response(9, value, topics, asked)
    assert told(as_read(table, 9, value)) == {"orders": {0: (50, 0), 1: (40, 0)}}


def test_an_error_of_the_face_is_told_rather_than_an_old_commit() -> None:
    """A client that may not know where it is must not be sent back to where it once was."""
    asked = of_groups(9, asking({("orders", FACE_ID): [0]}))
    face = commits(FACE, FACE_ID, {0: -1}, error=UNSTABLE_OFFSET_COMMIT)
    old = commits("orders", REAL_ID, {0: 50})
    merged = told(to_client(apis.OFFSET_FETCH, 9, of_groups(9, [face, old]), asked))
    assert merged == {"orders": {0: (-1, UNSTABLE_OFFSET_COMMIT)}}


def test_each_of_several_groups_is_merged_by_itself() -> None:
    """One group's commits are never told to another."""
    rows = [commits(FACE, FACE_ID, {0: -1}), commits("orders", REAL_ID, {0: 50})]
    answer = {"groups": [{"group_id": "old", "topics": rows}, {"group_id": "young", "topics": rows[:1]}]}
    asked = {"groups": [{"group_id": name, "topics": asking({("orders", FACE_ID): [0]})} for name in ("old", "young")]}
    old, young = to_client(apis.OFFSET_FETCH, 9, answer, asked).groups
    assert [row.committed_offset for group in (old, young) for row in group.topics[0].partitions] == [50, -1]


def test_commits_are_fetched_by_the_id_of_old() -> None:
    """A client may remember the id that its topic had before it was managed; it is answered by it."""
    asked = of_groups(10, asking({("", REAL_ID): [0]}))
    sent, _ = to_broker(apis.OFFSET_FETCH, 10, asked)
    assert names(topics_of(sent)) == [FACE_ID, REAL_ID]
    answer = of_groups(10, [commits("", FACE_ID, {0: -1}), commits("", REAL_ID, {0: 50})])
    assert told(to_client(apis.OFFSET_FETCH, 10, answer, asked)) == {REAL_ID: {0: (50, 0)}}


# What members tell each other


def subscription(*topics: str, version: int = 3) -> bytes:
    """Returns the bytes of a member that subscribes to topics and owned a partition of each."""
    owned = [{"topic": topic, "partitions": [0, 1]} for topic in topics]
    fields = {"topics": list(topics), "owned_partitions": owned, "user_data": b"orders", "generation_id": 4}
    return build_versioned(SUBSCRIPTION, version, fields)


def assignment(*topics: str, version: int = 3) -> bytes:
    """Returns the bytes of an assignment with partitions of each topic."""
    rows = [{"topic": topic, "partitions": [0, 1]} for topic in topics]
    return build_versioned(ASSIGNMENT, version, {"assigned_partitions": rows, "user_data": b"orders"})


@pytest.mark.parametrize(("api_key", "version"), versions(apis.JOIN_GROUP))
def test_coordinator_learns_of_faces_and_the_leader_of_topics(api_key: int, version: int) -> None:
    """The coordinator reads subscriptions to keep commits (FACE-COMMITS); the leader's assignor has clients' names."""
    protocols = [{"name": "range", "metadata": subscription("orders", "other")}, {"name": "own", "metadata": b"\0\1x"}]
    asked = {"protocol_type": "consumer", "protocols": protocols}
    sent, changed = to_broker(api_key, version, asked)
    assert changed
    assert [row.metadata for row in sent.protocols] == [subscription(FACE, "other"), b"\0\1x"]
    members = [{"member_id": "a", "metadata": subscription(FACE)}, {"member_id": "b", "metadata": b""}]
    answer = to_client(api_key, version, {"members": members, "protocol_type": "consumer"}, asked)
    assert [row.metadata for row in answer.members] == [subscription("orders"), b""]


def test_a_member_of_another_kind_than_its_group_is_named_in_the_log() -> None:
    """Stock clients say no more than the error's name when an OrderedConsumer was there first."""
    protocols = [{"name": "range", "metadata": subscription("orders")}]
    asked = {"protocol_type": "consumer", "group_id": "g", "protocols": protocols}
    with capture_logs() as logs:
        to_client(apis.JOIN_GROUP, 9, {"error_code": 23}, asked)
        to_client(apis.JOIN_GROUP, 9, {"error_code": 0}, asked)
    (line,) = logs
    assert (line["event"], line["group"], line["assignors"]) == ("join_refused", "g", "range")
    assert "OrderedConsumers" in line["cure"]


@pytest.mark.parametrize(("api_key", "version"), versions(apis.JOIN_GROUP))
def test_other_kinds_of_groups_are_left_alone(api_key: int, version: int) -> None:
    """Connect and Schema Registry put bytes of their own into the same requests."""
    asked = {"protocol_type": "connect", "protocols": [{"name": "x", "metadata": subscription("orders")}]}
    assert to_broker(api_key, version, asked)[1] is False
    members = [{"member_id": "a", "metadata": subscription(FACE)}]
    answer = to_client(api_key, version, {"members": members}, asked)
    assert answer.members[0].metadata == subscription(FACE)


@pytest.mark.parametrize(("api_key", "version"), versions(apis.SYNC_GROUP))
def test_assignments_name_faces_upstream_and_topics_downstream(api_key: int, version: int) -> None:
    """The leader's assignments, and what each member is given; a member without any gets none."""
    rows = [{"member_id": "a", "assignment": assignment("orders", "other")}, {"member_id": "b", "assignment": b""}]
    asked = {"assignments": rows, "protocol_type": "consumer"}
    sent, changed = to_broker(api_key, version, asked)
    assert changed
    assert [row.assignment for row in sent.assignments] == [assignment(FACE, "other"), b""]
    answer = to_client(api_key, version, {"assignment": assignment(FACE, "other")}, asked)
    assert answer.assignment == assignment("orders", "other")
    failed = to_client(api_key, version, {"error_code": REBALANCE_IN_PROGRESS, "assignment": b""}, asked)
    assert (failed.error_code, failed.assignment) == (REBALANCE_IN_PROGRESS, b"")


@pytest.mark.parametrize(("api_key", "version"), versions(apis.DESCRIBE_GROUPS))
def test_described_members_name_topics(api_key: int, version: int) -> None:
    """As kafka-consumer-groups and lag exporters read them; groups of other kinds are left alone."""
    member = {"member_id": "a", "member_metadata": subscription(FACE), "member_assignment": assignment(FACE)}
    groups = [{"protocol_type": kind, "members": [member]} for kind in ("consumer", "connect")]
    answer = to_client(api_key, version, {"groups": groups}, {"groups": ["g"]})
    described = [(each.member_metadata, each.member_assignment) for group in answer.groups for each in group.members]
    assert described == [(subscription("orders"), assignment("orders")), (subscription(FACE), assignment(FACE))]


@pytest.mark.parametrize(("api_key", "version"), versions(apis.CONSUMER_GROUP_HEARTBEAT))
def test_members_of_new_groups_subscribe_to_faces(api_key: int, version: int) -> None:
    """By name (FACE-NAMES); a heartbeat that changes no subscription passes."""
    sent, changed = to_broker(api_key, version, {"subscribed_topic_names": ["other", "orders"]})
    assert (changed, list(sent.subscribed_topic_names)) == (True, ["other", FACE])
    for unchanged in (None, [], ["other"]):
        assert to_broker(api_key, version, {"subscribed_topic_names": unchanged})[1] is False


@pytest.mark.parametrize(("api_key", "version"), versions(apis.CONSUMER_GROUP_DESCRIBE))
def test_described_members_of_new_groups_name_topics(api_key: int, version: int) -> None:
    """Subscriptions, assignments and targets."""
    rows = {"topic_partitions": [{"topic_id": FACE_ID, "topic_name": FACE, "partitions": [0, 3]}]}
    member = {"subscribed_topic_names": [FACE, "other"], "assignment": rows, "target_assignment": rows}
    answer = to_client(api_key, version, {"groups": [{"members": [member]}]}, {"group_ids": ["g"]})
    seen = answer.groups[0].members[0]
    assert list(seen.subscribed_topic_names) == ["orders", "other"]
    for part in (seen.assignment, seen.target_assignment):
        assert [(row.topic_name, row.topic_id) for row in part.topic_partitions] == [("orders", FACE_ID)]


TOPIC_NAMES = st.lists(st.sampled_from(["orders", "new", "other", "orders2", "über", ""]), max_size=4)
TAILS = st.binary(max_size=6)


@given(topics=TOPIC_NAMES, user_data=st.none() | TAILS, version=st.integers(0, 9), tail=TAILS)
def test_what_members_tell_comes_back_as_it_went(
    topics: list[str], user_data: bytes | None, version: int, tail: bytes
) -> None:
    """Names go to the faces' and back; user data, versions to come and what stands behind are kept byte for byte."""
    owned = [{"topic": topic, "partitions": [1]} for topic in topics]
    fields = {"topics": topics, "user_data": user_data, "owned_partitions": owned, "assigned_partitions": owned}
    for table, rename in ((SUBSCRIPTION, rename_subscription), (ASSIGNMENT, rename_assignment)):
        data = version.to_bytes(2, "big") + table.build(min(version, 3), fields) + tail
        there = rename(data, to_face(managed()))
        assert (there != data) == bool({"orders", "new"} & set(topics))
        assert there[:2] == data[:2]
        assert there.endswith(tail)
        assert rename(there, to_topic(managed())) == data


@given(data=st.binary(max_size=40), cut=st.integers(0, 60))
def test_bytes_that_are_no_subscription_pass_untouched(data: bytes, cut: int) -> None:
    """Broken, cut short or of another kind: the broker and the other members judge them."""
    for rename in (rename_subscription, rename_assignment):
        assert rename(data, to_face(managed())) == data
    short = subscription("orders", "other")[:cut]
    assert rename_subscription(short, to_face(managed())) == short
