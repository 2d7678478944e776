"""SyncGroup and ConsumerGroupHeartbeat of groups on source topics: who owns which source partition is put on record.

In a classic group the leader shares the partitions out, and its SyncGroup has all of it: one decision for each
generation, however many members there are. With KIP-848 brokers share them out, and tell a member what it has when that
changes: one decision for each change. No heartbeat that changes nothing is on record.

Nothing is changed by it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.bodies import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kordon.codecs.consumer_protocol import ASSIGNMENT, parse_versioned
from kordon.codecs.errors import WireError
from kordon.codecs.primitives import RowBudget
from kordon.proxy.core.interception import Translate
from kordon.proxy.decisions.commits import Committer
from kordon.proxy.decisions.room import RecordRoom
from kordon.proxy.decisions.source_owners import MOST_ROWS, Owners, assignment, rows_of
from kordon.proxy.handlers.api_handler import ApiHandler, Handled, HeldRequest
from kordon.proxy.handlers.member_bytes import speaks_consumer
from kordon.proxy.topics.source_topics import SourceTopics

_MOST_TOPICS: Final = 10
"""Source topics of one group that are put on record: a group of a source has one."""


class SourceAssignments(ApiHandler):
    """Puts owners on record; all else is `stock`'s.

    Args:
        stock: What happens to the request because of managed topics. None: it passes.
        room: Bounds the decisions about assignments.
    """

    concerns_sources = True

    def __init__(self, stock: ApiHandler | None, room: RecordRoom) -> None:
        self.stock = stock
        self.room = room

    def decide(self, held: HeldRequest) -> Handled:
        """Has a look at the answer, where the stock handler changes nothing but names."""
        handled = self._by_stock(held)
        if not (handled is None or isinstance(handled, Translate)):
            return handled
        try:
            value = held.read()
        except WireError:
            return handled  # the broker says what is wrong with it

        def back(answer: Any) -> None:
            if handled is not None:
                handled.back(answer)
            if not answer.error_code:
                self._note(held, value, answer)

        return Translate(None if handled is None else handled.body, back)

    def _note(self, held: HeldRequest, value: Any, answer: Any) -> None:
        told, by_topic = self.owners(value, answer, held.topics.sources)
        for name, owners in by_topic.items():
            topic = held.topics.sources.named(name)
            if topic is not None:
                rows = min(rows_of(owners), MOST_ROWS)
                self.room.note(assignment(held.client, told, name, topic.topic_id, owners), rows)

    def _by_stock(self, held: HeldRequest) -> Handled:
        """Has the stock handler decide, if it would be asked without source topics, too."""
        if self.stock is None or not (self.stock.is_always_wanted or held.topics):
            return None
        return self.stock.decide(held)

    @abstractmethod
    def owners(self, value: Any, answer: Any, sources: SourceTopics) -> tuple[Committer, Mapping[str, Owners]]:
        """Returns who says so, and by source topic who owns what.

        Args:
            value: The request.
            answer: The answer, which has no error.
        """
        ...


class SyncedOwners(SourceAssignments):
    """The owners that a classic group's leader assigns."""

    key = apis.SYNC_GROUP

    def owners(
        self, value: SyncGroupRequest, answer: SyncGroupResponse, sources: SourceTopics
    ) -> tuple[Committer, Mapping[str, Owners]]:
        """Returns what the leader has told its group; other members tell nothing."""
        told = Committer(value.group_id, value.generation_id, value.member_id, self.key)
        return told, _shared_out(value, sources) if speaks_consumer(value) else {}


class HeldOwners(SourceAssignments):
    """The source partitions of one member of a KIP-848 group."""

    key = apis.CONSUMER_GROUP_HEARTBEAT

    def owners(
        self, value: ConsumerGroupHeartbeatRequest, answer: ConsumerGroupHeartbeatResponse, sources: SourceTopics
    ) -> tuple[Committer, Mapping[str, Owners]]:
        """Returns what the broker tells the member; nothing where nothing has changed."""
        member = answer.member_id or value.member_id
        told = Committer(value.group_id, answer.member_epoch, member, self.key)
        rows = answer.assignment.topic_partitions if answer.assignment is not None else ()
        named = ((sources.name_of(row.topic_id), row.partitions) for row in rows[:_MOST_TOPICS])
        return told, {name: {member: partitions} for name, partitions in named if name}


def _shared_out(value: SyncGroupRequest, sources: SourceTopics) -> dict[str, dict[str, list[int]]]:
    """Returns by source topic who is given what; nothing where a leader's bytes are none, or too many."""
    left = RowBudget(MOST_ROWS)
    by_topic: dict[str, dict[str, list[int]]] = {}
    try:
        given = {
            row.member_id: parse_versioned(ASSIGNMENT, row.assignment, left).value.assigned_partitions
            for row in value.assignments
            if row.assignment
        }
    except WireError:
        return {}
    for member, rows in given.items():
        for row in rows:
            if row.topic in by_topic or (row.topic in sources and len(by_topic) < _MOST_TOPICS):
                by_topic.setdefault(row.topic, {}).setdefault(member, []).extend(row.partitions)
    for owners in by_topic.values():
        for each in value.assignments:
            owners.setdefault(each.member_id, [])
    return by_topic
