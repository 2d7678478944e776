"""Traffic of a topic as it continued in time: rates, and how far the foremost reader was behind."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from kordon.spark_jobs.report.tables import Row

MOST_COLUMNS: Final = 480


@dataclass(frozen=True, slots=True)
class Clock:
    """The points in time of a topic's pictures."""

    start_ms: int
    width_ms: int
    count: int

    @classmethod
    def of(cls, traffic: Sequence[Row], low_ms: int, high_ms: int) -> Clock:
        """Returns the one that covers a span of time, as fine as the traffic is known."""
        width = max((int(row["width_ms"]) for row in traffic), default=1000)
        while (high_ms - low_ms) // width >= MOST_COLUMNS:
            width *= 2
        start = low_ms - low_ms % width
        return cls(start, width, max(2, (high_ms - start) // width + 1))

    @property
    def end_ms(self) -> int:
        """The time at which the last one ends."""
        return self.start_ms + self.width_ms * self.count

    def place(self, at_ms: int) -> int:
        """Returns the number of the one that a time lies in."""
        return min(max((at_ms - self.start_ms) // self.width_ms, 0), self.count - 1)


def sums(traffic: Iterable[Row], column: str, clock: Clock) -> list[int]:
    """Returns a column's sum for each point in time."""
    found = [0] * clock.count
    for row in traffic:
        found[clock.place(row["bucket_ms"])] += row[column] or 0
    return found


def per_second(counts: Iterable[int], clock: Clock) -> list[float]:
    """Returns counts as rates."""
    return [count * 1000 / clock.width_ms for count in counts]


def lag(traffic: Sequence[Row], clock: Clock) -> tuple[list[int], dict[int, int]]:
    """Returns how many records the foremost reader is behind, over time, and by stream at the end.

    What was written and what was delivered name offsets of physical partitions. A stream's writes in order give each
    of these offsets its number of records, so both can be compared; within a range a straight line is assumed. Streams
    that nobody has read are left out.
    """
    streams: dict[int, list[Row]] = defaultdict(list)
    for row in sorted(traffic, key=lambda row: row["bucket_ms"]):
        streams[row["stream"]].append(row)
    physical = {~stream: rows for stream, rows in streams.items() if stream < 0}
    whole, last = [0] * clock.count, dict[int, int]()
    for stream, rows in streams.items():
        behind = _Stream(rows, clock).behind(rows, {} if stream < 0 else physical)
        if behind is not None:
            last[stream] = behind[-1]
            whole = [so_far + more for so_far, more in zip(whole, behind, strict=True)]
    return whole, last


class _Stream:
    """The writes of one stream: which place (move, partition, offset) has how many records up to it."""

    def __init__(self, rows: Iterable[Row], clock: Clock) -> None:
        self._clock = clock
        written = [row for row in rows if row["admitted_records"] and row["admitted_to"] is not None]
        counts = list(accumulate(row["admitted_records"] for row in written))
        steps = sorted(
            (
                (row["move"] or 0, row["admitted_to"], row["partition"], count)
                for row, count in zip(written, counts, strict=True)
            )
        )
        self._keys: list[tuple[int, int]] = [(move, offset) for move, offset, _, _ in steps]
        self._counts: list[int] = list(accumulate((count for *_, count in steps), max))
        self._homes: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for (_, offset, partition, _), count in zip(steps, self._counts, strict=True):
            self._homes[partition].append((offset, count))
        self._written = [0] * clock.count
        for row, count in zip(written, counts, strict=True):
            self._written[clock.place(row["bucket_ms"])] = count
        self._written = list(accumulate(self._written, max))

    def behind(self, rows: Iterable[Row], physical: Mapping[int, Sequence[Row]]) -> list[int] | None:
        """Returns over time what nobody has read yet; None if nobody reads it at all."""
        read = [0] * self._clock.count
        is_read = False
        for row in rows:
            if row["delivered_to"] is not None:
                is_read = True
                place = self._clock.place(row["bucket_ms"])
                read[place] = max(read[place], self._up_to((row["move"] or 0, row["delivered_to"])))
        for partition in self._homes.keys() & physical.keys():
            for row in physical[partition]:
                if row["delivered_to"] is not None:
                    is_read = True
                    place = self._clock.place(row["bucket_ms"])
                    read[place] = max(read[place], self._up_to_there(partition, row["delivered_to"]))
        if not is_read:
            return None
        return [max(0, written - got) for written, got in zip(self._written, accumulate(read, max), strict=True)]

    def _up_to(self, key: tuple[int, int]) -> int:
        place = bisect_right(self._keys, key)
        before = self._counts[place - 1] if place else 0
        if place == len(self._keys) or self._keys[place][0] != key[0]:
            return before
        start = self._keys[place - 1][1] if place and self._keys[place - 1][0] == key[0] else None
        if start is None:
            return before
        share = (key[1] - start) / (self._keys[place][1] - start)
        return before + round(share * (self._counts[place] - before))

    def _up_to_there(self, partition: int, offset: int) -> int:
        reached: list[int] = [count for to, count in self._homes[partition] if to <= offset]
        return max(reached, default=0)
