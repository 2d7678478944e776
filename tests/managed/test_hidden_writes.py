"""What Kordon itself writes among the records of clients: only when it may, and so that fences wait for it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kordon.codecs import apis
from kordon.proxy.controller.hidden_writes import HiddenWrites, NotNow
from kordon.proxy.kafka.batches import Copy
from kordon.proxy.kafka.leaders import Leaders
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
    writes = HiddenWrites(broker, Leaders(broker), counted)
    markers = [Copy(b"k", None, 1_000)]
    allowed = False
    with pytest.raises(NotNow):
        await writes.write(NAME, 0, markers, lambda own: marker_id(3, own), may)
    assert steps == ["may it"]
    allowed = True
    assert await writes.write(NAME, 0, markers, lambda own: marker_id(3, own), may) == []
    assert steps[1:] == ["may it", "orders-0 begins", "produce", "orders-0 ends"]
    await broker.close()
