"""Responses that Kordon gives itself, as whole frames."""

from __future__ import annotations

from struct import Struct
from typing import Final

from kordon.codecs import apis
from kordon.codecs.headers import response_header_version
from kordon.codecs.look import Buffer
from kordon.codecs.messages import response
from kordon.proxy.core import verdicts
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import Answer, Body, Throttled

_HEAD: Final = Struct(">ii")
_UNSUPPORTED_VERSION: Final = 35


def body_of(answer: Answer) -> bytes:
    """Returns the body of an answer, made and in one piece."""
    made = answer() if callable(answer) else answer
    body = made.body if isinstance(made, Throttled) else made
    return body if isinstance(body, bytes) else b"".join(body)


def answer_frame(route: Route, correlation_id: int, body: Body) -> list[Buffer]:
    """Makes a response frame, in pieces, so that records are not copied."""
    pieces = body if isinstance(body, list) else [body]
    tags = b"\0" * response_header_version(route.api.key, route.version)  # header v1 ends with a section of none
    return [_HEAD.pack(4 + len(tags) + sum(map(len, pieces)), correlation_id) + tags, *pieces]


def unsupported_api_versions(correlation_id: int) -> bytes:
    """Answers an ApiVersions request that is newer than Kordon: in version 0, with error 35 and the range to use.

    Brokers do the same (KIP-511; `ApiVersionsRequest.getErrorResponse` of Kafka 4.3).
    """
    versions = verdicts.API_BY_KEY[apis.API_VERSIONS].versions
    key = {"api_key": apis.API_VERSIONS, "min_version": versions[0], "max_version": versions[-1]}
    body = response(apis.API_VERSIONS).build(0, {"error_code": _UNSUPPORTED_VERSION, "api_keys": [key]})
    return _HEAD.pack(4 + len(body), correlation_id) + body
