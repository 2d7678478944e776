"""Requests on one connection of Kordon's own: in which order they leave, and what becomes of each."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.headers import build_response_header, parse_request_header
from kordon.codecs.look import Buffer
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.request_pipeline import RequestPipeline


class Wire(asyncio.Transport):
    """Notes what is written: api key and correlation id of each request."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[int, int]] = []
        self.aborted = False

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        header, _ = parse_request_header(b"".join(list_of_data)[4:])
        self.written.append((header.api_key, header.correlation_id))

    def abort(self) -> None:
        self.aborted = True


class Stage:
    """An open pipeline, whose broker is played by the test."""

    def __init__(self) -> None:
        self.breaks = 0
        self.pipeline = RequestPipeline("there:9092", self._on_broken)
        self.receiver = self.pipeline.receiver()
        self.wire = Wire()
        self.pipeline.open(self.wire)

    def _on_broken(self) -> None:
        self.breaks += 1

    def send(self, api_key: int) -> asyncio.Future[Any]:
        return self.pipeline.send(api_key, 0, (b"",), bytes, 60)

    def answer(self, api_key: int, correlation_id: int, body: bytes) -> None:
        frame = build_response_header(api_key, 0, correlation_id) + body
        data = len(frame).to_bytes(4, "big") + frame
        self.receiver.get_buffer(-1)[: len(data)] = data
        self.receiver.buffer_updated(len(data))


async def test_answers_belong_to_requests_in_their_order() -> None:
    """They are on the wire when they are sent; an answer to another one ends the connection."""
    stage = Stage()
    first, second = stage.send(apis.METADATA), stage.send(apis.METADATA)
    assert stage.wire.written == [(apis.METADATA, 1), (apis.METADATA, 2)]
    stage.answer(apis.METADATA, 1, b"one")
    assert (await first, stage.pipeline.count) == (b"one", 1)
    stage.answer(apis.METADATA, 3, b"three")
    with pytest.raises(UpstreamUnavailable, match="nobody asked for"):
        await second
    assert (stage.pipeline.closed, stage.wire.aborted, stage.breaks) == (True, True, 1)


async def test_what_is_held_leaves_behind_the_log_in() -> None:
    """In its order, but for what nobody waits for any more."""
    stage = Stage()
    stage.pipeline.hold()
    given_up, kept = stage.send(apis.FETCH), stage.send(apis.METADATA)
    log_in = stage.send(apis.SASL_HANDSHAKE)
    given_up.cancel()
    assert (stage.wire.written, stage.pipeline.count) == ([(apis.SASL_HANDSHAKE, 1)], 3)
    stage.answer(apis.SASL_HANDSHAKE, 1, b"in")
    assert await log_in == b"in"
    stage.pipeline.release()
    assert stage.wire.written[1:] == [(apis.METADATA, 2)]
    stage.pipeline.close("the end")
    with pytest.raises(UpstreamUnavailable, match="the end"):
        await kept


async def test_room_is_there_while_the_socket_takes_bytes() -> None:
    """Nobody waits for it on a connection that is closed."""
    stage = Stage()
    stage.receiver.pause_writing()
    room = asyncio.ensure_future(stage.pipeline.room())
    await asyncio.sleep(0)
    assert not room.done()
    stage.receiver.resume_writing()
    await room
    stage.receiver.pause_writing()
    stage.pipeline.close("the end")
    await stage.pipeline.room()
