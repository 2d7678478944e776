"""One partition of `__kordon.share_groups`, as one worker reads it and writes to it (`ordering/share/`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Final

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record, in_batches, size_of
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.ordering.claim_records import place_of
from kordon.proxy.ordering.claims import PlaceKey, Start
from kordon.proxy.ordering.share.lock_records import KIND, dump, is_opening, load
from kordon.proxy.ordering.share.locks import LockOutcome
from kordon.proxy.ordering.share.state import Said, ShareState
from kordon.proxy.own_topics.compacted_topic import CompactedTopic
from kordon.proxy.own_topics.followed_log import BATCH_BYTES, FollowedLog, what_is_said
from kordon.proxy.own_topics.share_opening import LogOpening
from kordon.proxy.own_topics.share_partition import SharePartition
from kordon.proxy.runtime.clock import clock
from kordon.proxy.runtime.tasks import Tasks

_NOTHING: Final = ShareState()
_BYTES_OF_PLACE: Final = 2_000
"""Of a group and partition: what it takes in memory beside its records."""
_BYTES_OF_RECORD: Final = 300
"""That a member has in hand, or that was looked at."""
_BYTES_OF_RANGE: Final = 16


@dataclass(frozen=True, slots=True)
class HeldShares:
    """What a worker knows of share groups."""

    places: int = 0
    """The number of pairs of a group and a partition."""
    in_hand: int = 0
    """Records that members have."""
    looked: int = 0
    """Records that were looked at ahead of what is done."""
    blocked: int = 0
    """Records that were given as often as may be, and hold up what comes behind them."""
    bytes: int = 0
    """What it takes in memory, about."""
    bytes_if_given: int = 0
    """What it takes if members are given all that was looked at, about."""
    log_bytes: int = 0
    """The bytes of the log's records that count."""
    oldest_ms: int | None = None
    """When a record was written since which some group has had the same offset open; None: none has any."""

    def joined(self, other: HeldShares) -> HeldShares:
        """Returns what both come to."""
        sums = {each: getattr(self, each) + getattr(other, each) for each in _SUMMED}
        oldest = [each.oldest_ms for each in (self, other) if each.oldest_ms is not None]
        return replace(self, **sums, oldest_ms=min(oldest, default=None))


_SUMMED: Final = tuple(each.name for each in fields(HeldShares) if each.name != "oldest_ms")


