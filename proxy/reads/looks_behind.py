"""What a physical log tells of transactions, as far as it is here: looked for in what a worker has read of it."""

from __future__ import annotations

from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.events import Batch
from kordon.proxy.ordering.transactions.outcome import Outcome
from kordon.proxy.reads.logs import PartitionLog


def is_stable(log: PartitionLog, stream: Stream) -> bool:
    """Whether nothing of a stream is undecided up to the high watermark."""
    if log.transactions is None or log.high_watermark is None:
        return log.transactions is None
    open_from(log)
    stable = log.transactions.stable_end(stream, log.high_watermark)
    return stable is not None and stable.is_known and stable.undecided is None


def empty_until(log: PartitionLog, stream: Stream, position: int, limit: int) -> int | None:
    """Returns up to which offset of [position, limit) nothing is left to read of a stream; None: something is.

    What has not been read ends it. Records of transactions that nobody has committed are nothing.
    """
    decide = log.transactions.decide if log.transactions is not None else None
    return log.views.empty_until(stream, position, limit, decide)


def open_from(log: PartitionLog) -> int | None:
    """Continues to where streams are stable, as far as that is here.

    Returns:
        The offset from which on more is to be brought; None: it is not known where to begin.
    """
    transactions = log.transactions
    if transactions is None:
        return None
    while (at := transactions.open_from) is not None and (view := log.views.at(at)) is not None:
        transactions.take(view.start, view.end, view.seen)
    return at


def is_read_out_for(log: PartitionLog, batch: Batch) -> bool:
    """Whether a log has been read to its end for a batch that is undecided."""
    assert log.transactions is not None  # or else there is no such batch
    return log.high_watermark is not None and log.transactions.needs(batch) >= log.high_watermark


def looks_behind(log: PartitionLog, batch: Batch) -> bool:
    """Continues to what decides about a batch of a transaction, as far as it is here; returns whether it is decided.

    If it is not, `LogTransactions.needs` says what is to be brought.
    """
    transactions = log.transactions
    assert transactions is not None  # or else there is no such batch
    at = -1
    while transactions.decide(batch) is Outcome.UNDECIDED:
        before, at = at, transactions.needs(batch)
        view = log.views.at(at)
        if view is None or at == before:
            return False
        transactions.take(view.start, view.end, view.seen)
    return True
