"""Messages as their receivers read them."""

from __future__ import annotations

from typing import Any

from kordon.codecs.row import Row
from kordon.codecs.schema import Message


def as_read(message: Message[Row], version: int, fields: Any) -> Any:
    """Returns what a receiver reads of a request or a response with these fields: it is built and parsed."""
    return message.parse(version, message.build(version, fields))
