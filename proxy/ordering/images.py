"""The image: what a producer had written of a virtual partition when it moved, and which sequences follow (SEQ-IMAGE).

A producer counts its batches per partition that it sees, from 0 on. In the log of a new home each identity begins at 0
again, so a client's sequence there is its own minus what stands in the homes before.

An image is kept in parts. Each move writes down one, of those who wrote since the move before, and what older parts
know of others stays where it is. A part goes when nobody needs it any more: all in it have written since, or brokers
would have forgotten them (producer.id.expiration.ms). Moves only take parts away, while the fence stands: in between,
whoever has begun in the present home is needed in the image of it, however old that is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import ItemsView, Iterator, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from operator import not_
from typing import Annotated, Final, NamedTuple

from pydantic import Field, PlainSerializer

_SEQUENCES: Final = 1 << 31
"""Sequences wrap around to 0 behind 2^31 - 1 (DefaultRecordBatch.incrementSequence)."""
PRODUCERS_OF_A_PART: Final = 10_000
"""A part of an image has at most so many rows: 400 kB as JSON, where brokers take a batch of 1 MB."""


class Written(NamedTuple):
    """What one producer had written of one virtual partition before its last move."""

    epoch: int
    """The producer epoch."""
    last_sequence: int
    """The sequence of its last record before the cut, as the client counts."""


Image = Mapping[int, Written]
"""What producers had written of one virtual partition, by writer (`identity.writer_id`)."""


class Packed(Mapping[int, Written]):
    """What producers had written, in 16 bytes each, as every worker keeps all rows of all topics.

    Args:
        written: The epoch and last sequence by writer (`identity.writer_id`).
    """

    def __init__(self, written: Mapping[int, Written]) -> None:
        rows = sorted(written.items())
        self._ids = array("q", (writer for writer, _ in rows))
        self._epochs = array("i", (each.epoch for _, each in rows))
        self._last_sequences = array("i", (each.last_sequence for _, each in rows))
        self._first, self._last = (rows[0][0], rows[-1][0]) if rows else (0, -1)

    def get(self, writer: int, default: Written | None = None) -> Written | None:  # type: ignore[override]
        """Finds a producer; most lookups lie outside the range of ids, and end there."""
        if not self._first <= writer <= self._last:
            return default
        place = bisect_left(self._ids, writer)
        if self._ids[place] != writer:
            return default
        return Written(self._epochs[place], self._last_sequences[place])

    def __getitem__(self, writer: int) -> Written:
        found = self.get(writer)
        if found is None:
            raise KeyError(writer)
        return found

    def __contains__(self, writer: object) -> bool:
        return isinstance(writer, int) and self.get(writer) is not None

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def items(self) -> ItemsView[int, Written]:
        """Returns all rows, quicker than one lookup after the other."""
        written = map(Written, self._epochs, self._last_sequences)
        return dict(zip(self._ids, written, strict=True)).items()


def _as_dict(written: Mapping[int, Written]) -> dict[int, Written]:
    return dict(written.items())


@dataclass(frozen=True)
class ImageRecord:
    """A part of an image, as one move has written it down."""

    written: Annotated[Mapping[int, Written], PlainSerializer(_as_dict, return_type=dict[int, Written])]
    """Producers that wrote in the home that was left and are in no newer part, by writer."""
    cut_ms: int
    """When the home was left, in milliseconds since 1970; none of these producers wrote there later."""
    begins: Annotated[int, Field(exclude_if=not_)] = 0
    """The layout epoch from which on the part counts, where it was written down before that layout; 0: at once."""

    def __post_init__(self) -> None:
        if not isinstance(self.written, Packed):
            object.__setattr__(self, "written", Packed(self.written))


class ImageParts(Mapping[int, Written]):
    """The image of one stream, as its moves have written it down.

    Args:
        parts: The parts by number; a greater number is newer.
    """

    def __init__(self, parts: Mapping[int, ImageRecord] | None = None) -> None:
        self.parts: Mapping[int, ImageRecord] = dict(sorted((parts or {}).items(), reverse=True))
        """The parts, the newest first."""
        self._newest_first = tuple(part.written for part in self.parts.values())

    def __getitem__(self, writer: int) -> Written:
        found = self.get(writer)
        if found is None:
            raise KeyError(writer)
        return found

    def get(self, writer: int, default: Written | None = None) -> Written | None:  # type: ignore[override]
        """Finds a producer, in the newest part that has it; every batch asks, and most find nothing."""
        for written in self._newest_first:
            if (found := written.get(writer)) is not None:
                return found
        return default

    def __iter__(self) -> Iterator[int]:
        return iter(set[int]().union(*self._newest_first))

    def __len__(self) -> int:
        return len(set[int]().union(*self._newest_first))

    def __bool__(self) -> bool:
        return any(self._newest_first)

    def in_force(self, epoch: int) -> ImageParts:
        """Returns the image without the parts that begin to count with a later layout epoch."""
        if all(part.begins <= epoch for part in self.parts.values()):
            return self
        return ImageParts({number: part for number, part in self.parts.items() if part.begins <= epoch})

    def with_part(self, number: int, part: ImageRecord | None) -> ImageParts:
        """Returns the image with another part, or (None) without one."""
        others = {each: kept for each, kept in self.parts.items() if each != number}
        return ImageParts(others if part is None else {**others, number: part})


def rows_of(image: Image) -> int:
    """Returns how many rows an image has in memory; a producer that has written again has a row in several parts."""
    return sum(len(part.written) for part in image.parts.values()) if isinstance(image, ImageParts) else len(image)


class WhyNotWritten(Enum):
    """Why a batch is not written."""

    DUPLICATE = "duplicate"
    """The batch stands in an earlier home. Its client is told of success without an offset."""
    FENCED = "fenced"
    """A later epoch of the same producer has written; its client is told INVALID_PRODUCER_EPOCH."""


def distance(later: int, earlier: int) -> int:
    """Returns how far one sequence lies behind another, modulo 2^31: negative if it lies before."""
    gap = (later - earlier) % _SEQUENCES
    return gap if gap < _SEQUENCES // 2 else gap - _SEQUENCES


def sequence_at_home(
    written: Written | None, epoch: int, base_sequence: int, last_sequence: int
) -> int | WhyNotWritten:
    """Translates the sequence of a client's batch to its present home.

    Args:
        written: The producer's row in the image; None: it has none.
        base_sequence: The sequence of the batch's first record, as the client counts.
        last_sequence: The sequence of the batch's last record, as the client counts.

    Returns:
        The base sequence under which it goes into the log, or why it does not.
    """
    if written is None or epoch > written.epoch:
        return base_sequence
    if epoch < written.epoch:
        return WhyNotWritten.FENCED
    if distance(last_sequence, written.last_sequence) <= 0:
        return WhyNotWritten.DUPLICATE
    return (base_sequence - written.last_sequence - 1) % _SEQUENCES


def sequence_of_client(written: Written | None, epoch: int, sequence: int) -> int:
    """Translates a sequence of the present home back into the client's count, which the next image holds."""
    if written is None or epoch != written.epoch:
        return sequence
    return (sequence + written.last_sequence + 1) % _SEQUENCES


