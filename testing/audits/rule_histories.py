"""Random histories in which everything holds: layouts that change, writers that move with their streams, readers.

What two proxies would have decided, and what would stand in the topics: the rules of the auditor must find nothing in
it. `rule_mishaps.py` has the like in which promises are broken.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Final
from uuid import UUID

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import JANITOR
from kordon.proxy.ordering.layout import LAYOUT_JSON, Layout
from kordon.proxy.ordering.segments import Segment
from kordon.testing.audits.rule_batches import batch, read, tagged
from kordon.testing.audits.rule_plays import Row, decided

LEADER: Final = "leader"
OTHER: Final = "other"
_DIALECT: Final = 3
"""The connection of a client of the dialect; the others, 1 and 2, are readers of virtual partitions."""
_FENCE: Final = 2
"""Place, among the layouts topic's records of one change, of the fence; the layout's is `_COMMIT`."""
_COMMIT: Final = 6
_PER_CHANGE: Final = 10


class History:
    """One topic through a few changes of its layout, with two workers of its own.

    Args:
        changes: At least, and at most.
    """

    def __init__(self, topic: str, seed: int, changes: tuple[int, int] = (2, 4)) -> None:
        self.batches: list[Row] = []
        self.decisions: list[Row] = []
        """In an order in which they may have been taken; those of one worker by their numbers."""
        self.layouts: dict[int, Layout] = {}
        """By the offset of the layouts topic at which each stands."""
        self.random = Random(seed)  # noqa: S311 - chance that comes again
        n = self.random.choice([1, 2, 3])
        make = self.random.choice([Layout.created, Layout.unmanaged])
        self.layout = make(topic, UUID(int=seed), n, n * 4)
        self.ends = Counter[int]()
        self.numbers = Counter[str]()
        self._offset = 0
        """Of the newest layout in the layouts topic."""
        self.written: dict[tuple[int, int], tuple[int, int, int]] = {}
        """By stream and producer: its next sequence, as it counts and at its home; and that home's move."""
        self.stood: dict[tuple[int, int], tuple[Stay, int]] = {}
        """By connection and stream: the stay that it reads, and where it goes on."""
        self.positions: dict[int, int] = {}
        """Of the dialect's reader, by physical partition."""
        if not self.layout.is_managed:
            self._fill_untagged()
        self._told("commit")
        for _ in range(self.random.randint(*changes)):
            self.go_on()
            self.change()
        self.go_on()

    @property
    def read_to(self) -> list[Row]:
        """How far all partitions are read in the end."""
        partitions = {segment.id.partition for segment in self.layout.segments} | set(self.ends)
        return [read(q, self.ends[q], topic=self.layout.topic) for q in sorted(partitions)]

    def put(self, row: dict[str, Any]) -> int:
        """Appends a batch to its partition; returns its offset."""
        offset = self.ends[row["partition"]]
        span = row["records"]
        row.update(topic=self.layout.topic, base_offset=offset, last_offset=offset + span - 1)
        self.ends[row["partition"]] += span
        self.batches.append(row)
        return offset

    def decide(self, kind: str, who: str = LEADER, **fields: Any) -> None:
        """Adds a decision of a worker, under the layout in force."""
        topic = self.layout.topic
        told: dict[str, Any] = {
            "topic": topic,
            "layout_epoch": self.layout.epoch,
            "layouts_offset": self._offset,
            **fields,
        }
        self.decisions.append(decided(kind, self.numbers[who], worker=f"{topic}-{who}", **told))
        self.numbers[who] += 1

    def go_on(self) -> None:
        """Some writes and reads."""
        for _ in range(self.random.randint(5, 15)):
            self.step(self.random.randrange(self.layout.v_count))

    def step(self, v: int) -> None:
        """Something that concerns a virtual partition."""
        chance = self.random.random()
        if chance < 0.6:
            self.write(v, self.random.choice([7, 8]))
        elif chance < 0.85:
            self.read(self.random.choice([1, 2]), v)
        elif chance < 0.92:
            self.read_physical(self.random.choice(sorted(self.layout.segments, key=lambda each: each.id.epoch)))
        else:
            q = self.random.randrange(self.layout.u)
            noise = batch(q, 0, is_control=True), tagged(JANITOR, self.layout.epoch, q, 0)
            self.put(self.random.choice(noise))

    def write(self, v: int, producer: int, *, late: Stay | None = None) -> None:
        """Writes to a stream's home; or late, to the one before: nobody is told, and it is written again."""
        home = late or self.layout.chains[v].stays[-1]
        following, here, move = self.written.get((v, producer), (0, 0, -1))
        here = here if move == home.move else 0
        offset, count = 0, self.random.randint(1, 2)
        records = [self.random.randint(1, 5) for _ in range(count)]
        for place, each in enumerate(records):
            at = here + sum(records[:place])
            stands = self.put(tagged(v, home.move, home.partition, 0, each, sequence=at, producer=producer))
            offset = stands if not place else offset
        if late is not None:
            return
        self.written[v, producer] = (following + sum(records), here + sum(records), home.move)
        if self.random.random() < 0.9:  # or its answer got lost
            self.admit(v, producer, home, (following, sum(records)), (offset, self.ends[home.partition] - 1))

    def admit(
        self, v: int, producer: int, home: Stay, sequences: tuple[int, int], offsets: tuple[int, int], **fields: Any
    ) -> None:
        """Acknowledges (first, count) sequences at (first, last) offsets of a stay."""
        told = {"first_sequence": sequences[0], "last_sequence": sum(sequences) - 1, "batches": 1}
        place = {"stream": v, "move": home.move, "partition": home.partition}
        at = {"first_offset": offsets[0], "last_offset": offsets[1]}
        who = OTHER if producer % 2 else LEADER
        self.decide("admit", who, producer_id=producer, producer_epoch=0, **told, **place, **at, **fields)

    def read(self, connection: int, v: int) -> None:
        """Reads on to the end of a stay that is over, or to somewhere in one that is not."""
        chain = self.layout.chains[v]
        stood, position = self.stood.get((connection, v), (chain.stays[0], chain.stays[0].start))
        place = next(i for i, each in enumerate(chain.stays) if _same(each, stood))
        stay = chain.stays[place]
        end = self.ends[stay.partition] if stay.end is None else stay.end
        if position < end:
            its_own = [each for each in self.batches if self._is_of(each, v, stay) and each["base_offset"] >= position]
            count = sum(each["records"] for each in its_own if each["base_offset"] < end)
            self.deliver(connection, v, stay, (position, end - 1), count)
            position = end
        if stay.end is not None and position >= stay.end and place + 1 < len(chain.stays):
            stay = chain.stays[place + 1]
            position = stay.start
        self.stood[connection, v] = stay, position

    def deliver(self, connection: int, v: int, stay: Stay, offsets: tuple[int, int], records: int) -> None:
        """Hands records of a stay to a connection."""
        told = {"stream": v, "move": stay.move, "partition": stay.partition, "connection": connection}
        who = OTHER if connection % 2 else LEADER
        self.decide("deliver", who, first_offset=offsets[0], last_offset=offsets[1], records=records, **told)

    def read_physical(self, segment: Segment, *, gated: bool = True) -> None:
        """Reads a segment to its end, if all of those before are done; the dialect's reader goes on in their order."""
        q, end = segment.id.partition, segment.kept_end
        end = self.ends[q] if end is None else end
        position = max(self.positions.get(q, 0), segment.start)
        before = [each for each in self.layout.segments if each.id.partition == q and each.id.epoch < segment.id.epoch]
        in_order = all(self.positions.get(q, 0) >= (each.end or 0) for each in before)
        if not in_order or position >= end or (gated and not self._is_open(segment)):
            return
        told: dict[str, Any] = {
            "stream": ~q,
            "move": segment.id.epoch,
            "partition": q,
            "connection": _DIALECT,
            "group_id": "group",
        }
        evidence = {"positions": {str(p): at for p, at in self.positions.items()}}
        records = sum(each["records"] for each in self.batches if self._is_shown(each, q, position, end))
        self.decide("deliver", first_offset=position, last_offset=end - 1, records=records, evidence=evidence, **told)
        self.positions[q] = end

    def _is_open(self, segment: Segment) -> bool:
        by_id = {each.id: each for each in self.layout.segments}
        before = [by_id[each] for each in segment.predecessors]
        others = [each for each in before if each.id.partition != segment.id.partition]
        return all(self._is_done(each) for each in others) and all(self._is_open(each) for each in before)

    def _is_done(self, segment: Segment) -> bool:
        end = segment.kept_end
        return end is not None and (end == segment.start or self.positions.get(segment.id.partition, 0) >= end)

    def _is_shown(self, row: Row, q: int, first: int, end: int) -> bool:
        """Whether clients of the dialect see a batch: neither strays nor what is no data."""
        v, is_data = row.get("v"), not row["is_control"] and row.get("v") != JANITOR
        if row["partition"] != q or not first <= row["base_offset"] < end or not is_data:
            return False
        stays = self.layout.chains[v].stays if v is not None and v < self.layout.v_count else ()
        return v is None or v > JANITOR or any(self._is_of(row, v, stay) for stay in stays)

    def _is_of(self, row: Row, v: int, stay: Stay) -> bool:
        its_own = (row.get("v"), row.get("move")) == (v, stay.move) if stay.tagged else True
        return row["partition"] == stay.partition and its_own and stay.holds(row["base_offset"])

    def change(self) -> None:
        """Seals what a change of the layout needs, and goes on by the next one."""
        layout = self.layout
        if self.random.random() < 0.2:
            following = layout.next_epoch(layout.u, renewed=[self.random.choice(sorted(layout.open_segments))])
        else:
            following = layout.next_epoch(self.random.randint(layout.n, layout.v_count))
        homes = {v: layout.chains[v].stays[-1] for v in layout.change_to(following).movers if layout.chains[v].stays}
        self.fence(following.number, sorted(layout.change_to(following).sealed))
        self.layout = layout.changed(following, self._none())
        self._told("commit", fence=f"f{following.number}")
        for v in self.random.sample(sorted(homes), min(2, len(homes))):
            self.write(v, 7, late=homes[v])  # strays

    def fence(self, epoch: int, sealed: Sequence[int]) -> None:
        """Stops the writers of some partitions, and reads where these end."""
        topic = self.layout.topic
        members = [f"{topic}-{LEADER}", f"{topic}-{OTHER}"]
        at = self._offset + _FENCE
        told: dict[str, Any] = {"fence": f"f{epoch}", "layouts_offset": at}
        self.decide("fence", layout_epoch=epoch, evidence={"members": members, "sealed": sealed}, **told)
        for who in self.acknowledging():
            self.decide("acknowledge", who, **told)
        evidence = {"members": members, "acknowledged": members, "acknowledged_at": {members[1]: at + 1}}
        told["layouts_offset"] = at + 1
        for q in sealed:
            cut: dict[str, Any] = {"partition": q, "last_offset": self.ends[q], "evidence": evidence}
            self.decide("cut", layout_epoch=epoch, **told, **cut)

    def acknowledging(self) -> Sequence[str]:
        """Who says that it holds a fence."""
        return LEADER, OTHER

    def _told(self, kind: str, **fields: Any) -> None:
        self._offset += _COMMIT if self.layouts else _PER_CHANGE
        self.layouts[self._offset] = self.layout
        self.decide(kind, **fields)
        for who in (LEADER, OTHER):
            self.decide("adopt", who)

    def _fill_untagged(self) -> None:
        for q in range(self.layout.n):
            for _ in range(self.random.randint(0, 3)):
                self.put(batch(q, 0, self.random.randint(1, 5)))
        self.layout = self.layout.changed(self.layout.next_epoch(self.layout.n), dict(self.ends) | self._none())

    def _none(self) -> dict[int, int]:
        return {q: self.ends[q] for q in range(self.layout.v_count)}


def lines_of(history: History) -> list[bytes]:
    """Returns the decisions as they stand in the log, with the layouts that they tell of."""
    told: list[dict[str, Any]] = [{"schema": 1, **row} for row in history.decisions]
    for row in told:
        row["evidence"] = json.loads(row["evidence"] or "null")
        if row["kind"] in {"commit", "adopt"}:
            row["evidence"] = {"layout": LAYOUT_JSON.dump_python(history.layouts[row["layouts_offset"]], mode="json")}
    return [json.dumps(row).encode() for row in told]


def _same(one: Stay, other: Stay) -> bool:
    return (one.partition, one.move, one.tagged) == (other.partition, other.move, other.tagged)
