"""SaslHandshake, api key 17."""

from __future__ import annotations

from kordon.codecs.primitives import INT16, STRING
from kordon.codecs.schema import array, field, message

# A table reads line by line like its schema.
# fmt: off

# Version 1 supports SASL_AUTHENTICATE. NOTE: Version cannot be easily bumped due to incorrect client negotiation
# for clients <= 2.4. See https://issues.apache.org/jira/browse/KAFKA-9577
REQUEST = message(
    "SaslHandshakeRequest",
    field("mechanism", STRING, "0+"),
    key=17, versions="0-1",
)

# Version 1 is the same as version 0. NOTE: Version cannot be easily bumped due to incorrect client negotiation
# for clients <= 2.4. See https://issues.apache.org/jira/browse/KAFKA-9577
RESPONSE = message(
    "SaslHandshakeResponse",
    field("error_code", INT16, "0+"),
    field("mechanisms", array(STRING), "0+"),
    key=17, versions="0-1",
)
