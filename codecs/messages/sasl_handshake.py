"""SaslHandshake, api key 17."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import SaslHandshakeRequest, SaslHandshakeResponse
from kordon.codecs.primitives import INT16, STRING
from kordon.codecs.schema import Api, Message, array, field, message

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[SaslHandshakeRequest]] = message(
    "SaslHandshakeRequest",
    field("mechanism", STRING, "0+"),
    key=17, versions="0-1",
)

RESPONSE: Final[Message[SaslHandshakeResponse]] = message(
    "SaslHandshakeResponse",
    field("error_code", INT16, "0+"),
    field("mechanisms", array(STRING), "0+"),
    key=17, versions="0-1",
)

API: Final = Api(REQUEST, RESPONSE)
