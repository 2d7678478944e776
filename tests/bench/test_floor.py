"""The floor relays every byte both ways and sees every frame's header, however the stream is cut."""

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable

import uvloop
from hypothesis import given
from hypothesis import strategies as st

from kordon.bench.floor import REQUEST_HEAD, Floor, Heads

WAIT_SECONDS = 60.0


@given(
    sizes=st.lists(st.integers(REQUEST_HEAD.size - 4, 60), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 70), min_size=1, max_size=20),
)
def test_every_head_is_seen_however_the_stream_is_cut(sizes: list[int], cuts: list[int]) -> None:
    """Heads that straddle chunks are read once and right."""
    frames = [REQUEST_HEAD.pack(size, 3, 12, number) + bytes(size - 8) for number, size in enumerate(sizes)]
    stream = b"".join(frames)
    heads = Heads(REQUEST_HEAD)
    seen: list[int] = []
    cut = 0
    while stream:
        length = min(cuts[cut % len(cuts)], len(stream))
        heads.look(memoryview(bytearray(stream[:length])), length)
        stream, cut = stream[length:], cut + 1
        seen.append(heads.frames)
    assert heads.frames == len(sizes)
    assert heads.last == (sizes[-1], 3, 12, len(sizes) - 1)
    assert seen == sorted(seen)


async def relayed(scenario: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
    """Plays a scenario on a connection that leads through the floor to a peer that sends back what it gets."""
    peer_saw_the_end = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        peer_saw_the_end.set()

    upstream = await asyncio.start_server(echo, "127.0.0.1", 0)
    floor = Floor(upstream.sockets[0].getsockname(), chunk_bytes=4096)
    reader, writer = await asyncio.open_connection("127.0.0.1", floor.listen("127.0.0.1", 0))
    try:
        await asyncio.wait_for(scenario(reader, writer), WAIT_SECONDS)
    finally:
        writer.close()
        await asyncio.wait_for(peer_saw_the_end.wait(), WAIT_SECONDS)
        await floor.close()
        upstream.close()


def test_floor_keeps_every_byte_under_back_pressure() -> None:
    """A client that reads late gets all that it sent, in order: memory still being written from is not reused."""
    frames = [struct.pack(">ihhi", 10_000, 0, 9, number) + number.to_bytes(4, "big") * 2498 for number in range(2000)]
    sent = b"".join(frames)

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent

    uvloop.run(relayed(scenario))


def test_floor_closes_the_client_when_the_broker_cannot_be_reached() -> None:
    """No client waits for a broker that is not there."""

    async def scenario() -> None:
        floor = Floor(("127.0.0.1", 1))
        reader, writer = await asyncio.open_connection("127.0.0.1", floor.listen("127.0.0.1", 0))
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), WAIT_SECONDS) == b""
        writer.close()
        await floor.close()

    uvloop.run(scenario())
