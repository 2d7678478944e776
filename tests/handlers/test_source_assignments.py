"""Who owns which source partition is on record: once for each generation, or each change, and nothing is changed."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.consumer_protocol import ASSIGNMENT, build_versioned
from kordon.codecs.decision import Decision, Kind
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.proxy.core.interception import Translate
from kordon.proxy.decisions import room, source_owners
from kordon.proxy.decisions.room import RecordRoom
from kordon.proxy.handlers import source_assignments
from kordon.proxy.handlers.source_assignments import HeldOwners, SyncedOwners
from kordon.proxy.handlers.sync_group import SyncGroup
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.source_records import SourceTopic
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.handled import guard_of, route_of
from kordon.testing.messages.as_read import as_read
from kordon.testing.noted import Noted

GROUP, SOURCE, SOURCE_ID = "db1", "db1", UUID(int=7)
OTHER_ID = UUID(int=8)


def given(topics: Mapping[str, Sequence[int]]) -> bytes:
    """Returns what a leader gives to a member."""
    rows = [{"topic": topic, "partitions": list(each)} for topic, each in topics.items()]
    return build_versioned(ASSIGNMENT, 0, {"assigned_partitions": rows, "user_data": None})


class Group:
    """A group behind a worker that knows one source topic and one managed topic."""

    def __init__(self, *, managed: bool = False) -> None:
        self.topics = ManagedTopics()
        if managed:
            self.topics.add(ManagedTopic(Layout.created("orders", UUID(int=1), 1, 4), UUID(int=2), layouts_offset=7))
        self.topics.sources.know({SOURCE: SourceTopic(SOURCE_ID, 1)})
        self.noted = Noted()
        record = RecordRoom(self.noted.journal, lambda: 0.0)
        self.guard = guard_of(
            self.topics,
            [SyncGroup()],
            journal=self.noted.journal,
            with_sources=[SyncedOwners(SyncGroup(), record), HeldOwners(None, record)],
        )
        self.sent: bytes | None = None
        """What the broker gets in place of the client's own."""

    def asked(self, key: int, version: int, body: Mapping[str, object], answer: Mapping[str, object]) -> None:
        route = route_of(key, version)
        assert self.guard.wants(route)
        decision = self.guard.decide(route, memoryview(bytearray(request(key).build(version, body))))
        if decision is None:
            return
        assert isinstance(decision, Translate)
        self.sent = decision.body
        told = as_read(response(key), version, answer)
        before = response(key).build(version, told)
        decision.back(told)
        assert response(key).build(version, told) == before, "the client is told what the broker says"

    def synced(self, assignments: Mapping[str, bytes], *, code: int = Code.NONE, protocol: str = "consumer") -> None:
        """Has the leader share out."""
        body = {
            "group_id": GROUP,
            "generation_id": 4,
            "member_id": "lead",
            "protocol_type": protocol,
            "protocol_name": "range",
            "assignments": [{"member_id": each, "assignment": data} for each, data in assignments.items()],
        }
        answer = {"error_code": code, "assignment": given({}), "protocol_type": protocol, "protocol_name": "range"}
        self.asked(apis.SYNC_GROUP, 5, body, answer)

    def beat(self, assignment: Mapping[UUID, Sequence[int]] | None, *, code: int = Code.NONE) -> None:
        """Has a member of KIP-848 ask, and its broker answer."""
        body: dict[str, Any] = {"group_id": GROUP, "member_id": "m", "member_epoch": 4}
        rows = None if assignment is None else [{"topic_id": each, "partitions": p} for each, p in assignment.items()]
        told = None if rows is None else {"topic_partitions": rows}
        answer = {"error_code": code, "member_id": "m", "member_epoch": 5, "heartbeat_interval_ms": 1}
        self.asked(apis.CONSUMER_GROUP_HEARTBEAT, 1, body, {**answer, "assignment": told})

    @property
    def told(self) -> list[Decision]:
        return self.noted.of(Kind.ASSIGN)


