"""One partition of `__kordon.individual_commits`, as one worker reads it and writes to it (`ordering/claims.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kordon.proxy.kafka.batches import NewRecord, Record, in_batches, size_of
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.ordering.claim_records import KIND, dump, key_of, load, place_of
from kordon.proxy.ordering.claims import Claims, Place, PlaceKey, Said, Start
from kordon.proxy.own_topics.compacted_topic import CompactedTopic
from kordon.proxy.own_topics.followed_log import BATCH_BYTES, FollowedLog, what_is_said
from kordon.proxy.runtime.clock import now_ms
from kordon.proxy.runtime.tasks import Tasks

_BYTES_OF_RANGE: Final = 16
_BYTES_OF_PLACE: Final = 1_500
"""Of a group and partition, with some records: what it takes in memory beside its ranges."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The first offset that is not done of a partition, while later ones are."""

    offset: int
    since_ms: int
    """When a record was written that had it so, as far as this worker has read."""


@dataclass(slots=True)
class HeldClaims:
    """What is known of all groups and partitions together."""

    places: int = 0
    """The number of pairs of a group and a partition."""
    ranges: int = 0
    """Behind their stable offsets, in their newest incarnations."""
    bytes: int = 0
    """What they take in memory, about."""
    log_bytes: int = 0
    """The bytes of their records."""

    def add(self, place: Place, times: int) -> None:
        """Adds what is known of one; -1 times takes it away, as it was when it was added."""
        if place.records:
            self.places += times
            self.ranges += times * len(place.done.ranges)
            self.bytes += times * (_BYTES_OF_PLACE + _BYTES_OF_RANGE * place.ranges)
            self.log_bytes += times * place.size


class ClaimsLog:
    """The done offsets of the groups whose records are in one partition of the log.

    Args:
        topic: With its number of partitions.
        key: Makes the key of a new record, which no other record has (`key_with`).
    """

    def __init__(self, brokers: Brokers, topic: CompactedTopic, partition: int, key: Callable[[PlaceKey], str]) -> None:
        self.claims = Claims()
        """As far as has been read."""
        self.read_to = 0
        """All records before this offset are in `claims`."""
        self.life = 0
        """Rises whenever all is forgotten: what was made of `claims` before counts for nothing."""
        self.held = HeldClaims()
        """What `claims` holds; kept with each record, so that nobody has to walk through all groups."""
        self.gaps: dict[PlaceKey, Gap] = {}
        """Those that were found first come first."""
        self.log = FollowedLog(brokers, topic, self, partition=partition)
        self._key = key
        self._tasks = Tasks()

    async def close(self) -> None:
        """Ends reading and writing."""
        await self._tasks.stop()
        await self.log.close()

    def of(self, place: PlaceKey) -> Place:
        """Returns what is known of a group and partition by now; it must not be changed."""
        return self.claims.of(place, now_ms())

    async def read_to_end(self) -> None:
        """Returns when all that stood in the log at the time of the call has been read.

        Raises:
            UpstreamUnavailable: The log could not be read to its end in time.
        """
        await self.log.read_to_end()

    async def write(self, said: Iterable[tuple[PlaceKey, Said]], read_to: int) -> None:
        """Writes records, and returns when they have been read back. What they outlive is taken out later.

        Args:
            read_to: The position up to which the log was read when the records were made. None of them may hold what
                was read after that.

        Raises:
            UpstreamUnavailable: The records may or may not be written.
        """
        entries = [(place, each, NewRecord(self._key(place), dump(each))) for place, each in said]
        for batch in in_batches([entry for _, _, entry in entries], BATCH_BYTES):
            await self.log.write(batch)
        starts = [(place, entry.key, each) for place, each, entry in entries if isinstance(each, Start)]
        gone = [key for place, own, each in starts for key in self._outlived(place, own, each, read_to)]
        if gone:
            self._tasks.start(self._take_out(gone), name="take out claims")

    def _outlived(self, place: PlaceKey, own_key: str, start: Start, read_to: int) -> Sequence[str]:
        """Returns the records that a start outlives: all before it, if it begins again (COVER-BEHIND)."""
        known = self.claims.of(place)
        return known.outlived(own_key, read_to if start.ends == start.name else known.offset_of(own_key))

    async def _take_out(self, keys: Sequence[str]) -> None:
        entries = [NewRecord(key, None) for key in keys]
        for batch in in_batches(entries, BATCH_BYTES):
            await self.log.write(batch)

    def take_in(self, record: Record) -> None:
        """Takes in a record of the log.

        Raises:
            ValueError: The record cannot be read, and is ignored.
        """
        self.read_to = record.offset + 1
        read: tuple[PlaceKey, Said | None] | None = what_is_said(record, place_of, load)
        if read is None:
            return
        place, said = read
        self.held.add(self.claims.of(place), -1)
        size = size_of(NewRecord(record.key, record.value))
        self.claims.apply(place, record.key, record.offset, said, size=size, timestamp_ms=record.timestamp_ms)
        self.held.add(self.claims.of(place), 1)
        self._look_for_gap(place, record.timestamp_ms)

    def _look_for_gap(self, key: PlaceKey, timestamp_ms: int) -> None:
        done = self.claims.of(key).done
        known = self.gaps.get(key)
        if known is not None and done.ranges and known.offset == done.stable:
            return
        self.gaps.pop(key, None)  # one that has moved is the newest
        if done.ranges:
            self.gaps[key] = Gap(done.stable, timestamp_ms)

    def sweep(self) -> None:
        """Forgets groups that have added nothing for so long that it counts for nothing any more."""
        for key in self.claims.forget_void(now_ms()):
            self.gaps.pop(key, None)
        self.held = HeldClaims()
        for _, place in self.claims:
            self.held.add(place, 1)

    def forget(self) -> None:
        """Forgets all that was read."""
        self.claims = Claims()
        self.gaps.clear()
        self.held = HeldClaims()
        self.read_to = 0
        self.life += 1

    def caught_up(self, work: Tasks) -> None:
        """Does nothing: whoever asks waits until all is read."""


def key_with(writer: str, kind: str = KIND) -> Callable[[PlaceKey], str]:
    """Returns what makes the key of a new record, which no other record has.

    Args:
        writer: A name of the worker that no other has, of letters and digits.
        kind: The kind of all records of the log.
    """
    number = 0

    def key(place: PlaceKey) -> str:
        nonlocal number
        number += 1
        return key_of(place, writer, number, kind)

    return key
