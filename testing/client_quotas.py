"""Sets quotas of clients at a broker, and says as whom a request comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.headers import build_request_header, parse_response_header
from kordon.codecs.messages import request, response
from kordon.codecs.primitives import BOOL, FLOAT64, INT16, INT32, STRING
from kordon.codecs.schema import Message, array, field, message, struct
from kordon.testing.managed_writes import a_batch
from kordon.testing.plain_connection import PlainConnection

# fmt: off
_ALTER: Final[Message[Any]] = message(
    "AlterClientQuotasRequest",
    field("entries", array(struct(
        field("entity", array(struct(
            field("entity_type", STRING, "0+"),
            field("entity_name", STRING, "0+", nullable="0+"),
        )), "0+"),
        field("ops", array(struct(
            field("key", STRING, "0+"),
            field("value", FLOAT64, "0+"),
            field("remove", BOOL, "0+"),
        )), "0+"),
    )), "0+"),
    field("validate_only", BOOL, "0+"),
    key=49, versions="0-1", flexible="1+",
)
_ALTERED: Final[Message[Any]] = message(
    "AlterClientQuotasResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("entries", array(struct(
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "0+", nullable="0+"),
        field("entity", array(struct(
            field("entity_type", STRING, "0+"),
            field("entity_name", STRING, "0+", nullable="0+"),
        )), "0+"),
    )), "0+"),
    key=49, versions="0-1", flexible="1+",
)
# fmt: on
_CORRELATION_ID: Final = 1
_PRODUCE_VERSION: Final = 8


def set_quotas(bootstrap: str, entity: Mapping[str, str | None], quotas: Mapping[str, float | None]) -> None:
    """Sets quotas; raises AssertionError if the broker refuses.

    Args:
        entity: Names by "user" and "client-id"; None: the default.
        quotas: By kind; None removes it.
    """
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()]
    who = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    body = _ALTER.build(0, {"entries": [{"entity": who, "ops": ops}], "validate_only": False})
    with PlainConnection(bootstrap) as connection:
        answer = connection.ask_frame(build_request_header(49, 0, _CORRELATION_ID, "test") + body)
    (entry,) = _ALTERED.parse(0, answer[4:]).entries
    assert not entry.error_code, entry.error_message


def ask_as(client_id: str, connection: PlainConnection, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
    """Sends a request as somebody; returns the response, parsed."""
    header = build_request_header(api_key, version, _CORRELATION_ID, client_id)
    answer = connection.ask_frame(header + request(api_key).build(version, fields))
    _, consumed = parse_response_header(api_key, version, answer)
    return response(api_key).parse(version, answer[consumed:])


def write_as(client_id: str, connection: PlainConnection, topic: str, count: int) -> int:
    """Writes one record of so many bytes to partition 0; returns for how long the client is told to wait, in ms."""
    rows = [{"name": topic, "partition_data": [{"index": 0, "records": a_batch("x" * count)}]}]
    asked = {"transactional_id": None, "acks": -1, "timeout_ms": 30_000, "topic_data": rows}
    answer = ask_as(client_id, connection, apis.PRODUCE, _PRODUCE_VERSION, asked)
    assert answer.responses[0].partition_responses[0].error_code == 0
    throttled: int = answer.throttle_time_ms
    return throttled
