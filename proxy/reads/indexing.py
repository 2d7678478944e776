"""Splits the records that a broker has sent by owner, once for all readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kordon.codecs.split import CONTROL, LogBatch, patch, split
from kordon.proxy.kafka.opening import BatchAddress, Opener, PassedOver
from kordon.proxy.ordering.epochs import virtual_epoch
from kordon.proxy.ordering.physical_reading import AnyTenancy
from kordon.proxy.ordering.reading import Hidden, Resident
from kordon.proxy.ordering.transactions.open_batches import Seen
from kordon.proxy.reads.read_tally import ReadTally
from kordon.proxy.reads.segment_views import PassedRange, ServedBatch
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.bypass import Shares

log = client_log(__name__)

_SHARED_OUT: Final = frozenset({Hidden.BYPASS, Hidden.DIALECT})

_MOST_OPENED_BYTES: Final = 1024 * 1024
"""Most that is opened for one view; the rest makes another one."""


@dataclass(slots=True)
class Indexed:
    """The batches that the records hold, by owner."""

    end: int
    """The offset after the last batch that was looked at."""
    leader_epoch: int = -1
    """The leader epoch of that batch; -1: there was no batch."""
    entries: dict[int, list[ServedBatch]] = field(default_factory=dict[int, list[ServedBatch]])
    """The batches by virtual partition."""
    bypassed: int = 0
    """Batches of writers that went around Kordon."""
    opened_bytes: int = 0
    """Bytes of batches that had to be built again, because their records have several owners."""
    passed: list[PassedRange] = field(default_factory=list[PassedRange])
    seen: list[Seen] = field(default_factory=list[Seen])
    """What concerns transactions, in its order; nothing where the topic has none."""


class Indexer:
    """Finds the owner of each batch of a physical partition.

    Args:
        tenancy: The streams that live and have lived in the partition.
        v_count: The number of virtual partitions.
        opener: The part that opens batches whose records go to several owners.
    """

    def __init__(self, topic: str, tenancy: AnyTenancy, v_count: int, tally: ReadTally, opener: Opener) -> None:
        self.partition = tenancy.partition
        """The physical partition."""
        self._topic = topic
        self._tenancy = tenancy
        self._v_count = v_count
        self._tally = tally
        self._opener = opener

    async def index(self, records: memoryview, start: int, before: int | None) -> Indexed:
        """Gives each batch its virtual offset and leader epoch: once, for all who will get it.

        Args:
            records: The records of a broker, which are changed in place.
            start: The offset that was asked for; batches that end before it are left out.
            before: The offset at which the part that is already known begins; None: nothing is known.

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

    def _give(self, records: memoryview, batch: LogBatch, owner: Resident, found: Indexed) -> None:
        """Gives a batch to its owner, as it is."""
        if owner.is_bypass:
            self._tally.hidden[Hidden.BYPASS.value] += 1
            found.bypassed += 1
        data = records[batch.start : batch.end]
        base, count = batch.base_offset, 0 if batch.attributes & CONTROL else batch.records
        patch(records, batch, base + owner.stay.delta, virtual_epoch(owner.stay.move, batch.leader_epoch))
        found.entries.setdefault(owner.v, []).append(ServedBatch(base, batch.next_offset, data, count))

    async def _hide(self, records: memoryview, batch: LogBatch, kind: Hidden, found: Indexed) -> None:
        self._tally.hidden[kind.value] += 1
        found.bypassed += kind is Hidden.BYPASS
        if kind in _SHARED_OUT:
            await self._share(records[batch.start : batch.end], batch, found)

    async def _share(self, data: memoryview, batch: LogBatch, found: Indexed) -> None:
        """Gives the records of a batch without a virtual partition to who lives there (BYPASS-SHARED, ORIGIN-TAG)."""
        residents = self._tenancy.at(batch.base_offset)
        if not residents:
            log.warning("records_unclaimed", partition=self.partition, base_offset=batch.base_offset)
            return
        shares = Shares(residents, self._v_count)
        try:
            await self._opener.open(
                BatchAddress(self._topic, self.partition, batch.base_offset), batch, data, shares.take
            )
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
