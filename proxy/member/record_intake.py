"""Takes in the records of the layouts topic one by one, and tells whom each of them concerns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kordon.proxy.controller.forged_fences import FORGED_CURE
from kordon.proxy.kafka.batches import Record
from kordon.proxy.member.fence_holder import FenceHolder
from kordon.proxy.member.findings import Findings
from kordon.proxy.member.leadership import Leadership
from kordon.proxy.ordering.layouts_state import LayoutsState, StandingFence
from kordon.proxy.ordering.records import (
    AckRecord,
    AnnouncementRecord,
    BehindRecord,
    FenceRecord,
    FindingRecord,
    GoneRecord,
    JanitorRecord,
    OutcomeRecord,
    Unreadable,
    Value,
    WishRecord,
    load,
    topic_of,
)
from kordon.proxy.ordering.wishes import Wish
from kordon.proxy.own_topics.wishing import Wishing
from kordon.proxy.runtime.clock import clock
from kordon.proxy.runtime.log_limits import client_log

told = client_log(__name__)
"""For events that anybody who can write to the layouts can cause."""


class Forged(Exception):  # noqa: N818 - what a record is
    """Raised for a record that is not from the writer that it names; it has no effect."""


@dataclass(frozen=True)
class RecordIntake:
    """Takes in the records of the layouts topic.

    Attributes:
        state: The state, which keeps what the records say.
        findings: The findings, which are told what is wrong with topics.
        leadership: The leadership, whose role is told of wishes and acknowledgements.
        wishing: The part that is told the outcomes of wishes.
        fence_holder: The part that does what layouts and fences ask for.
        withholds: Returns whether a record has no effect yet, because it is read again.
        on_wish: Called with each wish that comes.
    """

    state: LayoutsState
    findings: Findings
    leadership: Leadership
    wishing: Wishing
    fence_holder: FenceHolder
    withholds: Callable[[Record], bool]
    on_wish: Callable[[Wish], None]

    def on_record(self, record: Record) -> None:
        """Takes in a record; one that cannot be read harms its own topic at most."""
        value = _read(record)
        if not isinstance(value, Unreadable):
            try:
                self._take(record, value)
            except Forged as error:
                self.on_forged(record.key, record.offset, str(error))
            except Exception as error:  # the outermost edge of a record: none may end the following of all others
                told.exception("layouts_record_failed", key=record.key, offset=record.offset)
                value = Unreadable(record.key, f"it cannot be applied: {error!r}", topic_of(record.key))
        if not isinstance(value, Unreadable):
            self.state.leftovers.on_record(record.key, clock(), is_tombstone=record.value is None)
        self.findings.on_record(record.key, value, record.offset)

    def on_forged(self, key: str, offset: int, error: str) -> None:
        """Tells of a record that is not by whom it says."""
        told.error("forged_record", key=key, offset=offset, error=error, cure=FORGED_CURE)
        self.findings.count_forged(key)

    def _take(self, record: Record, value: Value | None) -> None:
        kind, _, rest = record.key.partition("/")
        role = self.leadership.role
        match kind, value:
            case "wish", _:
                self._on_wish(rest, value.wish if isinstance(value, WishRecord) else None)
            case "outcome", OutcomeRecord():
                self.wishing.on_outcome(rest, value)
            case "ack", AckRecord(fence, incarnation, told):
                if role is not None:
                    role.on_ack(fence, incarnation, told, record.offset)
            case "outcome" | "ack", _:
                pass  # of others, or a tombstone: it is known by its age alone
            case "gone", GoneRecord() | None:
                self._on_gone(rest, value)
            case "janitor" | "behind", _:
                self._on_progress(kind, rest, value)
            case "finding", FindingRecord() | None:
                self.findings.on_finding(record.key, value)
            case _:
                self._on_layout(record, value)

    def _on_wish(self, wish_id: str, wish: Wish | None) -> None:
        if wish is None:
            self.state.wishes.pop(wish_id, None)
            return
        self.state.wishes[wish_id] = wish
        self.on_wish(wish)
        if self.leadership.role is not None:
            self.leadership.role.on_wish(wish_id, wish)

    def _on_progress(self, kind: str, topic: str, value: Value | None) -> None:
        if kind == "janitor":
            self.state.looked_to[topic] = value.looked_to if isinstance(value, JanitorRecord) else {}
        elif isinstance(value, BehindRecord):
            self.state.behind[topic] = value
        else:
            self.state.behind.pop(topic, None)

    def _on_gone(self, incarnation: str, gone: GoneRecord | None) -> None:
        if gone is None:
            self.state.presence.forgotten(incarnation)
            return
        if not self.state.presence.left(incarnation, gone.word):
            raise Forged(f"proxy {incarnation} has not said that it ends; its lease is waited for")
        if self.leadership.role is not None:
            self.leadership.role.on_members()

    def _on_layout(self, record: Record, value: Value | None) -> None:
        commands = self.state.member.on_record(record.key, value)
        if isinstance(value, FenceRecord):
            self.state.fences_read[value.topic] = StandingFence(record.offset, clock(), record.producer_id)
        if self.withholds(record):  # what it amounts to is taken up when all has been read again
            return
        role, (kind, _, topic) = self.leadership.role, record.key.partition("/")
        announced = value if isinstance(value, AnnouncementRecord) else None
        if role is not None and kind == "announcement" and (why := role.why_forged(topic, announced)):
            self.on_forged(record.key, record.offset, why)
        for command in commands:
            self.fence_holder.perform(command, record.offset)


def _read(record: Record) -> Value | Unreadable | None:
    """Reads a record; None: it is a tombstone, or can be passed over."""
    if record.fault:
        return Unreadable(record.key, record.fault, topic_of(record.key))
    return None if record.value is None else load(record.key, record.value)
