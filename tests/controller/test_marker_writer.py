"""What Kordon itself writes among the records of clients: only when it may, and so that fences wait for it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count

import pytest

from kordon.codecs import apis
from kordon.codecs.records import batches
from kordon.proxy.controller.marker_writer import MarkerWriter, NotNow
from kordon.proxy.kafka.batches import Copy
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.ordering.janitor import marker_id
from kordon.testing.fake_broker import Answer, Asked, FakeBroker

NAME = "orders"


async def test_a_marker_is_sent_only_if_it_may_be_and_fences_wait_for_it() -> None:
    """It is asked when the marker is about to be sent, so that no fence can have come in between."""
    steps: list[str] = []

    @contextmanager
    def counted(topic: str, partition: int) -> Iterator[None]:
        steps.append(f"{topic}-{partition} begins")
        yield
        steps.append(f"{topic}-{partition} ends")

    def produce(asked: Asked) -> Answer:
        steps.append("produce")
        row = {"index": 0, "error_code": 0, "base_offset": 0}
        return {"responses": [{"name": NAME, "partition_responses": [row]}]}

    def may() -> bool:
        steps.append("may it")
        return allowed

    handlers = {apis.PRODUCE: produce, apis.INIT_PRODUCER_ID: lambda _: {"producer_id": 5, "producer_epoch": 0}}
    broker = FakeBroker({NAME: 1}, handlers)
    writes = MarkerWriter(Brokers(broker), counted)
    markers = [Copy(b"k", None, 1_000)]
    allowed = False
    with pytest.raises(NotNow):
        await writes.write(NAME, 0, markers, lambda own: marker_id(3, own), may)
    assert steps == ["may it"]
    allowed = True
    assert await writes.write(NAME, 0, markers, lambda own: marker_id(3, own), may) == []
    assert steps[1:] == ["may it", "orders-0 begins", "produce", "orders-0 ends"]
    await broker.close()


async def test_what_follows_a_marker_whose_answer_nobody_heard_is_no_repetition_of_it() -> None:
    """A broker takes a batch under a sequence that it has seen for the one that it has, and keeps nothing of it.

    So is it with a janitor that is stopped while its marker is under way: the next one begins under another id.
    """
    ids, written = count(5), list[tuple[int, int]]()

    def produce(asked: Asked) -> Answer:
        records = asked.body.topic_data[0].partition_data[0].records
        (batch,) = batches(memoryview(records))
        assert batch.header is not None
        written.append((batch.header.producer_id, batch.header.base_sequence))
        row = {"index": 0, "error_code": 0, "base_offset": 0}
        return {"responses": [{"name": NAME, "partition_responses": [row]}]}

    def init(_: Asked) -> Answer:
        return {"producer_id": next(ids), "producer_epoch": 0}

    def counted(topic: str, partition: int) -> nullcontext[None]:
        assert (topic, partition) == (NAME, 0)
        return nullcontext()

    broker = FakeBroker({NAME: 1}, {apis.PRODUCE: produce, apis.INIT_PRODUCER_ID: init})
    writes = MarkerWriter(Brokers(broker), counted)
    held = broker.hold(apis.PRODUCE)
    stopped = asyncio.ensure_future(writes.write(NAME, 0, [Copy(b"k", None, 1_000)], int, lambda: True))
    await held.come.wait()
    stopped.cancel()
    held.let_go()
    await asyncio.wait([stopped])
    await writes.write(NAME, 0, [Copy(b"other", None, 1_000)], int, lambda: True)
    await writes.write(NAME, 0, [Copy(b"third", None, 1_000)], int, lambda: True)
    assert written == [(5, 0), (6, 0), (6, 1)]
    await broker.close()
