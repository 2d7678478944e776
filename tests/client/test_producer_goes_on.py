"""OrderedProducer goes on behind what was refused or is forgotten: it begins another epoch, as KIP-360 has it."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest
from aiokafka.errors import MessageSizeTooLargeError

from kordon.client import OrderedProducer
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_ordinary, read_all, resize
from kordon.testing.proxy_process import ProxyProcess

pytestmark = pytest.mark.broker

PATIENCE_SECONDS: Final = 90.0
MANAGED: Final = {"kordon.virtual.partitions": str(VIRTUAL_PARTITIONS)}


@pytest.fixture(scope="module")
def kordon_proxy(open_cluster: Cluster) -> Iterator[ProxyProcess]:
    """A proxy in front of one broker."""
    with ProxyProcess.start(bootstrap=open_cluster.bootstrap()) as proxy:
        yield proxy


async def send_numbers(producer: OrderedProducer, topic: str, numbers: range) -> list[Any]:
    """Sends records of 5 keys; returns what became of each, an error or its metadata."""
    futures = [await producer.send(topic, b"%d" % number, b"key-%d" % (number % 5)) for number in numbers]
    return await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), PATIENCE_SECONDS)


def errors(outcomes: list[Any]) -> list[Exception]:
    return [outcome for outcome in outcomes if isinstance(outcome, Exception)]


def assert_read_once_and_in_order(bootstrap: str, topic: str, numbers: range) -> None:
    """A stock consumer finds each number once, each key in order."""
    got = read_all(bootstrap, topic, len(numbers))
    assert sorted(number for _, number in got) == list(numbers)
    for key in {key for key, _ in got}:
        read = [number for each, number in got if each == key]
        assert read == sorted(read), f"out of order: {key!r}"


@pytest.mark.parametrize("config", [MANAGED, {}], ids=["managed", "ordinary"])
async def test_a_record_that_is_too_large_fails_alone(kordon_proxy: ProxyProcess, config: dict[str, str]) -> None:
    """Its sequence numbers do not become a gap that no later record of its partition comes over."""
    topic = f"too-large-{len(config)}"
    admin = await asyncio.to_thread(create_ordinary, kordon_proxy.bootstrap, topic, config=config)
    async with OrderedProducer(bootstrap_servers=kordon_proxy.bootstrap, max_request_size=4 << 20) as producer:
        assert errors(await send_numbers(producer, topic, range(20))) == []
        for key in range(5):
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic, bytes(2 << 20), b"key-%d" % key)
        assert errors(await send_numbers(producer, topic, range(20, 60))) == []
        if config:
            await asyncio.to_thread(resize(admin, topic, 5).result, 60)
            assert errors(await send_numbers(producer, topic, range(60, 100))) == []
    await asyncio.to_thread(assert_read_once_and_in_order, kordon_proxy.bootstrap, topic, range(100 if config else 60))


async def test_a_topic_is_made_again_under_a_producer(kordon_proxy: ProxyProcess) -> None:
    """Nobody knows its identities there, and it goes on: what is sent from then on is written once and in order."""
    topic = "made-again"
    admin = await asyncio.to_thread(create_ordinary, kordon_proxy.bootstrap, topic, config=MANAGED)
    async with OrderedProducer(bootstrap_servers=kordon_proxy.bootstrap) as producer:
        assert errors(await send_numbers(producer, topic, range(40))) == []
        await asyncio.to_thread(admin.delete_topics([topic])[topic].result, 60)
        await asyncio.to_thread(create_ordinary, kordon_proxy.bootstrap, topic, config=MANAGED)
        assert errors(await send_numbers(producer, topic, range(40, 80))) == []
    await asyncio.to_thread(assert_read_once_and_in_order, kordon_proxy.bootstrap, topic, range(40, 80))
