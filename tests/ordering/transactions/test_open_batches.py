"""Last stable offsets of the streams of one log, where more is undecided than is kept."""

from kordon.proxy.ordering.transactions.events import Batch, Protocol
from kordon.proxy.ordering.transactions.open_batches import OpenBatches, OwnBatch
from kordon.proxy.ordering.transactions.outcome import Outcome

LOG_END = 1_000


def own(stream: int, offset: int) -> OwnBatch:
    return OwnBatch(stream, Batch(offset, offset, 0, Protocol.V1))


def test_what_one_stream_left_out_is_read_again_for_all() -> None:
    """Each log position counts that some stream lacks: an end behind an open transaction would be told as stable."""
    over = {10, 60}
    batches = OpenBatches(most=1)
    batches.begin(0)

    def decide(batch: Batch) -> Outcome:
        return Outcome.COMMITTED if batch.offset in over else Outcome.UNDECIDED

    log = [own(1, 10), own(1, 20), own(2, 60), own(2, 70)]
    batches.read(LOG_END, log, lambda _: Outcome.UNDECIDED)
    batches.stable_end(2, decide, LOG_END)
    assert batches.end is not None
    for _ in range(4):
        batches.read(LOG_END, [each for each in log if each.offset >= batches.end], decide)
        for stream in (1, 2):
            batches.stable_end(stream, decide, LOG_END)
    ends = [batches.stable_end(stream, decide, LOG_END) for stream in (1, 2)]
    assert [None if each is None else each.offset for each in ends] == [20, 70]
