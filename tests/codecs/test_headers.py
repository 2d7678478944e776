"""Headers: the version that goes with each message, and the same bytes as kio's."""

import io
from typing import Any

import pytest
from kio.schema.request_header import v1 as request_v1
from kio.schema.request_header import v2 as request_v2
from kio.schema.response_header import v0 as response_v0
from kio.schema.response_header import v1 as response_v1
from kio.serial import entity_writer

from kordon.codecs.errors import WireError
from kordon.codecs.headers import (
    RequestHeader,
    build_request_header,
    build_response_header,
    parse_request_header,
    parse_response_header,
    request_header_version,
    response_header_version,
)


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@pytest.mark.parametrize("client_id", [None, "", "me", "é🙂"])
@pytest.mark.parametrize(
    ("api_key", "version", "module"), [(3, 8, request_v1.header), (3, 9, request_v2.header), (17, 1, request_v1.header)]
)
def test_request_header_equals_kio(api_key: int, version: int, module: Any, client_id: str | None) -> None:
    """Both versions; the client id is never compact."""
    theirs: dict[str, Any] = {"request_api_key": api_key, "request_api_version": version, "correlation_id": 77}
    data = build_request_header(api_key, version, 77, client_id)
    assert data == written(module.RequestHeader(**theirs, client_id=client_id))
    assert parse_request_header(data + b"body") == (RequestHeader(api_key, version, 77, client_id), len(data))


@pytest.mark.parametrize(
    ("api_key", "version", "module"),
    [(3, 8, response_v0.header), (3, 9, response_v1.header), (18, 4, response_v0.header)],
)
def test_response_header_equals_kio(api_key: int, version: int, module: Any) -> None:
    """Both versions."""
    data = build_response_header(api_key, version, -5)
    assert data == written(module.ResponseHeader(correlation_id=-5))
    header, consumed = parse_response_header(api_key, version, data + b"body")
    assert (header.correlation_id, header.tagged, consumed) == (-5, {}, len(data))


def test_answer_to_api_versions_has_the_oldest_header() -> None:
    """Its reader does not know yet what the broker speaks (KIP-511); the request is flexible all the same."""
    assert [response_header_version(18, version) for version in range(5)] == [0] * 5
    assert [request_header_version(18, version) for version in range(5)] == [1, 1, 1, 2, 2]


def test_tagged_fields_of_headers_are_kept() -> None:
    """What a client adds to its header is read and written again."""
    data = build_request_header(3, 12, 1, "me", {3: b"x"})
    header, _ = parse_request_header(data)
    assert header.tagged == {3: b"x"}
    assert build_request_header(3, 12, 1, "me", header.tagged) == data


def test_header_cut_at_every_byte_is_refused() -> None:
    """No part of a header is taken for one."""
    data = build_request_header(3, 12, 1, "me", {3: b"x"})
    for length in range(len(data)):
        with pytest.raises(WireError, match="RequestHeader v"):
            parse_request_header(data[:length])
