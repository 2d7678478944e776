"""Single requests of which plays are made (`fault_plays.py`, `fault_variants.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kordon.codecs import apis
from kordon.codecs.error_codes import Code, name_of
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.dialect.reader import next_offset
from kordon.testing.plain_connection import PlainConnection

_STOCK_PRODUCE: Final = 9
_STOCK_FETCH: Final = 11


def new_producer(client: PlainConnection) -> tuple[int, int]:
    """Returns a producer id and epoch that nobody has."""
    answer = client.ask(apis.INIT_PRODUCER_ID, 3, {"transactional_id": None, "transaction_timeout_ms": 60_000})
    assert_accepted(answer.error_code)
    return answer.producer_id, answer.producer_epoch


def keyed(identity: tuple[int, int], sequence: int, keys: Iterable[bytes], value: bytes = b"value") -> bytes:
    """Returns a batch with a record for each key, by a producer with this id and epoch."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, *identity, sequence, 16_000_000)
    for delta, key in enumerate(keys):
        builder.append(delta, timestamp=1_700_000_000_000, key=key, value=value, headers=[])
    return bytes(builder.build())


def one_record(identity: tuple[int, int], sequence: int, value: str) -> bytes:
    """Returns a batch of one record, by a producer with this id and epoch."""
    return keyed(identity, sequence, [b"key"], value.encode())


def write(client: DialectConnection, topic: str, partition: int, count: int) -> int:
    """Writes a record to a physical partition; returns the error code."""
    epoch = client.metadata(topic).layout_epoch
    code: int = client.produce(topic, partition, one_record(new_producer(client), 0, "value"), count, epoch).error_code
    return code


def produce(client: PlainConnection, topic: str, partition: int, batch: bytes) -> int:
    """Writes a batch as stock clients do; returns the error code."""
    row = {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
    answer = client.ask(apis.PRODUCE, _STOCK_PRODUCE, {"acks": -1, "timeout_ms": 10_000, "topic_data": [row]})
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def _fetch(client: PlainConnection, topic: str, partition: int, offset: int) -> Any:
    """Reads a partition once as stock clients do; returns its row."""
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    fields = {"max_wait_ms": 500, "min_bytes": 1, "topics": [{"topic": topic, "partitions": [asked]}]}
    return client.ask(apis.FETCH, _STOCK_FETCH, fields).responses[0].partitions[0]


def read_to(client: PlainConnection, topic: str, end: int) -> None:
    """Reads a partition from its beginning, as stock clients do."""
    offset = 0
    while offset < end:
        row = _fetch(client, topic, 0, offset)
        assert_accepted(row.error_code)
        offset = next_offset(row, offset)


def assert_accepted(*codes: int) -> None:
    """Asserts that no request was refused, by the error codes of all."""
    assert not any(codes), [name_of(code) for code in codes if code != Code.NONE]
