"""Clients that never log in and send what costs its reader most.

Run it by `python -m kordon.testing.messages.hostile_rows ADDRESS …`.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic
from typing import Final

from kordon.proxy.config.config import Limits
from kordon.testing.messages.smallest_rows import request_of_rows, routes_with_rows

_LARGE_BYTES: Final = 1024 * 1024
_END_SECONDS: Final = 5.0
"""For the proxy to end a connection whose request is in its hands."""
_PAUSE_SECONDS: Final = 0.02
"""Between two requests of a client: a broker is asked for a connection each time, and has others to serve as well."""


def frames(topic: str) -> list[bytes]:
    """Returns requests of every kind: as many rows as are read of a stranger, more than are, and more than of anybody.

    Args:
        topic: A managed one, which some of the rows name.
    """
    limits = Limits()
    shapes = [
        (limits.request_rows - 1, limits.unproven_bytes - 1, ""),
        (limits.request_rows - 1, limits.unproven_bytes - 1, topic),
        (limits.request_rows - 1, _LARGE_BYTES, ""),
        (_LARGE_BYTES, _LARGE_BYTES, ""),
    ]
    newest = {route.api.key: route for route in routes_with_rows()}.values()
    return [request_of_rows(route, rows, most, name) for route in newest for rows, most, name in shapes]


async def attack(bootstrap: str, seconds: float, connections: int, topic: str) -> int:
    """Sends each of them, and again for so long, on so many connections at once, one on each; returns how many."""
    host, _, port = bootstrap.rpartition(":")
    left = _until_over(frames(topic), seconds)
    counts = await asyncio.gather(*(_one(host, int(port), left) for _ in range(connections)))
    return sum(counts)


def _until_over(each_once: list[bytes], seconds: float) -> Iterator[bytes]:
    yield from each_once
    until = monotonic() + seconds
    yield from itertools.takewhile(lambda _: monotonic() < until, itertools.cycle(each_once))


async def _one(host: str, port: int, left: Iterator[bytes]) -> int:
    count = 0
    for frame in left:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(frame)
                count += 1
                while await reader.read(65536):
                    pass
                writer.close()
        await asyncio.sleep(_PAUSE_SECONDS)
    return count


if __name__ == "__main__":
    print(asyncio.run(attack(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))
