"""Transactional ids whose producers have almost no epochs left, without the 32,765 requests that lead there.

The coordinator reads what it knows from its own topic, `__transaction_state`, when its broker starts. So its records
are written there first. `make deep` asks the 32,765 times, and is answered the same.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kordon.codecs import apis
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.headers import build_request_header, parse_response_header
from kordon.codecs.messages import request, response
from kordon.testing.kip_360.coordinator_plays import LAST_EPOCH
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.waiting import wait_until

_TOPIC: Final = "__transaction_state"
_ADMIN: Final = "__admin_client"
"""The client id from which brokers take records of their own topics."""
_PRODUCE: Final = 8
_FIRST_ID: Final = 1 << 32
"""Far behind all that brokers give."""
_EMPTY: Final = 0
"""The state of a transactional id whose producer has begun nothing."""
_FOR_A_DAY_MS: Final = 86_400_000
"""So that no id is forgotten meanwhile."""


def write_last_epochs(bootstrap: str, transactional_ids: Iterable[str]) -> None:
    """Writes that each id is one epoch before its last; the broker knows it when it has started again.

    Args:
        bootstrap: host:port of the only broker, whose coordinator has been asked before.
    """
    with PlainConnection(bootstrap) as connection:
        asked = {"topics": [{"name": _TOPIC}]}
        partitions = len(connection.ask(apis.METADATA, 1, asked).topics[0].partitions)
        for number, name in enumerate(transactional_ids):
            _write(connection, _hash_of(name) % partitions, _key(name), _value(_FIRST_ID + number))


def _write(connection: PlainConnection, partition: int, key: bytes, value: bytes) -> None:
    wait_until("the broker leads its partition", lambda: _is_written(connection, partition, key, value))


def _is_written(connection: PlainConnection, partition: int, key: bytes, value: bytes) -> bool:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 16_000_000)
    builder.append(0, timestamp=int(time.time() * 1000), key=key, value=value, headers=[])
    rows = [{"index": partition, "records": bytes(builder.build())}]
    fields = {"acks": -1, "timeout_ms": 10_000, "topic_data": [{"name": _TOPIC, "partition_data": rows}]}
    header = build_request_header(apis.PRODUCE, _PRODUCE, 0, _ADMIN)
    frame = connection.ask_frame(header + request(apis.PRODUCE).build(_PRODUCE, fields))
    _, consumed = parse_response_header(apis.PRODUCE, _PRODUCE, frame)
    code = response(apis.PRODUCE).parse(_PRODUCE, frame[consumed:]).responses[0].partition_responses[0].error_code
    assert code in (Code.NONE, Code.NOT_LEADER_OR_FOLLOWER), name_of(code)
    return bool(code == Code.NONE)


def _key(transactional_id: str) -> bytes:
    """Version 0 of TransactionLogKey."""
    name = transactional_id.encode()
    return struct.pack(">hh", 0, len(name)) + name


def _value(producer_id: int) -> bytes:
    """Version 0 of TransactionLogValue: no partitions, and a last use that is still to come."""
    used = int(time.time() * 1000) + _FOR_A_DAY_MS
    return struct.pack(">hqhibiqq", 0, producer_id, LAST_EPOCH - 1, 60_000, _EMPTY, -1, used, -1)


def _hash_of(name: str) -> int:
    """Returns Java's hash of an ASCII string, without its sign, by which coordinators share the ids."""
    found = 0
    for each in name.encode():
        found = (31 * found + each) & 0xFFFF_FFFF
    return found & 0x7FFF_FFFF
