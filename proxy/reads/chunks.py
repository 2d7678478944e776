"""What was read of physical partitions, split once by virtual partition and kept while somebody is to read it."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from kordon.codecs.split import CONTROL, Batch, patch, split
from kordon.proxy.kafka.opening import BatchAddress, Opener, PassedOver, Reason
from kordon.proxy.ordering.epochs import virtual_epoch
from kordon.proxy.ordering.physical_reading import AnyTenancy
from kordon.proxy.ordering.reading import Hidden, Resident
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.bypass import Shares

log = client_log(__name__)

_SHARED_OUT: Final = frozenset({Hidden.BYPASS, Hidden.DIALECT})

_MOST_OPENED_BYTES: Final = 1024 * 1024
"""Most that is opened for one chunk; the rest makes another chunk."""
LINGER_SECONDS: Final = 1.0
"""How long a chunk stays when all of it has been sent: other groups are seldom further apart."""


class ServedBatch(NamedTuple):
    """A batch of a virtual partition, as clients get it."""

    base_offset: int
    """In the physical partition, like `next_offset`."""
    next_offset: int
    data: memoryview
    records: int = 0
    """That are a consumer's: none of a control batch."""


@dataclass(slots=True, eq=False)
class Chunk:
    """A stretch of a physical partition's log."""

    start: int
    end: int
    """Offsets [start, end): all batches in between are here."""
    entries: dict[int, list[ServedBatch]]
    """By virtual partition."""
    leader_epoch: int
    """The physical one, of the last batch."""
    size_bytes: int
    unsent: set[int]
    """Virtual partitions whose last batch here has not been sent to anybody."""
    forget: Callable[[Chunk], None]
    """Called when the cache lets it go."""
    touched: float = 0.0

    @property
    def last(self) -> dict[int, int]:
        """By virtual partition, the end of its last batch."""
        return {v: entries[-1].next_offset for v, entries in self.entries.items()}


@dataclass(slots=True)
class ReadTally:
    """What reading of managed topics counts; every number only rises but those that say "now"."""

    pulled_bytes: int = 0
    """Records read from brokers."""
    served_bytes: int = 0
    """Records given to clients, fillers not among them; pulled over served is the read amplification."""
    hits: int = 0
    """Looks into the cache that found the chunk; hits over hits and misses is the hit ratio."""
    misses: int = 0
    pulls: int = 0
    """Partitions asked of brokers."""
    fillers: int = 0
    holes: int = 0
    """Positions that were taken over offsets that retention had removed (HOLE-PASSED)."""
    out_of_range: int = 0
    evicted_unsent: int = 0
    """Chunks that the bound drove out before all was sent: more of them means that the cache is too small."""
    cached_bytes: int = 0
    """Now."""
    bypassed: Counter[str] = field(default_factory=Counter[str])
    """By topic, batches of writers that went round Kordon, each time they were read (BYPASS-SHARED)."""
    hidden: Counter[str] = field(default_factory=Counter[str])
    """Batches that nobody gets as they are, by kind; of bypass and of dialect clients the records are given out.

    Bypass counts here also where clients of the dialect read it, who get it as it is."""


class PassedRange(NamedTuple):
    """Offsets [start, end) of the physical partition that nobody gets, because their batch cannot be opened."""

    start: int
    end: int
    reason: Reason


@dataclass(slots=True)
class Indexed:
    """What the records hold, by owner."""

    end: int
    """The offset behind the last batch that was looked at."""
    leader_epoch: int = -1
    """Of that batch; -1: there was none."""
    entries: dict[int, list[ServedBatch]] = field(default_factory=dict[int, list[ServedBatch]])
    """By virtual partition."""
    bypassed: int = 0
    """Batches of writers that went round Kordon."""
    opened_bytes: int = 0
    """Of what had to be built anew."""
    passed: list[PassedRange] = field(default_factory=list[PassedRange])


