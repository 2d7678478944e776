"""Answers that give one error for everything that a request asks for, as brokers give them.

Where a request has rows, its answer has the same ones, so it is made of the request by the answer's table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kordon.codecs.messages import response
from kordon.codecs.row import Row
from kordon.codecs.schema import Array, Field, Struct

_ERRORS: Final = frozenset({"error_code", "partition_error_code"})
_ASKED_AS: Final[Mapping[str, str]] = {
    "responses": "topic_data",
    "partition_responses": "partition_data",
    "results_by_topic_v3_and_below": "v3_and_below_topics",
    "results_by_partition": "partitions",
    "partitions": "partition_indexes",
}
"""The names in requests of rows that answers call differently; partitions may be bare numbers there."""


def refusal(api_key: int, version: int, asked: Row, code: int) -> Row:
    """Makes an answer."""
    return _mirrored(response(api_key).fields, version, asked, code)


def _mirrored(fields: Iterable[Field], version: int, asked: Row, code: int) -> Row:
    answer = Row()
    for field in fields:
        name = field.name
        asked_as = name if name in asked else _ASKED_AS.get(name, "")
        if version not in field.versions:
            continue
        if name in _ERRORS:
            answer[name] = code
        elif isinstance(field.type, Array) and isinstance(field.type.of, Struct):
            answer[name] = _rows(field.type.of, version, asked.get(asked_as, list[Row | int]()), code)
        elif not isinstance(field.type, Array | Struct) and asked.get(asked_as, None) is not None:
            answer[name] = asked[asked_as]
    return answer


def _rows(of: Struct, version: int, asked: Iterable[Row | int] | None, code: int) -> list[Row]:
    rows = (Row(partition_index=each) if isinstance(each, int) else each for each in asked or ())
    return [_mirrored(of.fields, version, each, code) for each in rows]
