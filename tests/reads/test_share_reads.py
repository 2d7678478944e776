"""What share groups are shown of what is read: data records, and committed ones only where the group asks for that."""

from unittest.mock import MagicMock

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kordon.codecs.bodies import FetchResponseAbortedTransaction, FetchResponsePartition
from kordon.codecs.error_codes import Code
from kordon.codecs.primitives import Pieces
from kordon.codecs.records import patch_base_offset
from kordon.codecs.split import filler
from kordon.proxy.reads.fetch_rows import empty_row, told_row
from kordon.proxy.reads.share_reads import ShareReads

LIMIT_BYTES = 1 << 16
ABORTED, COMMITTED = 7, 8


def batch(offset: int, count: int, producer_id: int = -1, *, is_transactional: bool = False) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, int(is_transactional), producer_id, 0, 0, 1 << 16)
    for number in range(count):
        assert builder.append(number, 1_000, b"k%d" % number, b"v", []) is not None
    made = bytearray(builder.build())
    patch_base_offset(made, 0, offset)
    return bytes(made)


def row(*pieces: bytes, aborted: int | None = None) -> FetchResponsePartition:
    made = told_row(0, 100, 0, Pieces(pieces))
    if aborted is not None:
        made.aborted_transactions = [FetchResponseAbortedTransaction(producer_id=ABORTED, first_offset=aborted)]
    return made


@pytest.fixture
def reads() -> ShareReads:
    """Returns one that opens batches of 64 KB at most."""
    return ShareReads(MagicMock(), MagicMock(), LIMIT_BYTES)


def offsets(reads: ShareReads, read: FetchResponsePartition, offset: int = 0, most: int = 100) -> list[int]:
    found = reads.opened(read, offset, most)
    return [record.offset for each in found.batches for record in each.records]


def test_offsets_without_records_are_looked_at(reads: ShareReads) -> None:
    """A control batch moves on whoever reads, and is given to nobody."""
    found = reads.opened(row(batch(0, 2), filler(2, 50, 0)), 0, 100)
    assert (found.end, len(found.batches), found.error) == (50, 1, Code.NONE)


def test_records_of_aborted_transactions_are_given_to_nobody(reads: ShareReads) -> None:
    """From the first offset of the transaction to its marker; the same producer's next transaction is another."""
    transactions = [
        batch(0, 2, COMMITTED, is_transactional=True),
        batch(2, 2, ABORTED, is_transactional=True),
        batch(4, 1),
        filler(5, 6, 0)[:43] + ABORTED.to_bytes(8, "big") + filler(5, 6, 0)[51:],
        batch(6, 1, ABORTED, is_transactional=True),
    ]
    assert offsets(reads, row(*transactions, aborted=2)) == [0, 1, 4, 6]
    assert offsets(reads, row(*transactions)) == [0, 1, 2, 3, 4, 6]


def test_it_stops_at_the_end_of_the_batch_in_which_there_is_enough(reads: ShareReads) -> None:
    """What comes behind it was not looked at."""
    found = reads.opened(row(batch(0, 3), batch(3, 3), batch(6, 3)), 0, 4)
    assert (found.end, len(found.batches)) == (6, 2)


def test_a_batch_that_cannot_be_opened_is_passed_over_by_nobody(reads: ShareReads) -> None:
    """Its records would count as done, and nobody would have seen them."""
    damaged = bytearray(batch(2, 2))
    damaged[61] = 0x7F
    found = reads.opened(row(batch(0, 2), bytes(damaged), batch(4, 1)), 0, 100)
    assert (found.end, len(found.batches), found.error) == (2, 1, Code.CORRUPT_MESSAGE)


def test_an_error_is_told_and_nothing_is_looked_at(reads: ShareReads) -> None:
    """The group stands where it stood."""
    found = reads.opened(empty_row(0, 5, Code.NOT_LEADER_OR_FOLLOWER), 5, 100)
    assert (found.end, found.batches, found.error) == (5, (), Code.NOT_LEADER_OR_FOLLOWER)
