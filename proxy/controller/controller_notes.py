"""Turns what the controller does into decisions, each when it is durable.

The controller writes fences, layouts and the ends of fences through its ledger, so the ledger calls these notes. The
role itself tells what a cut rests on: which proxy's acknowledgement was read at which offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kordon.codecs.decision import Decision, Kind
from kordon.proxy.ordering.layout import LAYOUT_JSON, Layout
from kordon.proxy.ordering.records import FenceRecord, TopicRecord, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kordon.proxy.decisions.journal import Journal
    from kordon.proxy.ordering.changes import Producers
    from kordon.proxy.own_topics.layouts_writer import Offsets, Records

QUESTION: Final = "question"
"""The purpose of a fence that changes no layout. It asks which proxies know it, or stops all writing to a topic that is
let go."""
CHANGE: Final = "change"
UNKNOWN: Final = "unknown"
"""The outcome of a transaction whose end is not known."""


class ControllerNotes:
    """Notes what one controller does."""

    def __init__(self, journal: Journal, members: Callable[[], frozenset[str]]) -> None:
        self._journal = journal
        self._members = members
        self._fences: dict[str, tuple[FenceRecord, int, str]] = {}
        """By topic: the fence that stands, its offset, and its purpose."""
        self._acknowledged: dict[str, dict[str, int | None]] = {}
        """By fence and incarnation: the offset of the acknowledgement."""
        self._enough: dict[str, tuple[frozenset[str], dict[str, int | None]]] = {}
        """By fence whose cuts are being read: which proxies had to acknowledge it, and at which offsets they had."""

    def found(self, fence: FenceRecord) -> None:
        """Notes a fence that a former controller has left."""
        self._fences[fence.topic] = (fence, -1, CHANGE if fence.sealed else QUESTION)

    def on_ack(self, fence: str, incarnation: str, offset: int | None) -> None:
        """A proxy holds what a fence names.

        Where it says so in the layouts topic is `offset`; None: nowhere, it is the controller's own worker.
        """
        self._acknowledged.setdefault(fence, {})[incarnation] = offset  # perhaps before it is known here to be durable

    def written(self, records: Records, offsets: Offsets, before: Mapping[str, TopicRecord]) -> None:
        """Notes what one transaction has made durable. The offsets are by key, and the former layouts by topic."""
        for key, value in records:
            topic = key.partition("/")[2]
            match value:
                case FenceRecord():
                    self._raised(value, offsets[key], before.get(topic))
                case TopicRecord(layout):
                    self._committed(layout, offsets[key])
                case None if kind_of(key) == "fence":
                    self._ended(topic, offsets[key], cancelled=not _lays(records, topic))
                case _:
                    pass

    def doubted(self, records: Records) -> None:
        """Notes the records of a transaction of which nobody has said how it ended.

        The next controller reads the layouts to their end, and workers adopt what they find. Their decisions record
        that. So these records name no fence and no layout in force; both are in the evidence.
        """
        for key, value in records:
            topic = key.partition("/")[2]
            standing, _, _ = self._fences.get(topic, (None, -1, ""))
            match value:
                case FenceRecord():
                    self._doubt(Kind.FENCE, topic, value.following.number, value.id)
                case TopicRecord(layout):
                    self._doubt(Kind.COMMIT, topic, layout.epoch, standing.id if standing is not None else None)
                case None if kind_of(key) == "fence" and standing is not None and not _lays(records, topic):
                    self._doubt(Kind.CANCEL, topic, standing.following.number, standing.id)
                case _:
                    pass

    def _doubt(self, kind: Kind, topic: str, epoch: int, fence_id: str | None) -> None:
        evidence = {"of_fence": fence_id} if fence_id is not None else {}
        self._journal.note(Decision(kind=kind, topic=topic, layout_epoch=epoch, reason=UNKNOWN, evidence=evidence))

    def enough(self, fence_id: str) -> None:
        """Notes which proxies have acknowledged a fence when these are enough; later ones read the fence."""
        self._enough[fence_id] = (self._members(), dict(self._acknowledged.get(fence_id, {})))

    def cut(self, fence_id: str, cuts: Mapping[int, Producers]) -> None:
        """Notes where the partitions of a fence end. It notes nothing if the fence has ended meanwhile."""
        found = next((each for each in self._fences.values() if each[0].id == fence_id), None)
        members, acknowledged = self._enough.pop(fence_id, (frozenset[str](), {}))
        if found is None:
            return
        fence, raised_at, _ = found
        read_at = {each: at for each, at in sorted(acknowledged.items()) if at is not None}
        rests_on = max((raised_at, *read_at.values()))
        evidence = {"members": sorted(members), "acknowledged": sorted(acknowledged), "acknowledged_at": read_at}
        for q, cut in sorted(cuts.items()):
            decision = _decision(Kind.CUT, fence, rests_on, {**evidence, "leader_epoch": cut.leader_epoch})
            self._journal.note(replace(decision, partition=q, last_offset=cut.end))

    def _raised(self, fence: FenceRecord, offset: int, before: TopicRecord | None) -> None:
        is_change = before is None or fence.following != before.layout.epochs[-1]
        what_for = CHANGE if is_change else QUESTION
        self._fences[fence.topic] = (fence, offset, what_for)
        standing = {each.id for each, _, _ in self._fences.values()}
        self._acknowledged = {each: of for each, of in self._acknowledged.items() if each in standing}
        evidence = {"members": sorted(self._members()), "sealed": sorted(fence.sealed), "kind": what_for}
        self._journal.note(_decision(Kind.FENCE, fence, offset, evidence))

    def _committed(self, layout: Layout, offset: int) -> None:
        fence = self._fences.get(layout.topic)
        is_new = fence is not None and fence[0].following == layout.epochs[-1] and fence[2] == CHANGE
        fence_id = fence[0].id if fence is not None and is_new else None
        self._journal.note(
            Decision(
                kind=Kind.COMMIT,
                topic=layout.topic,
                fence=fence_id,
                layout_epoch=layout.epoch,
                layouts_offset=offset,
                evidence=evidence_of(layout) if self._journal.is_on else {},
            )
        )

    def _ended(self, topic: str, offset: int, *, cancelled: bool) -> None:
        fence, _, what_for = self._fences.pop(topic, (None, -1, ""))
        if fence is None:
            return
        self._acknowledged.pop(fence.id, None)
        if cancelled:
            self._journal.note(_decision(Kind.CANCEL, fence, offset, {"kind": what_for}))


def _lays(records: Records, topic: str) -> bool:
    """Whether a transaction brings a layout of a topic. If so, a fence that ends in it has led to that layout."""
    return any(isinstance(value, TopicRecord) and value.layout.topic == topic for _, value in records)


def _decision(kind: Kind, fence: FenceRecord, offset: int, evidence: Mapping[str, object]) -> Decision:
    return Decision(
        kind=kind,
        topic=fence.topic,
        fence=fence.id,
        layout_epoch=fence.following.number,
        layouts_offset=offset,
        evidence=evidence,
    )


def evidence_of(layout: Layout) -> Mapping[str, object]:
    """Returns the evidence of a decision about a layout: the whole layout, as the layouts topic has it."""
    return {"layout": LAYOUT_JSON.dump_python(layout, mode="json")}
