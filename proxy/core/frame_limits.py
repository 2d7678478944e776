"""What a request may be like before anything of it is believed: its size, its client id, its head."""

from __future__ import annotations

from typing import Final, Protocol

from kordon.codecs.look import SIZE_BYTES, SMALLEST_REQUEST, look_size
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import ClientProtocolError
from kordon.proxy.core.verdicts import api_name

_SPOKEN_BY_OTHERS: Final = {
    b"\x16\x03": "TLS (this listener is plain; connect without TLS, or give it listen.tls)",
    b"GET ": "HTTP",
    b"POST": "HTTP",
    b"PUT ": "HTTP",
    b"HEAD": "HTTP",
    b"OPTI": "HTTP",
    b"CONN": "HTTP",
    b"PRI ": "HTTP/2",
    b"SSH-": "SSH",
}


class FrameLimits(Protocol):
    """The limits that frames are compared with (`kordon.proxy.config.config.Limits`)."""

    @property
    def frame_bytes(self) -> int:
        """Largest frame, in bytes after the size field."""
        ...

    @property
    def header_bytes(self) -> int:
        """Largest client id, and largest head up to a Produce request's acks, in bytes."""
        ...

    @property
    def request_bytes(self) -> int:
        """Largest request that is held until it is whole, if it is not a Produce request, in bytes."""
        ...

    @property
    def unproven_bytes(self) -> int:
        """The most bytes that are kept of a client before its broker has accepted it."""
        ...

    @property
    def requests_in_flight(self) -> int:
        """Requests of one connection without a response before its client is read no further."""
        ...


def check_size(limits: FrameLimits, chunk: memoryview, at: int, *, is_first: bool) -> None:
    """Checks the size of the request that begins at `at`.

    Args:
        at: The position at which the request begins. The four bytes of its size are there.
        is_first: Whether the client has sent no request before: it may not speak Kafka at all.

    Raises:
        ClientProtocolError: The size is refused.
    """
    size = look_size(chunk, at)
    if SMALLEST_REQUEST <= size <= limits.frame_bytes:
        return
    if is_first:
        opening = bytes(chunk[at : at + SIZE_BYTES])
        spoken = _SPOKEN_BY_OTHERS.get(opening) or _SPOKEN_BY_OTHERS.get(opening[:2])
        if spoken:
            raise ClientProtocolError(CloseCause.NOT_KAFKA, f"the client speaks {spoken}, not Kafka")
    if size > limits.frame_bytes:
        detail = f"a request of {size} bytes; limits.frame_bytes allows {limits.frame_bytes}"
        raise ClientProtocolError(CloseCause.FRAME_TOO_LARGE, detail)
    raise ClientProtocolError(CloseCause.MALFORMED_REQUEST, f"a request cannot have a size of {size} bytes")


def too_long_a_head(limits: FrameLimits, api_key: int, size: int, client_id_bytes: int = 0) -> ClientProtocolError:
    """Says what is wrong with the head of a request of `size` bytes, whose client id has so many."""
    name = api_name(api_key)
    if client_id_bytes > size - SMALLEST_REQUEST:
        detail = f"the client id of a {name} request is longer than the request"
        return ClientProtocolError(CloseCause.MALFORMED_REQUEST, detail)
    detail = f"the head of a {name} request exceeds limits.header_bytes ({limits.header_bytes})"
    return ClientProtocolError(CloseCause.HEADER_TOO_LARGE, detail)
