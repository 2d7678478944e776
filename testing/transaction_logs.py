"""What the logs of physical partitions hold of transactions, read at the brokers, as a line of words for each batch."""

from __future__ import annotations

from typing import Final

from kordon.codecs import apis
from kordon.codecs.records import BatchHeader, ControlType, batches, parse_control_batch
from kordon.codecs.unpack import records_of
from kordon.codecs.witness import is_witness
from kordon.proxy.ordering.identity import untag
from kordon.testing.plain_connection import PlainConnection

_FETCH: Final = 11
_BYTES: Final = 1 << 24


def log_words(bootstrap: str, topic: str, partition: int, *, is_open: bool = False) -> list[str]:
    """Reads a partition from its beginning at the broker that leads it.

    Args:
        is_open: Whether a transaction is open there. Otherwise the markers of the last one are waited for: a broker
            answers EndTxn before it writes them.

    Returns:
        For each batch "witness 2", with the number of its records; "commit" or "abort"; or for data their virtual
        partition, protocol and values, "v3 v1 a b", with "bypass" in place of the first two words for untagged ones.
    """
    found: list[str] = []
    offset = 0
    with PlainConnection(bootstrap) as connection:
        while True:
            parts = [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": _BYTES}]
            fields = {
                "max_wait_ms": 100,
                "min_bytes": 1,
                "max_bytes": _BYTES,
                "topics": [{"topic": topic, "partitions": parts}],
            }
            (row,) = connection.ask(apis.FETCH, _FETCH, fields).responses[0].partitions
            assert not row.error_code, row
            read = [span for span in batches(row.records or b"") if span.header is not None]
            if not read and (is_open or row.last_stable_offset == row.high_watermark):
                return found
            for span in read:
                assert span.header is not None
                found.append(_words(span.header, row.records[span.start : span.end]))
                offset = span.header.next_offset


def _words(header: BatchHeader, batch: memoryview) -> str:
    if header.is_control:
        return ControlType(parse_control_batch(batch).type).name.lower()
    if is_witness(header, batch):
        return f"witness {header.records_count}"
    values = " ".join(bytes(each.value or b"").decode() for each in records_of(batch, _BYTES))
    identity = untag(header.producer_id)
    if identity is None:
        return f"bypass {values}"
    protocol = identity.protocol.value if identity.protocol is not None else "plain"
    is_native = " native" if header.is_transactional else ""
    return f"v{identity.v} {protocol}{is_native} {values}"