class ShareLog:
    """The locks and done offsets of the share groups whose records are in one partition of the log.

    Args:
        topic: With its number of partitions.
        key: Makes the key of a new record, which no other record has (`claims_log.py::key_with`).
        older: Returns the share groups that there are, of those whose records are in the partition.
        is_full: Whether the worker has looked at all that it may.
        outcomes: Is told what becomes of records (`share_partition.py::OUTCOMES`).
    """

    def __init__(
        self,
        brokers: Brokers,
        topic: CompactedTopic,
        partition: int,
        key: Callable[[PlaceKey], str],
        *,
        older: Callable[[int], Awaitable[Collection[str]]],
        is_full: Callable[[], bool] = lambda: False,
        outcomes: Counter[str] | None = None,
    ) -> None:
        self.read_to = 0
        """All records before this offset are known."""
        self.life = 0
        """Rises whenever all is forgotten: what was made of it before counts for nothing."""
        self.log = FollowedLog(brokers, topic, self, partition=partition)
        self.opening = LogOpening(partial(older, partition))
        self._key = key
        self._topic = topic.name
        self._expected: set[str] = set()
        """Keys of records that were written and not read back yet."""
        self._is_full = is_full
        self.outcomes: Counter[str] = Counter() if outcomes is None else outcomes
        self._states: dict[PlaceKey, ShareState] = {}
        self._partitions: dict[PlaceKey, SharePartition] = {}
        self._tasks = Tasks()

    def __iter__(self) -> Iterator[tuple[PlaceKey, ShareState]]:
        """Yields all that there is something of."""
        return iter(self._states.items())

    async def close(self) -> None:
        """Ends reading and writing."""
        await self._tasks.stop()
        await self.log.close()

    def held(self) -> HeldShares:
        """Returns what all of it comes to; it walks through all groups."""
        known, served = [*self._states.values()], [*self._partitions.values()]
        looked = sum(len(each.window) for each in served)
        in_hand = sum(each.locks.in_hand for each in known)
        ranges = sum(each.place.ranges for each in known)
        kept = _BYTES_OF_PLACE * len(known) + _BYTES_OF_RANGE * ranges
        kept += _BYTES_OF_RECORD * (looked + sum(each.held for each in known))
        return HeldShares(
            places=len(known),
            in_hand=in_hand,
            looked=looked,
            blocked=sum(each.blocked for each in served),
            bytes=kept,
            bytes_if_given=kept + _BYTES_OF_RECORD * max(0, looked - in_hand),
            log_bytes=sum(each.log_bytes for each in known),
            oldest_ms=min((each.state.waits_since_ms for each in served if each.is_waited_for()), default=None),
        )

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be kept in memory."""
        return self._is_full()

    def partition(self, place: PlaceKey) -> SharePartition:
        """Returns what serves a group and partition."""
        found = self._partitions.get(place)
        if found is None:
            found = self._partitions[place] = SharePartition(self, place)
        return found

    def of_group(self, group_id: str) -> list[SharePartition]:
        """Returns what serves each partition of which something of a group is known."""
        return [self.partition(place) for place in self._states if place.group_id == group_id]

    def state_of(self, place: PlaceKey) -> ShareState:
        """Returns what is known of a group and partition; it must not be changed."""
        return self._states.get(place, _NOTHING)

    async def read_to_end(self) -> None:
        """Returns when all that stood in the log at the time of the call has been read.

        Raises:
            UpstreamUnavailable: The log could not be read to its end in time.
        """
        await self.log.read_to_end()

    async def write(self, place: PlaceKey, said: Sequence[Said]) -> list[str]:
        """Writes records in one batch, and returns their keys when they have been read back.

        Raises:
            UpstreamUnavailable: The records may or may not be written.
        """
        entries = [NewRecord(self._key(place), dump(each)) for each in said]
        await self._write(entries)
        return [each.key for each in entries]

    async def _write(self, entries: Sequence[NewRecord]) -> None:
        """Writes records, and makes sure that it is these that were read back: the log may be another one by then."""
        keys = [each.key for each in entries]
        self._expected.update(keys)
        try:
            for batch in in_batches(entries, BATCH_BYTES):
                await self.log.write(batch)
            if not self._expected.isdisjoint(keys):
                raise UpstreamUnavailable(f"{self._topic} is not the log that was written to")
        finally:
            self._expected.difference_update(keys)

    def take_out(self, keys: Sequence[str]) -> None:
        """Removes records that are no longer needed."""
        if keys:
            self._tasks.start(self._take_out(keys), name="take out locks")

    async def _take_out(self, keys: Sequence[str]) -> None:
        for batch in in_batches([NewRecord(key, None) for key in keys], BATCH_BYTES):
            await self.log.write(batch)

    def take_in(self, record: Record) -> None:
        """Takes in a record of the log.

        Raises:
            ValueError: The record cannot be read, and is ignored.
        """
        self.read_to = record.offset + 1
        self._expected.discard(record.key)
        if is_opening(record.key):
            self.opening.take_in(record)
            return
        read: tuple[PlaceKey, Said | None] | None = what_is_said(record, lambda key: place_of(key, KIND), load)
        if read is None:
            return
        place, said = read
        state = self._states.get(place)
        if state is None:
            if said is None:
                return
            state = self._states[place] = ShareState()
        opened_at = state.done.stable if state.is_open else None
        state.apply(record.key, record.offset, said, clock(), size_of(NewRecord(record.key, record.value)))
        if not state.is_open or opened_at != state.done.stable:
            state.waits_since_ms = record.timestamp_ms
        if not state.records:
            del self._states[place]
        served = self._partitions.get(place)
        if served is not None and isinstance(said, LockOutcome | Start):
            served.free.ring()

    def forget(self) -> None:
        """Forgets all that was read."""
        self.opening.forget()
        self._states.clear()
        self._partitions.clear()
        self.read_to = 0
        self.life += 1

    def sweep(self) -> None:
        """Forgets what was looked at of partitions that nobody serves now."""
        self._partitions = {place: each for place, each in self._partitions.items() if each.is_in_use()}

    def caught_up(self, work: Tasks) -> None:
        """Has the log opened, if it begins with no opening."""
        if not self.opening.is_known:
            work.start(self.opening.write(self._write), name="open the log of share groups")
