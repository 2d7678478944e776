"""A plain, blocking connection to a broker or proxy, for tests that say exactly what is sent."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, Self

from kordon.codecs.headers import build_request_header, parse_response_header
from kordon.codecs.messages import request, response


class PlainConnection:
    """Asks one question at a time."""

    def __init__(self, bootstrap: str, *, timeout_seconds: float = 60) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_seconds)
        self._stream = self._socket.makefile("rb")
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def fileno(self) -> int:
        """Returns the socket's number, for those who wait for bytes."""
        return self._socket.fileno()

    def ask(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """Sends a request; returns the response, parsed; raises EOFError."""
        return response(api_key).parse(version, self.ask_bytes(api_key, version, fields))

    def ask_bytes(self, api_key: int, version: int, fields: Mapping[str, Any]) -> bytes:
        """Sends a request; returns the body of the response; raises EOFError."""
        self.tell(api_key, version, fields)
        return self.told(api_key, version)

    def tell(self, api_key: int, version: int, fields: Mapping[str, Any]) -> None:
        """Sends a request whose response is waited for later, or that has none: Produce with acks=0."""
        self.tell_frame(self._frame(api_key, version, fields))

    def told(self, api_key: int, version: int) -> bytes:
        """Returns the body of the response to the request that was sent last; raises EOFError."""
        answer = self.told_frame()
        read, consumed = parse_response_header(api_key, version, answer)
        if read.correlation_id != self._correlation_id:
            raise ValueError(f"an answer to request {read.correlation_id}, not to {self._correlation_id}")
        return answer[consumed:]

    def ask_frame(self, frame: bytes) -> bytes:
        """Sends whatever a frame holds; returns what the next frame of the other side holds, headers included.

        Raises:
            EOFError: The other side closed the connection.
        """
        self.tell_frame(frame)
        return self.told_frame()

    def tell_frame(self, frame: bytes) -> None:
        """Sends whatever a frame holds."""
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)

    def told_frame(self) -> bytes:
        """Returns what the next frame of the other side holds, headers included; raises EOFError."""
        return self._read(int.from_bytes(self._read(4), "big"))

    def _frame(self, api_key: int, version: int, fields: Mapping[str, Any]) -> bytes:
        self._correlation_id += 1
        header = build_request_header(api_key, version, self._correlation_id, "test")
        return header + request(api_key).build(version, fields)

    def _read(self, count: int) -> bytes:
        read = self._stream.read(count)
        if len(read) < count:
            raise EOFError("the other side closed the connection")
        return read