class Indexer:
    """Finds out whose each batch of a physical partition is.

    Args:
        topic: Its name.
        tenancy: Who lives and has lived there.
        v_count: V.
        tally: Is told what is hidden.
        opener: Opens what has to be shared out.
    """

    def __init__(self, topic: str, tenancy: AnyTenancy, v_count: int, tally: ReadTally, opener: Opener) -> None:
        self._topic = topic
        self._tenancy = tenancy
        self._v_count = v_count
        self._tally = tally
        self._opener = opener

    async def index(self, records: memoryview, start: int, before: int | None) -> Indexed:
        """Gives each batch its virtual offset and leader epoch: once, for all who will get it.

        Args:
            records: A broker's; changed in place.
            start: The offset that was asked for; batches that end before it are left out.
            before: Offset at which what is known already begins; None: nothing is.

        Returns:
            What was found. It ends early where much had to be opened: the rest is for the next time.

        Raises:
            WireError: The records cannot be read.
        """
        found = Indexed(start)
        residents: dict[int, Resident] = {}
        for batch in split(records):
            base = batch.base_offset
            if batch.next_offset <= start:
                continue
            if before is not None and base >= before:
                found.end = before  # whatever a gap of compaction lies in between
                break
            known = residents.get(batch.producer_id)
            owner: Resident | Hidden
            if known is not None and not batch.attributes & CONTROL and known.stay.holds(base):
                owner = known
            else:
                owner = self._tenancy.owner(batch.producer_id, base, is_control=bool(batch.attributes & CONTROL))
            if found.opened_bytes > _MOST_OPENED_BYTES and isinstance(owner, Hidden) and owner in _SHARED_OUT:
                found.end = base
                break
            found.end, found.leader_epoch = batch.next_offset, batch.leader_epoch
            if isinstance(owner, Resident):
                residents[batch.producer_id] = owner
                self._give(records, batch, owner, found)
            else:
                await self._hide(records, batch, owner, found)
        return found

    def _give(self, records: memoryview, batch: Batch, owner: Resident, found: Indexed) -> None:
        """Gives a batch to its owner, as it is."""
        if owner.is_bypass:
            self._tally.hidden[Hidden.BYPASS.value] += 1
            found.bypassed += 1
        data = records[batch.start : batch.end]
        base, count = batch.base_offset, 0 if batch.attributes & CONTROL else batch.records
        patch(records, batch, base + owner.stay.delta, virtual_epoch(owner.stay.move, batch.leader_epoch))
        found.entries.setdefault(owner.v, []).append(ServedBatch(base, batch.next_offset, data, count))

    async def _hide(self, records: memoryview, batch: Batch, kind: Hidden, found: Indexed) -> None:
        self._tally.hidden[kind.value] += 1
        found.bypassed += kind is Hidden.BYPASS
        if kind in _SHARED_OUT:
            await self._share(records[batch.start : batch.end], batch, found)

    async def _share(self, data: memoryview, batch: Batch, found: Indexed) -> None:
        """Gives the records of a batch without a virtual partition to who lives there (BYPASS-SHARED, ORIGIN-TAG)."""
        partition = self._tenancy.partition
        residents = self._tenancy.at(batch.base_offset)
        if not residents:
            log.warning("records_unclaimed", partition=partition, base_offset=batch.base_offset)
            return
        shares = Shares(residents, self._v_count)
        try:
            await self._opener.open(BatchAddress(self._topic, partition, batch.base_offset), batch, data, shares.take)
        except PassedOver as passed:
            found.passed.append(PassedRange(batch.base_offset, batch.next_offset, passed.reason))
            return
        for v, built in shares.finish():
            (share,) = split(built)
            stay = residents[v]
            patch(built, share, share.base_offset + stay.delta, virtual_epoch(stay.move, batch.leader_epoch))
            entry = ServedBatch(share.base_offset, share.next_offset, memoryview(built), share.records)
            found.entries.setdefault(v, []).append(entry)
            found.opened_bytes += len(built)


class Cache:
    """The chunks of one worker, within a bound: what is sent goes first, then what nobody has looked at for longest.

    Args:
        bound_bytes: Most bytes that it holds.
        tally: Is told what it holds.
    """

    def __init__(self, bound_bytes: int, tally: ReadTally) -> None:
        self._bound_bytes = bound_bytes
        self._tally = tally
        self._sent: OrderedDict[Chunk, None] = OrderedDict()
        """Sent to all; those that were looked at longest ago are in front. Readers come back to the end of what they
        got last: it must outlive what was sent before."""
        self._unsent: OrderedDict[Chunk, None] = OrderedDict()

    @property
    def is_full(self) -> bool:
        """Whether reading ahead would drive out what is still to be read."""
        return self._tally.cached_bytes > self._bound_bytes // 2

    def add(self, chunk: Chunk) -> None:
        """Takes a chunk in, and lets others go for it; a chunk alone is never too large."""
        self.touch(chunk, is_new=True)
        self._tally.cached_bytes += chunk.size_bytes
        while self._tally.cached_bytes > self._bound_bytes:
            first = next((each for each in chain(self._sent, self._unsent) if each is not chunk), None)
            if first is None:
                return
            self._tally.evicted_unsent += bool(first.unsent)
            self.drop(first)

    def prune(self) -> None:
        """Lets go what has been sent to all, a moment ago."""
        until = time.monotonic() - LINGER_SECONDS
        while self._sent and (first := next(iter(self._sent))).touched < until:
            self.drop(first)

    def touch(self, chunk: Chunk, *, is_new: bool = False) -> None:
        """Somebody reads it."""
        chunk.touched = time.monotonic()
        if self._take_out(chunk) or is_new:
            (self._unsent if chunk.unsent else self._sent)[chunk] = None

    def drop(self, chunk: Chunk) -> None:
        """Lets a chunk go."""
        if self._take_out(chunk):
            self._tally.cached_bytes -= chunk.size_bytes
            chunk.forget(chunk)

    def _take_out(self, chunk: Chunk) -> bool:
        for chunks in (self._sent, self._unsent):
            if chunk in chunks:
                del chunks[chunk]
                return True
        return False


def new_chunk(
    entries: dict[int, list[ServedBatch]],
    place: tuple[int, int],
    leader_epoch: int,
    size_bytes: int,
    forget: Callable[[Chunk], None],
) -> Chunk:
    """Makes a chunk of what `index` found between two offsets."""
    return Chunk(*place, entries, leader_epoch, size_bytes, set(entries), forget)
