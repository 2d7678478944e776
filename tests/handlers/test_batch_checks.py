"""What is refused before it has a line, by the header of its batch alone."""

import pytest

from kordon.codecs.error_codes import Code
from kordon.codecs.records import MAGIC_AT
from kordon.proxy.handlers.batch_checks import CheckedBatch, Unfit, look_records
from kordon.proxy.ordering.identity import LARGEST_CLIENT_ID
from kordon.testing.managed_writes import a_batch


@pytest.mark.parametrize("magic", [0, 1])
def test_batches_without_room_for_an_identity_are_refused(magic: int) -> None:
    """MAGIC-TWO: nobody could tell later whose their records are."""
    batch = bytearray(a_batch("a", producer_id=7, epoch=0, sequence=0))
    assert isinstance(look_records(9, batch), CheckedBatch)
    batch[MAGIC_AT] = magic
    refused = look_records(9, batch)
    assert isinstance(refused, Unfit)
    assert refused.code is Code.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert f"format v{magic}" in refused.message


def test_a_producer_id_that_reaches_into_anothers_tag_is_refused() -> None:
    """ORIGIN-TAG: with bits of its own where the tag stands it would write into another virtual partition."""
    largest = look_records(9, a_batch("a", producer_id=LARGEST_CLIENT_ID, epoch=0, sequence=0))
    assert largest == CheckedBatch(LARGEST_CLIENT_ID, 0, 0, 1)
    refused = look_records(9, a_batch("a", producer_id=LARGEST_CLIENT_ID + 1, epoch=0, sequence=0))
    assert isinstance(refused, Unfit)
    assert refused.code is Code.INVALID_PRODUCER_ID_MAPPING


def test_a_transactional_batch_is_refused() -> None:
    """NO-TRANSACTIONS: by its header, whether or not the transaction has named the topic before."""
    refused = look_records(9, a_batch("a", producer_id=7, epoch=0, sequence=0, txn=1))
    assert isinstance(refused, Unfit)
    assert refused.code is Code.INVALID_TXN_STATE
