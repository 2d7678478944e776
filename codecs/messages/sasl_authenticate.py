"""SaslAuthenticate, api key 36."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import SaslAuthenticateRequest, SaslAuthenticateResponse
from kordon.codecs.primitives import BYTES, INT16, INT64, STRING
from kordon.codecs.schema import Api, Message, field, message

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[SaslAuthenticateRequest]] = message(
    "SaslAuthenticateRequest",
    field("auth_bytes", BYTES, "0+"),
    key=36, versions="0-2", flexible="2+",
)

RESPONSE: Final[Message[SaslAuthenticateResponse]] = message(
    "SaslAuthenticateResponse",
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "0+", nullable="0+"),
    field("auth_bytes", BYTES, "0+"),
    field("session_lifetime_ms", INT64, "1+"),
    key=36, versions="0-2", flexible="2+",
)

API: Final = Api(REQUEST, RESPONSE)
