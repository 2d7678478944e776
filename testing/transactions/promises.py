"""What has to hold at the end, whatever went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kordon.proxy.ordering.transactions.absences import Absences
from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Batch
from kordon.proxy.ordering.transactions.outcome import Outcome, is_witnessed, outcome_of
from kordon.testing.transactions.cluster import Cluster
from kordon.testing.transactions.logs import Log
from kordon.testing.transactions.readers import Read, Reader


def broken(cluster: Cluster, readers: Iterable[Reader]) -> Iterator[str]:
    """Returns what does not hold."""
    found = list(readers)
    for each in found:
        yield from _of_reader(each)
    yield from _of_agreement(found)
    for log in cluster.logs.values():
        yield from _of_witnesses(log)
    yield from _of_records(cluster)


def _of_reader(reader: Reader) -> Iterator[str]:
    last: dict[tuple[int, int], int] = {}
    for each in reader.reads:
        record, where = each.record, f"{each.record.number} of transaction {each.record.txn.number} at {each[:2]}"
        if each.is_shown and _is_wrongly_shown(each):
            yield f"shown though not committed: {where}"
        if not each.is_shown and _is_wrongly_hidden(each):
            yield f"committed and never shown: {where}"
        is_excused = record.may_show or record.was_lost
        line = record.writer, record.v
        if each.is_shown and record.number <= last.get(line, -1) and not is_excused:
            yield f"shown twice or out of order: {where}"
        if each.is_shown:
            last[line] = max(record.number, last.get(line, -1))


def _is_wrongly_shown(each: Read) -> bool:
    record = each.record
    if record.is_forged:
        return True
    is_excused = record.may_show or (record.txn.is_v1 and _is_in_doubt(each))
    return record.txn.outcome is not True and not is_excused


def _is_wrongly_hidden(each: Read) -> bool:
    record = each.record
    is_excused = record.is_lost or record.is_forged or _is_in_doubt(each)
    return record.txn.outcome is True and not is_excused


def _is_in_doubt(each: Read) -> bool:
    """Whether an unclean election took the marker that would have decided."""
    return each.record.is_doubtful or each.partition in each.record.txn.unmarked


def _of_agreement(readers: Iterable[Reader]) -> Iterator[str]:
    shown: dict[tuple[int, int, int], bool] = {}
    for reader in readers:
        for each in reader.reads:
            at = each.partition, each.offset, each.record.number
            is_excused = _is_in_doubt(each) or each.record.may_show
            if shown.setdefault(at, each.is_shown) != each.is_shown and not is_excused:
                yield f"readers disagree about {at}"


def _of_witnesses(log: Log) -> Iterator[str]:
    """Looks for committed data that no witness of their transaction stands before (TXN-WITNESS)."""
    index = EventIndex(0)
    for entry in log.entries:
        if not isinstance(entry.what, Batch):
            index.take(entry.what)
    for offset, entry in log.data_behind(0):
        assert isinstance(entry.what, Batch)
        assert entry.record is not None
        if outcome_of(entry.what, index, Absences()) is not Outcome.COMMITTED or entry.record.may_show:
            continue
        if entry.record.is_misled:
            continue
        if not is_witnessed(entry.what, index):
            yield f"committed without a witness: {entry.record.number} at {log.partition, offset}"


def _of_records(cluster: Cluster) -> Iterator[str]:
    """Looks for records that were committed, and stand nowhere, twice, or where their key did not live."""
    for record in cluster.records:
        if record.txn.outcome is not True or record.was_lost or record.may_show:
            continue
        places, where = cluster.places_of(record), f"{record.number} of transaction {record.txn.number}"
        if record.is_acked and not places:
            yield f"acknowledged and gone: {where}"
        if len(places) > 1:
            yield f"stands twice: {where} at {places}"
        stays = cluster.layout.chains[record.v].stays
        if not all(any(s.partition == q and s.holds(offset) for s in stays) for q, offset in places):
            yield f"stands where its key did not live: {where} at {places}"
