"""How layouts change on the made-up day: the steps of workers and of the controller, and what clients see of it.

At the beginning every worker joins, its lease begins, and it goes on under the first layouts. At each change there are
a fence, acknowledgements, cuts and a layout; clients learn it, and streams move. One fence is raised when nobody knows
yet that a worker has just been killed: its lease has ended by the time of the cuts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kordon.bench.audit_day import Day
from kordon.bench.audit_topics import LAYOUT_AT, Phase, Topic
from kordon.bench.audit_traffic import ADMITTED, GIVEN, Readers, connection, positions, readers_of
from kordon.codecs import apis
from kordon.codecs.decision import Decision, Kind
from kordon.proxy.ordering.layout import LAYOUT_JSON, Layout

BEFORE: Final = 0
"""Slots of a round, among those of `audit_traffic.py`: before all else …"""
OPENED: Final = ADMITTED + 1
"""… before readers are given anything …"""
AFTER: Final = GIVEN + 1
"""… and behind all of it."""
_FENCE_AT: Final = LAYOUT_AT - 4
_CONTROLLER: Final = 0


class Step(NamedTuple):
    """A decision, and who takes it when."""

    worker: int
    at: int
    slot: int
    decision: Decision


def worker_name(worker: int) -> str:
    """Returns the incarnation of a worker."""
    return f"w{worker}"


def client(number: int) -> dict[str, Any]:
    """Returns the fields of a producer, by its connection."""
    return {"connection": number, "client_id": f"shop-{number}", "principal": "User:shop"}


def reader(day: Day, readers: Readers, member: int, at: int) -> dict[str, Any]:
    """Returns the fields of a member of a group."""
    name = f"{readers.group}-{member}"
    number = int(connection(day, member, at, visits=not readers.is_dialect))
    its_own = {"connection": number, "client_id": name, "principal": f"User:{readers.group}"}
    return {**its_own, "group_id": readers.group, "generation_id": 1 + (at >= day.killed_at), "member_id": name}


def layout_of(layout: Layout, offset: int) -> dict[str, Any]:
    """Returns the fields that tell under which layout something was decided."""
    return {"topic": layout.topic, "layout_epoch": layout.epoch, "layouts_offset": offset}


def beginning(day: Day, topics: Sequence[Topic]) -> Iterator[Step]:
    """Yields what there is before the first round."""
    for worker in range(day.workers):
        yield Step(worker, 0, BEFORE, _joined(range(day.workers), worker, 1, 0))
        yield Step(worker, 0, BEFORE, Decision(kind=Kind.LEASE, reason="alive", generation_id=1, layouts_offset=0))
    for topic in topics:
        phase = topic.phases[0]
        yield Step(_CONTROLLER, 0, BEFORE, _written_down(Kind.COMMIT, phase))
        for worker in range(day.workers):
            yield Step(worker, 0, BEFORE, _written_down(Kind.ADOPT, phase))


def _joined(alive: Sequence[int], worker: int, generation: int, offset: int) -> Decision:
    evidence = {"members": [worker_name(each) for each in alive], "leads": worker == _CONTROLLER}
    member_id = f"kordon-{worker}"
    told: dict[str, Any] = {"generation_id": generation, "member_id": member_id, "layouts_offset": offset}
    return Decision(kind=Kind.JOIN, evidence=evidence, **told)


def _written_down(kind: Kind, phase: Phase, fence: str | None = None) -> Decision:
    layout = {"layout": LAYOUT_JSON.dump_python(phase.layout, mode="json")}
    return Decision(kind=kind, fence=fence, evidence=layout, **layout_of(phase.layout, phase.layouts_offset))


class Change:
    """One change of the layout of a topic, from one phase to the next."""

    def __init__(self, day: Day, topic: Topic, before: Phase, after: Phase) -> None:
        self._day = day
        self._topic = topic
        self._before = before
        self._after = after
        self._at = after.first
        self._alive = [each for each in range(day.workers) if each != day.killed or self._at < day.killed_at]
        self._fence = f"f-{topic.number}-{after.layout.epoch}"
        self._fenced_at = after.layouts_offset - LAYOUT_AT + _FENCE_AT
        self._change = before.layout.change_to(after.layout.epochs[-1])

    def steps(self) -> Iterator[Step]:
        """Yields all of it."""
        yield Step(_CONTROLLER, self._at, BEFORE, self._raised())
        yield from self._by_all(self._held())
        if self._at == self._day.killed_at:
            for worker in self._alive:
                yield Step(worker, self._at, BEFORE, _joined(self._alive, worker, 2, self._fenced_at))
        for decision in (*self._cuts(), _written_down(Kind.COMMIT, self._after, self._fence)):
            yield Step(_CONTROLLER, self._at, BEFORE, decision)
        yield from self._by_all([_written_down(Kind.ADOPT, self._after)])
        yield from self._told()
        yield from self._moved()
        yield from self._gates()

    def _by_all(self, decisions: Sequence[Decision]) -> Iterator[Step]:
        for worker in self._alive:
            yield from (Step(worker, self._at, BEFORE, each) for each in decisions)

    def _raised(self) -> Decision:
        members = range(self._day.workers) if self._at == self._day.killed_at else self._alive
        evidence = {"members": [worker_name(each) for each in members], "sealed": sorted(self._change.sealed)}
        place = layout_of(self._after.layout, self._fenced_at)
        return Decision(kind=Kind.FENCE, fence=self._fence, evidence={**evidence, "kind": "change"}, **place)

    def _held(self) -> Sequence[Decision]:
        place: dict[str, Any] = {"fence": self._fence, **layout_of(self._before.layout, self._fenced_at)}
        held = Decision(kind=Kind.HOLD, reason="fence", evidence={"sealed": sorted(self._change.sealed)}, **place)
        return held, Decision(kind=Kind.ACKNOWLEDGE, **place)

    def _cuts(self) -> Iterator[Decision]:
        names = [worker_name(each) for each in self._alive]
        read_at = {name: self._fenced_at + place for place, name in enumerate(names) if place != _CONTROLLER}
        evidence = {"members": names, "acknowledged": names, "acknowledged_at": read_at, "leader_epoch": 0}
        place = layout_of(self._after.layout, max(self._fenced_at, *read_at.values()))
        for q in sorted(self._change.touched):
            cut: dict[str, Any] = {"partition": q, "last_offset": int(self._after.base[q]), "fence": self._fence}
            yield Decision(kind=Kind.CUT, evidence=evidence, **cut, **place)

    def _told(self) -> Iterator[Step]:
        """Producers ask where streams are, and learn the new layout."""
        layout, day = self._after.layout, self._day
        shown = layout.u if self._topic.is_dialects else layout.v_count
        evidence = {"known_epoch": self._before.layout.epoch, "undeleted_partition_count": layout.u, "told": shown}
        place: dict[str, Any] = {"api_key": apis.METADATA, **layout_of(layout, self._after.layouts_offset)}
        for producer in range(day.producers):
            its_own = client(int(connection(day, producer, self._at)))
            told = Decision(kind=Kind.REDIRECT, reason="metadata", evidence=evidence, **its_own, **place)
            yield Step(int(day.works_for(producer, self._at)), self._at, BEFORE, told)

    def _moved(self) -> Iterator[Step]:
        """Streams go elsewhere, as the workers see that get their first write."""
        before, after = (self._homes(each) for each in (self._before, self._after))
        place: dict[str, Any] = {
            "api_key": apis.PRODUCE,
            **layout_of(self._after.layout, self._after.layouts_offset),
        }
        for v in sorted(before.keys() & after.keys()):
            if before[v] != after[v]:
                evidence = dict(zip(("from_partition", "from_move"), before[v], strict=True))
                home: dict[str, Any] = {"stream": v, "partition": after[v][0], "move": after[v][1]}
                why: dict[str, Any] = {"rule": "LATE-BINDING", "reason": "moved", "evidence": evidence}
                told = Decision(kind=Kind.REDIRECT, **why, **home, **place)
                producer = self._day.producer(v, self._topic.number, self._at)
                yield Step(int(self._day.works_for(producer, self._at)), self._at, BEFORE, told)

    @staticmethod
    def _homes(phase: Phase) -> dict[int, tuple[int, int]]:
        columns = (each.tolist() for each in (phase.written.stream, phase.written.partition, phase.written.move))
        return {stream: (partition, move) for stream, partition, move in zip(*columns, strict=True)}

    def _gates(self) -> Iterator[Step]:
        """Readers of the dialect wait until their group has read what their keys were in before."""
        layout = self._after.layout
        ends = {each.id: each.end for each in layout.segments}
        shown = {str(q): at for q, at in positions(self._topic, self._at).items()}
        for readers in (each for each in readers_of(self._day) if each.is_dialect):
            for q in sorted(self._change.opened):
                before = layout.open_segments[q].predecessors
                if asks := {str(each.partition): ends[each] for each in before if each.partition != q}:
                    yield self._gate(readers, q, Kind.HOLD, {"asks": asks})
                    yield self._gate(readers, q, Kind.RELEASE, {"positions": shown, "held_ms": 40})

    def _gate(self, readers: Readers, q: int, kind: Kind, evidence: dict[str, object]) -> Step:
        layout, member = self._after.layout, int(readers.member(-1 - q))
        home: dict[str, Any] = {"stream": -1 - q, "partition": q, "move": layout.epoch}
        its_own = reader(self._day, readers, member, self._at)
        place = layout_of(layout, self._after.layouts_offset)
        why: dict[str, Any] = {"api_key": apis.FETCH, "rule": "PARENT-FIRST", "reason": "gate"}
        decision = Decision(kind=kind, evidence=evidence, **its_own, **home, **place, **why)
        return Step(int(self._day.works_for(member, self._at)), self._at, OPENED, decision)
