"""SaslAuthenticate, api key 36."""

from __future__ import annotations

from kordon.codecs.primitives import BYTES, INT16, INT64, STRING
from kordon.codecs.schema import field, message

# A table reads line by line like its schema.
# fmt: off

REQUEST = message(
    "SaslAuthenticateRequest",
    field("auth_bytes", BYTES, "0+"),
    key=36, versions="0-2", flexible="2+",
)

RESPONSE = message(
    "SaslAuthenticateResponse",
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "0+", nullable="0+"),
    field("auth_bytes", BYTES, "0+"),
    field("session_lifetime_ms", INT64, "1+"),
    key=36, versions="0-2", flexible="2+",
)
