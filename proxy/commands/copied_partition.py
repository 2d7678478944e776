"""How far one partition of a topic is copied, and what is written next (docs/why/copies.md). No I/O.

    log of the target      … written ┊ written + 1 … written + count
    offsets of the source  … ┊ begin                        … end ┊ …
                              ├── the batch that is on its way ───┤

Every record of the copy has one offset in the target, from 0 on. So the offset behind them is their number, and the
sequence of the next batch: a broker appends it there or nowhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, NamedTuple, Self

from kordon.proxy.core.errors import KordonError
from kordon.proxy.kafka.batches import BatchIdentity, Copy

_MARK: Final = "kordon-copy-1"
_FIELDS: Final = 6
_MOST_SEQUENCE: Final = 0x7FFFFFFF


class CopyStopped(KordonError):  # noqa: N818 - what is told to whoever copies
    """Raised when a copy cannot continue by itself; the message says why and what to do."""


class SourceRecord(NamedTuple):
    """A record as it stands in the source."""

    offset: int
    codec: int
    """By which its batch is compressed."""
    size: int
    """Most bytes that it takes in a batch."""
    copy: Copy


@dataclass(frozen=True, slots=True)
class CopyPlace:
    """How far a partition is copied; written down before a batch is sent, so that it is known what may be on its way.

    Attributes:
        source_id: The id of the topic that is copied.
        producer_id: The producer id with which the copy writes, in all of its runs.
        written: Records that are in the target for sure.
        begin: The offset of the source from which on nothing is written for sure.
        count: Records of the batch that may be on its way; 0: none is.
        end: The offset behind that batch in the source.
    """

    source_id: str
    producer_id: int
    written: int
    begin: int
    count: int
    end: int

    @property
    def identity(self) -> BatchIdentity:
        """Who writes the next batch."""
        return BatchIdentity(self.producer_id, 0, self.written & _MOST_SEQUENCE)

    def dump(self) -> str:
        """Returns what is committed beside `written`."""
        return " ".join(map(str, (_MARK, self.source_id, self.producer_id, self.begin, self.count, self.end)))

    @classmethod
    def load(cls, written: int, text: str) -> Self:
        """Reads what was committed.

        Raises:
            ValueError: No copy has committed this.
        """
        fields = text.split()
        if len(fields) != _FIELDS or fields[0] != _MARK:
            raise ValueError(f"no place of a copy: {text[:100]}")
        producer_id, begin, count, end = map(int, fields[2:])
        if min(producer_id, begin, count, written) < 0 or end < begin + count:
            raise ValueError(f"no place of a copy: {text[:100]}")
        return cls(fields[1], producer_id, written, begin, count, end)

    def sending(self, records: Sequence[SourceRecord]) -> Self:
        """Returns the place while these records are on their way."""
        return replace(self, count=len(records), end=records[-1].offset + 1)

    def sent(self) -> Self:
        """Returns the place once what was on its way is written."""
        return replace(self, written=self.written + self.count, begin=self.end, count=0)

    def resumed(self, log_end: int) -> Self:
        """Returns the place by where the target ends, after nobody knows what became of what was on its way.

        Raises:
            ValueError: The target does not end where this copy may have left it.
        """
        if log_end == self.written + self.count:
            return self.sent()
        if log_end == self.written:
            return self
        raise ValueError(f"ends at {log_end}, not at {self.written} or {self.written + self.count}")


class CopiedPartition:
    """What of a partition has been read and is to be written.

    Attributes:
        place: How far it is copied.
        read_to: The offset of the source that is read next.
        end: Where the source ended when it was read last; None: it has not been read yet.
        waiting_bytes: Bytes that have been read and not yet taken.
    """

    def __init__(self, place: CopyPlace) -> None:
        self.place = place
        self.read_to = place.begin
        self.end: int | None = None
        self.waiting_bytes = 0
        self._waiting: deque[SourceRecord] = deque()

    @property
    def copied_to(self) -> int:
        """The offset of the source up to which all is copied for sure."""
        return self.place.begin if self._waiting or self.place.count else self.read_to

    @property
    def to_go(self) -> int:
        """Offsets of the source that are not copied yet; there are no more records than that."""
        return max((self.end or 0) - self.copied_to, 0)

    def add(self, records: Iterable[SourceRecord], next_offset: int, end: int | None) -> None:
        """Takes in what was read from `read_to` on."""
        new = [record for record in records if record.offset >= self.read_to]
        self._waiting.extend(new)
        self.waiting_bytes += sum(record.size for record in new)
        self.read_to, self.end = next_offset, end

    def take(self, most_bytes: int) -> list[SourceRecord]:
        """Takes the records of the next batch; none, if there is nothing to write yet.

        A batch that may be on its way is made of the same records again: brokers know it by where it begins and ends.
        """
        records = self._again() if self.place.count else self._next(most_bytes)
        self.waiting_bytes -= sum(record.size for record in records)
        return records

    def _again(self) -> list[SourceRecord]:
        if self.read_to < self.place.end:
            return []
        records: list[SourceRecord] = []
        while self._waiting and self._waiting[0].offset < self.place.end:
            records.append(self._waiting.popleft())
        if not records:  # the source does not have them any more
            self.place = replace(self.place, begin=self.place.end, count=0)
        return records

    def _next(self, most_bytes: int) -> list[SourceRecord]:
        records: list[SourceRecord] = []
        left = most_bytes
        while self._waiting:
            first = self._waiting[0]
            if records and (first.size > left or first.codec != records[0].codec):
                break
            records.append(self._waiting.popleft())
            left -= first.size
        return records


class RecordsBehind:
    """Counts the records behind offsets, to find the same places in the copy.

    The records of the source from an offset on are the last ones of the copy, so their number says where they begin.

    Args:
        offsets: Next offsets of groups in the source.
    """

    def __init__(self, offsets: Iterable[int]) -> None:
        self._offsets = sorted(set(offsets))
        self._counts = [0] * len(self._offsets)

    @property
    def first(self) -> int:
        """The offset from which on records must be added."""
        return self._offsets[0]

    def add(self, offset: int) -> None:
        """Counts a record of the source."""
        at = bisect_right(self._offsets, offset) - 1
        if at >= 0:
            self._counts[at] += 1

    def places(self, written: int) -> dict[int, int]:
        """Returns by offset of the source the one of the copy with the same records behind it.

        Args:
            written: Records of the copy, which has all that the source has.
        """
        behind = list(accumulate(reversed(self._counts)))
        return {offset: written - count for offset, count in zip(reversed(self._offsets), behind, strict=True)}
