"""Random histories in which everything holds: layouts that change, writers that move with their streams, readers.

What a proxy would have decided, and what would stand in the topics: the rules of the auditor must find nothing in it.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any
from uuid import UUID

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import JANITOR
from kordon.proxy.ordering.layout import Layout
from kordon.testing.rule_batches import batch, read, tagged
from kordon.testing.rule_plays import Row, decided

_SEQUENCES = 1 << 31


class History:
    """One topic through a few changes of its layout.

    Args:
        topic: Its name.
        seed: Of all chance.
    """

    def __init__(self, topic: str, seed: int) -> None:
        self.batches: list[Row] = []
        self.decisions: list[Row] = []
        self._random = Random(seed)  # noqa: S311 - chance that comes again
        n = self._random.choice([1, 2, 3])
        make = self._random.choice([Layout.created, Layout.unmanaged])
        self.layout = make(topic, UUID(int=seed), n, n * 4)
        self._ends = Counter[int]()
        self._written: dict[tuple[int, int], tuple[int, int, int]] = {}
        """By stream and producer: its next sequence, as it counts and at its home; and that home's move."""
        self._stood: dict[tuple[int, int], tuple[Stay, int]] = {}
        """By connection and stream: the stay that it reads, and where it goes on."""
        if not self.layout.is_managed:
            self._fill_untagged()
        for _ in range(self._random.randint(2, 4)):
            self._go_on()
            self._change()
        self._go_on()

    @property
    def read_to(self) -> list[Row]:
        """How far all partitions are read in the end."""
        partitions = {segment.id.partition for segment in self.layout.segments} | set(self._ends)
        return [read(q, self._ends[q], topic=self.layout.topic) for q in sorted(partitions)]

    def _put(self, row: dict[str, Any]) -> int:
        offset = self._ends[row["partition"]]
        span = row["records"]
        row.update(topic=self.layout.topic, base_offset=offset, last_offset=offset + span - 1)
        self._ends[row["partition"]] += span
        self.batches.append(row)
        return offset

    def _decide(self, kind: str, **fields: Any) -> None:
        self.decisions.append(decided(kind, 0, topic=self.layout.topic, layout_epoch=self.layout.epoch, **fields))

    def _fill_untagged(self) -> None:
        for q in range(self.layout.n):
            for _ in range(self._random.randint(0, 3)):
                self._put(batch(q, 0, self._random.randint(1, 5)))
        self.layout = self.layout.changed(self.layout.next_epoch(self.layout.n), dict(self._ends) | self._none())

    def _none(self) -> dict[int, int]:
        return {q: self._ends[q] for q in range(self.layout.v_count)}

    def _go_on(self) -> None:
        for _ in range(self._random.randint(5, 15)):
            v = self._random.randrange(self.layout.v_count)
            if self._random.random() < 0.6:
                self._write(v, self._random.choice([7, 8]))
            elif self._random.random() < 0.7:
                self._read(self._random.choice([1, 2]), v)
            else:
                q = self._random.randrange(self.layout.u)
                noise = batch(q, 0, is_control=True), tagged(JANITOR, self.layout.epoch, q, 0)
                self._put(self._random.choice(noise))

    def _write(self, v: int, producer: int, *, late: Stay | None = None) -> None:
        """Writes to a stream's home; or late, to the one before: nobody is told, and it is written again."""
        home = late or self.layout.chains[v].stays[-1]
        following, here, move = self._written.get((v, producer), (0, 0, -1))
        here = here if move == home.move else 0
        records = self._random.randint(1, 5)
        row = tagged(v, home.move, home.partition, 0, records, sequence=here, producer=producer)
        offset = self._put(row)
        if late is not None:
            return
        self._written[v, producer] = (following + records, here + records, home.move)
        if self._random.random() < 0.9:  # or its answer got lost
            told = {"first_sequence": following, "last_sequence": following + records - 1, "batches": 1}
            place = {"stream": v, "move": home.move, "partition": home.partition}
            offsets = {"first_offset": offset, "last_offset": offset + records - 1}
            self._decide("admit", producer_id=producer, producer_epoch=0, **told, **place, **offsets)

    def _read(self, connection: int, v: int) -> None:
        """Reads on to the end of a stay that is over, or to somewhere in one that is not."""
        chain = self.layout.chains[v]
        stood, position = self._stood.get((connection, v), (chain.stays[0], chain.stays[0].start))
        place = next(i for i, each in enumerate(chain.stays) if _same(each, stood))
        stay = chain.stays[place]
        end = self._ends[stay.partition] if stay.end is None else stay.end
        if position < end:
            its_own = [each for each in self.batches if self._is_of(each, v, stay) and each["base_offset"] >= position]
            told = {"stream": v, "move": stay.move, "partition": stay.partition, "connection": connection}
            count = sum(each["records"] for each in its_own if each["base_offset"] < end)
            self._decide("deliver", first_offset=position, last_offset=end - 1, records=count, **told)
            position = end
        if stay.end is not None and position >= stay.end and place + 1 < len(chain.stays):
            stay = chain.stays[place + 1]
            position = stay.start
        self._stood[connection, v] = stay, position

    def _is_of(self, row: Row, v: int, stay: Stay) -> bool:
        its_own = (row.get("v"), row.get("move")) == (v, stay.move) if stay.tagged else True
        return row["partition"] == stay.partition and its_own and stay.holds(row["base_offset"])

    def _change(self) -> None:
        layout = self.layout
        if self._random.random() < 0.2:
            following = layout.next_epoch(layout.u, renewed=[self._random.choice(sorted(layout.open_segments))])
        else:
            following = layout.next_epoch(self._random.randint(layout.n, layout.v_count))
        homes = {v: layout.chains[v].stays[-1] for v in layout.movers(following) if layout.chains[v].stays}
        self.layout = layout.changed(following, self._none())
        for v in self._random.sample(sorted(homes), min(2, len(homes))):
            self._write(v, 7, late=homes[v])  # strays


def _same(one: Stay, other: Stay) -> bool:
    return (one.partition, one.move, one.tagged) == (other.partition, other.move, other.tagged)


def numbered(decisions: list[Row]) -> list[Row]:
    """Gives decisions the numbers of one worker, in their order."""
    return [{**each, "number": number} for number, each in enumerate(decisions)]