def in_client_count(before: Image, here: Mapping[int, Written]) -> dict[int, Written]:
    """Returns the producers that have written in a home, in the client's count; `before` is the home's image."""
    return {
        writer: Written(found.epoch, sequence_of_client(before.get(writer), found.epoch, found.last_sequence))
        for writer, found in here.items()
    }


def carried(before: ImageParts, here: Mapping[int, Written], cut_ms: int, forgotten_ms: int) -> ImageParts:
    """Returns the image behind a move; `before` itself where nothing is to be changed.

    Args:
        before: The image of the home that is left; silent producers are carried over.
        here: The epoch and the last sequence that the log of that home has, by client id (DescribeProducers).
        cut_ms: When `here` was read, in milliseconds since 1970.
        forgotten_ms: Brokers have forgotten the producers that wrote last before this (`is_forgotten`).
    """
    written = in_client_count(before, here)
    first = max(before.parts, default=0) + 1
    parts = {first + place: ImageRecord(run, cut_ms) for place, run in enumerate(runs_of(written))}
    newer = set(written)
    for number, part in before.parts.items():
        if (left := still_needed(part, newer, forgotten_ms)) is not None:
            parts[number] = left
        newer.update(part.written)
    return before if parts == before.parts else ImageParts(parts)


def runs_of(written: Mapping[int, Written]) -> Iterator[dict[int, Written]]:
    """Cuts rows into runs that fit into a part each."""
    rows = list(written.items())
    for begin in range(0, len(rows), PRODUCERS_OF_A_PART):
        yield dict(rows[begin : begin + PRODUCERS_OF_A_PART])


def is_forgotten(part: ImageRecord, forgotten_ms: int) -> bool:
    """Whether brokers have forgotten all producers of a part that have not written since (SEQ-IMAGE)."""
    return part.cut_ms < forgotten_ms


def still_needed(part: ImageRecord, newer: Set[int], forgotten_ms: int) -> ImageRecord | None:
    """Returns what a move carries on of a part, so that at least half of what is kept is needed.

    Args:
        part: A part of the image of the home that is left.
        newer: The producers that newer parts have.
        forgotten_ms: As for `carried`.

    Returns:
        The part itself, a smaller one in its place, or None: nobody needs it.
    """
    if is_forgotten(part, forgotten_ms):
        return None
    left = {writer: kept for writer, kept in part.written.items() if writer not in newer}
    if not left:
        return None
    if 2 * len(left) > len(part.written):
        return part
    return ImageRecord(left, part.cut_ms)
