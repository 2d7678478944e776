"""Connections that say hello and then nothing, to see what each of them costs a proxy."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Final

API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""A request that every broker answers: ApiVersions version 0, correlation id 1, no client id."""
_TIMEOUT_SECONDS: Final = 15.0


@contextmanager
def idle_connections(bootstrap: str, count: int, context: ssl.SSLContext | None = None) -> Generator[None, None, None]:
    """Keeps connections open while the block runs; each has had one answer from the broker; raises OSError."""
    host, _, port = bootstrap.rpartition(":")
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS))
            if context is not None:
                connection = stack.enter_context(context.wrap_socket(connection, server_hostname="localhost"))
            connection.sendall(API_VERSIONS)
            with connection.makefile("rb") as answers:
                size = answers.read(4)
                if not size or not answers.read(int.from_bytes(size, "big")):
                    raise ConnectionResetError("the proxy closed an idle connection")
        yield
