"""Request and response headers: which version goes with which message, what reads and writes them.

A flexible message has a header with tagged fields, with one exception: the response to ApiVersions has header 0
always, because its reader does not know yet what the broker speaks (KIP-511). The client id keeps its old encoding
in all versions, for the same reason.

The path of every frame reads headers by `kordon.codecs.look`, which is tested against this.

Source: RequestHeader.json, ResponseHeader.json, ApiMessageType.requestHeaderVersion in Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as attribute
from struct import Struct
from typing import Final

from kordon.codecs.look import Buffer
from kordon.codecs.messages import REQUESTS
from kordon.codecs.primitives import INT16, INT32, STRING
from kordon.codecs.schema import field, message

API_VERSIONS: Final = 18

_REQUEST_START: Final = Struct(">hhih")
"""Api key, version, correlation id, length of the client id."""

# A table reads line by line like its schema.
# fmt: off
# Version 0 carries no client id; only ControlledShutdown v0, which no client sends, ever used it.
# A client id comes with version 1, tagged fields with version 2.
REQUEST_HEADER = message(
    "RequestHeader",
    field("request_api_key", INT16, "0+"),
    field("request_api_version", INT16, "0+"),
    field("correlation_id", INT32, "0+"),
    field("client_id", STRING, "1+", nullable="1+", flexible="none"),
    versions="1-2", flexible="2+",
)

# Tagged fields come with version 1.
RESPONSE_HEADER = message(
    "ResponseHeader",
    field("correlation_id", INT32, "0+"),
    versions="0-1", flexible="1+",
)

_UNREAD: Final[dict[int, int | None]] = {
    4: 4, 5: 2, 6: 6, 7: 3, 27: 1, 34: 2, 35: 2, 38: 2, 39: 2, 40: 2, 41: 2, 43: 2, 48: 1, 49: 1,
    53: 1, 54: 1,
}
FLEXIBLE_SINCE: Final = _UNREAD | {api_key: request.flexible for api_key, request in REQUESTS.items()}
"""First flexible version by api key, None if there is none; keys that are not here began flexible, as all new ones."""
# fmt: on


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    tagged: dict[int, bytes] = attribute(default_factory=dict[int, bytes])
    """Tagged fields, none of which Kafka knows so far; empty in version 1."""


@dataclass(frozen=True, slots=True)
class ResponseHeader:
    """The header of a response."""

    correlation_id: int
    tagged: dict[int, bytes] = attribute(default_factory=dict[int, bytes])
    """Tagged fields, none of which Kafka knows so far; empty in version 0."""


def is_flexible(api_key: int, version: int) -> bool:
    """Tells whether a version of a request (and of its response) is flexible."""
    since = FLEXIBLE_SINCE.get(api_key, 0)
    return since is not None and version >= since


def request_header_version(api_key: int, version: int) -> int:
    """Returns the version of the header in front of a request."""
    return 2 if is_flexible(api_key, version) else 1


def response_header_version(api_key: int, version: int) -> int:
    """Returns the version of the header in front of a response."""
    return 1 if is_flexible(api_key, version) and api_key != API_VERSIONS else 0


def parse_request_header(buffer: Buffer) -> tuple[RequestHeader, int]:
    """Reads the header at the start of `buffer`, of the version that its own api key and version ask for.

    Args:
        buffer: A request behind its size field.

    Returns:
        The header, and where the body begins.

    Raises:
        WireError: The bytes are no request header.
    """
    found = _look_request_header(buffer)
    if found is not None:
        return found
    start = bytes(buffer[:4])
    api_key, version = (int.from_bytes(start[at : at + 2], "big", signed=True) for at in (0, 2))
    value, consumed = REQUEST_HEADER.at(request_header_version(api_key, version)).parse(buffer)
    header = RequestHeader(api_key, version, value.correlation_id, value.client_id, value.get("_tagged", {}))
    return header, consumed


def _look_request_header(buffer: Buffer) -> tuple[RequestHeader, int] | None:
    """Reads a header without tagged fields, which all are that clients send; None: the table is to read it."""
    if len(buffer) <= _REQUEST_START.size:
        return None
    api_key, version, correlation_id, length = _REQUEST_START.unpack_from(buffer)
    end = _REQUEST_START.size + max(length, 0)
    flexible = is_flexible(api_key, version)
    if length < -1 or end + flexible > len(buffer) or (flexible and buffer[end]):
        return None
    try:
        client_id = None if length < 0 else str(buffer[_REQUEST_START.size : end], "utf-8")
    except UnicodeDecodeError:
        return None
    return RequestHeader(api_key, version, correlation_id, client_id), end + flexible


def build_request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None, tagged: dict[int, bytes] | None = None
) -> bytes:
    """Writes the header of a request.

    Raises:
        BuildError: A number is out of its range.
    """
    fields = {
        "request_api_key": api_key,
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": client_id,
        "_tagged": tagged,
    }
    return REQUEST_HEADER.build(request_header_version(api_key, version), fields)


def parse_response_header(api_key: int, version: int, buffer: Buffer) -> tuple[ResponseHeader, int]:
    """Reads the header at the start of `buffer`.

    Args:
        api_key: Of the request that is answered.
        buffer: A response behind its size field.

    Returns:
        The header, and where the body begins.

    Raises:
        WireError: The bytes are no response header.
    """
    value, consumed = RESPONSE_HEADER.at(response_header_version(api_key, version)).parse(buffer)
    return ResponseHeader(value.correlation_id, value.get("_tagged", {})), consumed


def build_response_header(
    api_key: int, version: int, correlation_id: int, tagged: dict[int, bytes] | None = None
) -> bytes:
    """Writes the header of a response.

    Raises:
        BuildError: The correlation id is out of its range.
    """
    fields = {"correlation_id": correlation_id, "_tagged": tagged}
    return RESPONSE_HEADER.build(response_header_version(api_key, version), fields)
