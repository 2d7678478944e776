"""Answers that give one error for everything that a request asks for, as brokers give them.

Where a request has rows, its answer has the same ones, so it is made of the request by the answer's table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kordon.codecs.messages import RESPONSES
from kordon.codecs.schema import Array, Field, Struct

_ERRORS: Final = frozenset({"error_code", "partition_error_code"})
_ASKED_AS: Final[Mapping[str, str]] = {
    "responses": "topic_data",
    "partition_responses": "partition_data",
    "results_by_topic_v3_and_below": "v3_and_below_topics",
    "results_by_partition": "partitions",
}
"""The names in requests of rows that answers call differently."""
_NUMBERS: Final = "partition_indexes"
"""Partitions of an old OffsetFetch, which are bare numbers there and rows in the answer."""


def refusal(api_key: int, version: int, asked: Mapping[str, Any], code: int) -> dict[str, Any]:
    """Makes the fields of an answer.

    Args:
        api_key: Of the request.
        version: Likewise.
        asked: The request, parsed.
        code: The error.
    """
    return _mirrored(RESPONSES[api_key].fields, version, asked, code)


def _mirrored(rows: Iterable[Field], version: int, asked: Mapping[str, Any], code: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for row in rows:
        if version not in row.versions:
            continue
        found = asked.get(row.name, asked.get(_ASKED_AS.get(row.name, "")))
        if row.name in _ERRORS:
            fields[row.name] = code
        elif isinstance(row.type, Array) and isinstance(row.type.of, Struct):
            fields[row.name] = _rows(row.type.of, version, found or _numbered(row.name, asked), code)
        elif not isinstance(row.type, Array | Struct) and found is not None:
            fields[row.name] = found
    return fields


def _numbered(name: str, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"partition_index": each} for each in asked.get(_NUMBERS, ())] if name == "partitions" else []


def _rows(of: Struct, version: int, asked: Iterable[Any], code: int) -> list[dict[str, Any]]:
    rows = ({"partition_index": each} if isinstance(each, int) else each for each in asked)
    return [_mirrored(of.fields, version, each, code) for each in rows]