def test_what_a_leader_shares_out_is_one_decision_with_those_who_stand_by() -> None:
    group = Group()
    group.synced({"a": given({SOURCE: [0, 2]}), "b": given({SOURCE: [1], "other": [5]}), "c": given({}), "d": b""})
    (told,) = group.told
    assert (told.group_id, told.generation_id, told.member_id) == (GROUP, 4, "lead")
    assert (told.api_key, told.topic) == (apis.SYNC_GROUP, SOURCE)
    owners = [["a", [0, 2]], ["b", [1]], ["c", []], ["d", []]]
    assert told.evidence == {"topic_id": str(SOURCE_ID), "owners": owners}
    assert group.sent is None


def test_those_whom_the_coordinator_refuses_share_nothing_out() -> None:
    group = Group()
    group.synced({"a": given({SOURCE: [0]})}, code=Code.ILLEGAL_GENERATION)
    assert not group.told


@pytest.mark.parametrize("junk", [b"\x00", b"\x00\x00\xff\xff", given({SOURCE: range(9)})[:-6]])
def test_bytes_that_are_no_assignment_pass_and_are_not_on_record(junk: bytes) -> None:
    group = Group()
    group.synced({"a": given({SOURCE: [0]}), "b": junk})
    group.synced({"a": given({SOURCE: [0]})}, protocol="connect")
    assert not group.told
    assert group.sent is None


def test_followers_tell_nothing() -> None:
    group = Group()
    group.synced({})
    assert not group.told


def test_managed_topics_beside_a_source_are_still_shared_out_by_their_faces() -> None:
    group = Group(managed=True)
    group.synced({"a": given({SOURCE: [0], "orders": [1]})})
    assert len(group.told) == 1
    assert b"__kordon.orders" in (group.sent or b"")


def test_a_member_of_the_new_protocol_is_on_record_when_its_share_changes() -> None:
    group = Group()
    group.beat({SOURCE_ID: [3, 1], OTHER_ID: [0]})
    for _ in range(50):
        group.beat(None)
    group.beat({SOURCE_ID: []})
    first, second = group.told
    assert (first.api_key, first.member_id, first.generation_id) == (apis.CONSUMER_GROUP_HEARTBEAT, "m", 5)
    assert first.evidence == {"topic_id": str(SOURCE_ID), "owners": [["m", [3, 1]]]}
    assert second.evidence["owners"] == [["m", []]]


def test_a_member_that_is_refused_has_nothing() -> None:
    group = Group()
    group.beat({SOURCE_ID: [1]}, code=Code.UNKNOWN_MEMBER_ID)
    assert not group.told


def test_owners_that_are_too_many_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_owners, "MOST_ROWS", 4)
    group = Group()
    group.synced({"a": given({SOURCE: range(4)})})
    (told,) = group.told
    assert told.evidence == {"topic_id": str(SOURCE_ID), "left_out": 5}


def test_names_of_members_that_are_too_long_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_owners, "MOST_MEMBER_CHARACTERS", 100)
    group = Group()
    group.synced({"a" * 101: given({SOURCE: [0]})})
    assert group.told[0].evidence["left_out"] == 2


def test_of_a_hundred_thousand_partitions_nothing_is_read() -> None:
    group = Group()
    group.synced({f"m{each}": given({SOURCE: range(40_000)}) for each in range(5)})
    assert not group.told


def test_of_many_source_topics_of_one_group_a_few_are_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_assignments, "_MOST_TOPICS", 3)
    group = Group()
    names = [f"s{each}" for each in range(9)]
    group.topics.sources.know({each: SourceTopic(UUID(int=at + 1), 1) for at, each in enumerate(names)})
    group.synced({"a": given({each: [0] for each in names})})
    group.beat({UUID(int=at + 1): [0] for at in range(9)})
    assert [each.api_key for each in group.told] == [apis.SYNC_GROUP] * 3 + [apis.CONSUMER_GROUP_HEARTBEAT] * 3


def test_who_shares_out_again_and_again_fills_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "ROWS_AT_ONCE", 1_000)
    group = Group()
    for _ in range(100):
        group.synced({"a": given({SOURCE: range(99)})})
    assert len(group.told) == 10
