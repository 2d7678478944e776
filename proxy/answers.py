"""Responses that Kordon gives itself, as whole frames."""

from __future__ import annotations

from struct import Struct
from typing import Final

from kordon.codecs.messages import response
from kordon.proxy import apis

_HEAD: Final = Struct(">ii")
_UNSUPPORTED_VERSION: Final = 35


def unsupported_api_versions(correlation_id: int) -> bytes:
    """Answers an ApiVersions request that is newer than Kordon: in version 0, with error 35 and the range to use.

    Brokers do the same (KIP-511; `ApiVersionsRequest.getErrorResponse` of Kafka 4.3).
    """
    versions = apis.API_BY_KEY[apis.API_VERSIONS].versions
    key = {"api_key": apis.API_VERSIONS, "min_version": versions[0], "max_version": versions[-1]}
    body = response(apis.API_VERSIONS).build(0, {"error_code": _UNSUPPORTED_VERSION, "api_keys": [key]})
    return _HEAD.pack(4 + len(body), correlation_id) + body
