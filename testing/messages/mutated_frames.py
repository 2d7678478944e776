"""Requests of every kind, valid by their tables and then damaged: what a fuzzer sends, the same for the same seed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final
from uuid import UUID

from kordon.codecs import apis
from kordon.codecs.headers import build_request_header
from kordon.codecs.messages import REQUESTS
from kordon.codecs.primitives import Primitive
from kordon.codecs.schema import Array, Field, Type, plain_fields, tagged_fields
from kordon.proxy.core.verdicts import ROUTES, Route

_SIZE_BYTES: Final = 4
_TIMES_MS: Final = (-1, 0, 1, 100, 6000)
"""Short ones, as brokers keep a connection for as long as a request waits, be its client gone or not."""
_NUMBERS: Final = (-1, 0, 1, 2, 3, 5, 100, 2**15 - 1, 2**31 - 1)
_LENGTHS: Final = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff",
    b"\0",
    b"\xff\xff\xff\xff\x0f",
)
"""What lengths and counts are replaced by."""
_PER_CONNECTION: Final = 5
_AT_ONCE: Final = 64
_ANSWER_SECONDS: Final = 0.2
"""For the answers to a connection's requests; some wait for other members or for records, and nobody for them."""
_DELETES: Final = frozenset({apis.DELETE_TOPICS})
"""Would have the rest of a run meet no topic; sent of names that nobody has."""


class Mutator:
    """Makes damaged requests."""

    def __init__(self, seed: int, topics: Sequence[str]) -> None:
        self._random = Random(seed)  # noqa: S311 - it is to be the same each time
        self._topics = topics
        self._routes = [each for each in ROUTES if each.api.key in REQUESTS and each.api.key != apis.API_VERSIONS]

    def greeting(self) -> bytes:
        """Returns what a connection begins with: every other client speaks the dialect."""
        speaks = int(self._random.random() < 0.5)
        fields = {"client_software_name": "f", "client_software_version": "1", "kordon_client": speaks}
        return _framed(build_request_header(18, 3, 0, "fuzz") + REQUESTS[18].build(3, fields))

    def frame(self) -> bytes:
        """Returns a request frame; one in eight is valid."""
        route = self._random.choice(self._routes)
        header = build_request_header(route.api.key, route.version, self._random.randrange(1000), "fuzz")
        fields = REQUESTS[route.api.key].fields
        body = REQUESTS[route.api.key].build(route.version, self._struct(fields, route))
        if self._random.random() < 0.125:
            return _framed(header + body)
        return _framed(header + self._damaged(body))

    def _damaged(self, body: bytes) -> bytes:
        """Changes some bytes, or lengths, or cuts, or says something twice."""
        draw, data = self._random, bytearray(body)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(data) + 1)
            kind = draw.randrange(5)
            if kind == 0:
                data[at : at + 1] = draw.randbytes(1)
            elif kind == 1:
                number = draw.choice(_LENGTHS)
                data[at : at + len(number)] = number
            elif kind == 2:
                del data[at:]
            elif kind == 3:
                data[at:at] = data[at : at + draw.randint(1, 40)]
            else:
                data[at:at] = draw.randbytes(draw.randint(1, 20))
        return bytes(data)

    def _struct(self, fields: Sequence[Field], route: Route) -> dict[str, Any]:
        rows = [*plain_fields(tuple(fields), route.version)]
        rows += [row for row in tagged_fields(tuple(fields), route.version) if self._random.random() < 0.3]
        return {row.name: self._field(row, route) for row in rows}

    def _field(self, row: Field, route: Route) -> Any:
        if route.version in row.nullable and self._random.random() < 0.2:
            return None
        if row.name.endswith("_ms"):
            return self._random.choice(_TIMES_MS)
        return self._value(row.type, route)

    def _value(self, type_: Type, route: Route) -> Any:
        draw = self._random
        if isinstance(type_, Array):
            return [self._value(type_.of, route) for _ in range(draw.randrange(4))]
        if not isinstance(type_, Primitive):
            return self._struct(type_.fields, route)
        if isinstance(type_.default, bool):
            return draw.random() < 0.5
        if isinstance(type_.default, str):
            return self._text(route)
        if isinstance(type_.default, bytes):
            return draw.randbytes(draw.randrange(120))
        if isinstance(type_.default, UUID):
            return UUID(int=draw.getrandbits(128) if draw.random() < 0.5 else 0)
        if isinstance(type_.default, float):
            return draw.random()
        bits = 8 * type_.fixed_bytes - 1
        return max(-1, min(draw.choice(_NUMBERS), 2**bits - 1)) if not type_.name.startswith("u") else draw.randrange(9)

    def _text(self, route: Route) -> str:
        names = (
            ("no-such-topic",) if route.api.key in _DELETES else (*self._topics, "__kordon.layouts", "no-such-topic")
        )
        return self._random.choice((*names, "", "fuzz-group", "consumer", "range", "x" * 300, "[a-"))


async def send_mutated(bootstrap: str, mutator: Mutator, frames: int) -> None:
    """Sends damaged requests on many connections, a few on each; returns when all of them are gone."""
    host, _, port = bootstrap.rpartition(":")
    limit = asyncio.Semaphore(_AT_ONCE)

    async def send(data: bytes) -> None:
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
            with suppress(OSError, TimeoutError):
                writer.write(data)
                writer.write_eof()
                async with asyncio.timeout(_ANSWER_SECONDS):
                    while await reader.read(65536):
                        pass
            writer.transport.abort()
        finally:
            limit.release()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(frames // _PER_CONNECTION):
            await limit.acquire()
            data = b"".join([mutator.greeting(), *(mutator.frame() for _ in range(_PER_CONNECTION))])
            tasks.create_task(send(data))


def _framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(_SIZE_BYTES, "big") + frame
