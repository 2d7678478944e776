"""Makes the witness of a transaction, as `codecs/witness.py` recognises it."""

from __future__ import annotations

from typing import Final

from kordon.codecs.witness import WITNESS_KEY, WITNESS_RECORDS_V1, WITNESS_RECORDS_V2
from kordon.proxy.kafka.batches import BatchIdentity, NewRecord, build_batch
from kordon.proxy.ordering.transactions.events import Protocol

_RECORDS: Final = {Protocol.V1: WITNESS_RECORDS_V1, Protocol.V2: WITNESS_RECORDS_V2}


def build_witness(identity: BatchIdentity, protocol: Protocol) -> bytes:
    """Makes a witness, with the time of now.

    Args:
        identity: The client's own producer. In the second protocol the sequence is 0, as each transaction has an epoch
            of its own; in the first see `open_answers.witness_sequence`.
    """
    record = NewRecord(WITNESS_KEY.decode(), None)
    return build_batch([record] * _RECORDS[protocol], identity, is_transactional=True)
