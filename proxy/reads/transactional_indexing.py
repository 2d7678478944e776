"""Splits the records of a topic that has transactions: it also finds what decides them, and gives batches back as sent.

In the log data of a transaction have a tagged producer id and no transactional bit. Clients get them with the producer
id that they know and with the bit, as from a broker.
"""

from __future__ import annotations

from typing import Final

from kordon.codecs.markers import MarkerType, marker_type
from kordon.codecs.records import BatchHeader, look_batch
from kordon.codecs.retag import retag, set_transactional
from kordon.codecs.split import CONTROL, LogBatch
from kordon.codecs.witness import is_witness
from kordon.proxy.ordering.identity import LARGEST_CLIENT_ID, protocol_of
from kordon.proxy.ordering.reading import Hidden, Resident
from kordon.proxy.ordering.transactions import events
from kordon.proxy.ordering.transactions.events import Marker, Protocol, Witness
from kordon.proxy.ordering.transactions.open_batches import OwnBatch
from kordon.proxy.reads.indexing import Indexed, Indexer

_TRANSACTIONAL: Final = 0x10
_KIND: Final = CONTROL | _TRANSACTIONAL


class TransactionalIndexer(Indexer):
    """Finds the owner of each batch, and witnesses, markers and batches of transactions."""

    def _give(self, records: memoryview, batch: LogBatch, owner: Resident, found: Indexed) -> None:
        if owner.stay.tagged and self._hides_witness(records, batch, found):
            return
        super()._give(records, batch, owner, found)
        protocol = protocol_of(batch.producer_id)
        if protocol is None or owner.is_bypass or not owner.stay.tagged:
            return
        header = look_batch(records, batch.start)
        txn = _transaction_of(batch, header, protocol)
        retag(records, batch.start, txn.producer_id, txn.epoch, header.base_sequence)
        set_transactional(records, batch.start, is_transactional=True)
        entries = found.entries[owner.v]
        entries[-1] = entries[-1]._replace(txn=txn)
        found.seen.append(OwnBatch(owner.v, txn))

    async def _hide(self, records: memoryview, batch: LogBatch, kind: Hidden, found: Indexed) -> None:
        if self._hides_witness(records, batch, found):
            return
        if kind is Hidden.CONTROL:
            self._note_marker(records, batch, found)
        before = {v: len(entries) for v, entries in found.entries.items()}
        await super()._hide(records, batch, kind, found)
        protocol = protocol_of(batch.producer_id) if kind is Hidden.DIALECT else None
        if protocol is None:
            return
        txn = _transaction_of(batch, look_batch(records, batch.start), protocol)
        for v, entries in found.entries.items():
            for at in range(before.get(v, 0), len(entries)):
                entries[at] = entries[at]._replace(txn=txn)
            if len(entries) > before.get(v, 0):
                found.seen.append(OwnBatch(v, txn))

    def _hides_witness(self, records: memoryview, batch: LogBatch, found: Indexed) -> bool:
        """Takes in a witness; returns whether the batch is one."""
        if batch.attributes & _KIND != _TRANSACTIONAL:
            return False
        header = look_batch(records, batch.start)
        if not is_witness(header, records[batch.start : batch.end]):
            return False
        found.seen.append(Witness(batch.base_offset, header.producer_id, header.producer_epoch))
        self._tally.hidden[Hidden.WITNESS.value] += 1
        return True

    def _note_marker(self, records: memoryview, batch: LogBatch, found: Indexed) -> None:
        header = look_batch(records, batch.start)
        kind = marker_type(header, records[batch.start : batch.end])
        if kind is not None:
            is_commit = kind is MarkerType.COMMIT
            found.seen.append(Marker(batch.base_offset, header.producer_id, header.producer_epoch, is_commit))


def _transaction_of(batch: LogBatch, header: BatchHeader, protocol: Protocol) -> events.Batch:
    """Returns a batch under a tagged producer id as one of a transaction."""
    return events.Batch(batch.base_offset, batch.producer_id & LARGEST_CLIENT_ID, header.producer_epoch, protocol)
