"""A topic comes and goes under the SDK's clients: it is taken over, let go, or deleted and made again."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from click.testing import CliRunner

from kordon.client import OrderedConsumer, OrderedProducer
from kordon.proxy.commands.cli import main
from kordon.proxy.runtime.tasks import Tasks
from kordon.testing.cluster import Cluster
from kordon.testing.dialect.reader import DialectReader
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, Sender, create_ordinary, manage, resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import until, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(200)]

PATIENCE_SECONDS: Final = 60.0
FIRST: Final = 1_000_000
"""The number that the SDK's producer begins with; those of other clients are lower."""
RARELY_MS: Final = 300_000
"""metadata.max.age.ms as clients have it by default."""
MANAGED: Final = {"kordon.virtual.partitions": str(VIRTUAL_PARTITIONS)}


@pytest.fixture
def careful_pair() -> Iterator[list[ProxyProcess]]:
    """Two proxies in front of a broker that makes no topic because somebody asks for its metadata."""
    with Cluster.start(config={"auto.create.topics.enable": "false"}) as cluster:
        bootstrap = cluster.bootstrap()
        with ProxyProcess.start(bootstrap) as first, ProxyProcess.start(bootstrap) as second:
            yield [first, second]


class Traffic:
    """One producer that numbers the records of 20 keys, and a group of two consumers that reads them."""

    def __init__(self, topic: str, producer: OrderedProducer, consumers: list[OrderedConsumer]) -> None:
        self.sent: list[int] = []
        """What was acknowledged."""
        self.errors: list[BaseException] = []
        self.got: list[tuple[bytes, int]] = []
        self._topic = topic
        self._producer = producer
        self._consumers = consumers
        self._next = FIRST

    async def read(self, consumer: OrderedConsumer) -> None:
        while True:
            records = await consumer.getmany(timeout_ms=500)
            self.got += [(each.key or b"", int(each.value)) for rows in records.values() for each in rows]

    async def send_during(self, work: Awaitable[Any], seconds: float = 0.5) -> None:
        """Sends while something happens and for a while after it; returns when all that was sent is answered."""
        happening = asyncio.ensure_future(work)
        futures: list[tuple[int, Any]] = []
        started, done_at = time.monotonic(), None
        while done_at is None or time.monotonic() < done_at + seconds:
            assert time.monotonic() < started + PATIENCE_SECONDS, "what was waited for did not happen"
            done_at = done_at or (time.monotonic() if happening.done() else None)
            for _ in range(10):
                futures.append((self._next, await self._producer.send(self._topic, b"%d" % self._next, self.key)))
                self._next += 1
            await asyncio.sleep(0.01)
        await happening
        outcomes = await asyncio.wait_for(
            asyncio.gather(*(future for _, future in futures), return_exceptions=True), PATIENCE_SECONDS
        )
        for (number, _), outcome in zip(futures, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                self.errors.append(outcome)
            else:
                self.sent.append(number)

    @property
    def key(self) -> bytes:
        return b"key-%d" % (self._next % 20)

    @property
    def next(self) -> int:
        return self._next

    async def until_read(self, since: int = 0) -> None:
        """Waits until the group has all that was acknowledged from a number on."""
        wanted = {number for number in self.sent if number >= since}
        end = time.monotonic() + PATIENCE_SECONDS
        while missing := wanted - {number for _, number in self.got}:
            assert time.monotonic() < end, f"{len(missing)} of {len(wanted)} not read: {sorted(missing)[:10]}"
            await asyncio.sleep(0.1)

    def assert_once(self) -> None:
        """Nothing was read twice: the group commits what it has before partitions change hands."""
        numbers = [number for _, number in self.got]
        assert len(numbers) == len(set(numbers)), "doubled"

    def assert_in_order(self, first: int, behind: int) -> None:
        """Of the numbers from `first` to below `behind`, each key's were read in order."""
        for key in {key for key, _ in self.got}:
            numbers = [number for each, number in self.got if each == key and first <= number < behind]
            assert numbers == sorted(numbers), f"out of order: {key!r}"


@asynccontextmanager
async def traffic(proxies: list[ProxyProcess], topic: str, metadata_max_age_ms: int = 1000) -> AsyncIterator[Traffic]:
    options: dict[str, Any] = {
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 500,
        "metadata_max_age_ms": metadata_max_age_ms,
        "session_timeout_ms": 30_000,
    }
    consumers = [OrderedConsumer(topic, bootstrap_servers=proxy.bootstrap, **options) for proxy in proxies]
    of_producer: dict[str, Any] = {"linger_ms": 5, "metadata_max_age_ms": metadata_max_age_ms}
    producer = OrderedProducer(bootstrap_servers=proxies[0].bootstrap, **of_producer)
    readers = Tasks()
    try:
        await producer.start()
        records = Traffic(topic, producer, consumers)
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        for consumer in consumers:
            readers.start(records.read(consumer), name="read")
        yield records
    finally:
        await readers.stop()
        await asyncio.gather(producer.stop(), *(consumer.stop() for consumer in consumers))


def manage_away(proxy: ProxyProcess, topic: str) -> None:
    """`kordon topics unmanage`."""
    result = CliRunner().invoke(main, ["topics", "unmanage", topic, "--yes", "--bootstrap", proxy.bootstrap])
    assert result.exit_code == 0, result.output


def wait_until_taken_over(proxy: ProxyProcess, topic: str) -> None:
    """Waits until nothing of a takeover is left to do."""
    wait_until("it is taken over", lambda: not proxy.topic(topic)["held"], PATIENCE_SECONDS)


async def test_a_topic_is_taken_over_grown_and_shrunk_under_the_sdk(proxies: list[ProxyProcess]) -> None:
    """Nothing is lost or doubled; keys are in order up to the takeover, and from its end on."""
    topic = "sdk-taken-over"
    admin = await asyncio.to_thread(create_ordinary, proxies[0].bootstrap, topic)
    async with traffic(proxies, topic) as records:
        await records.send_during(asyncio.sleep(0.5))
        await records.until_read()
        before = records.next
        await records.send_during(asyncio.to_thread(manage(admin, topic, transition_ms="1000").result, 60))
        await records.send_during(asyncio.to_thread(wait_until_taken_over, proxies[0], topic))
        await records.until_read()
        after = records.next
        for count in (5, 3):
            await records.send_during(asyncio.to_thread(resize(admin, topic, count).result, 60))
        await records.until_read()
    assert records.errors == []
    records.assert_once()
    records.assert_in_order(FIRST, before)
    records.assert_in_order(after, records.next)


async def test_the_sdk_reads_and_writes_in_the_midst_of_a_takeover_that_delivers(
    proxies: list[ProxyProcess], caplog: pytest.LogCaptureFixture
) -> None:
    """Its clients do not look for new metadata by themselves. Beside them another client writes to new partitions.

    When the takeover is over, consumers are told so by an error, of which there is a line in the log where nobody deals
    with it. They sent the same Fetch again and again until they were to refresh their metadata, for up to five minutes.
    """
    topic = "sdk-delivering"
    admin = await asyncio.to_thread(create_ordinary, proxies[0].bootstrap, topic)
    others = [Sender(proxies[1].bootstrap, topic)]
    async with traffic(proxies, topic, RARELY_MS) as records:
        await records.send_during(asyncio.to_thread(others[0].send_for, 0.3))
        before = records.next
        await records.send_during(
            asyncio.to_thread(manage(admin, topic, "delivering", transition_ms="4000").result, 60)
        )
        others.append(Sender(proxies[1].bootstrap, topic, partitions=range(3, VIRTUAL_PARTITIONS)))
        await records.send_during(asyncio.to_thread(others[1].send_for, 1.0))
        if proxies[0].topic(topic)["epochs"][-1]["placement"] == "shared":
            before = records.next
        await records.send_during(asyncio.to_thread(wait_until_taken_over, proxies[0], topic))
        after = records.next
        await records.send_during(asyncio.sleep(0.5))
        await records.until_read()
        await records.send_during(asyncio.to_thread(resize(admin, topic, 5).result, 60))
        written = [(b"key-%d" % (number % 20), number) for number in records.sent]
        for each in others:
            await asyncio.to_thread(each.finish)
            written += each.acknowledged
        await until("all is read", lambda: len(records.got) >= len(written))
    assert records.errors == []
    assert sorted(records.got) == sorted(written)
    records.assert_in_order(FIRST, before)
    records.assert_in_order(after, records.next)
    assert not [each for each in caplog.messages if "Unexpected error" in each]
    with DialectReader(proxies[1].bootstrap, topic) as reader:
        reader.read_until(len(written))
        assert sorted(reader.numbered) == sorted(written)


@pytest.mark.deep
async def test_a_topic_is_let_go_under_the_sdk(proxies: list[ProxyProcess]) -> None:
    """`kordon topics unmanage` of one without records: what is written then is written and read as on any topic."""
    topic = "sdk-let-go"
    admin = await asyncio.to_thread(create_ordinary, proxies[0].bootstrap, topic, config=MANAGED)
    async with traffic(proxies, topic) as records:
        await asyncio.to_thread(manage_away, proxies[0], topic)
        await records.send_during(asyncio.sleep(2))
        await records.until_read()
        await asyncio.to_thread(manage(admin, topic, transition_ms="1000").result, 60)
        await records.send_during(asyncio.to_thread(wait_until_taken_over, proxies[0], topic))
        await records.until_read()
        after = records.next
        await records.send_during(asyncio.to_thread(resize(admin, topic, 5).result, 60))
        await records.until_read()
    assert records.errors == []
    records.assert_once()
    records.assert_in_order(after, records.next)


@pytest.mark.deep
async def test_a_topic_is_deleted_and_made_again_under_the_sdk(careful_pair: list[ProxyProcess]) -> None:
    """The producer and the group go on with the new one: all that is written there is read once, each key in order."""
    topic, proxies = "sdk-made-again", careful_pair
    admin = await asyncio.to_thread(create_ordinary, proxies[0].bootstrap, topic, config=MANAGED)
    async with traffic(proxies, topic) as records:
        await records.send_during(asyncio.sleep(0.3))
        await records.until_read()

        def make_again() -> None:
            admin.delete_topics([topic])[topic].result(60)
            time.sleep(1)
            create_ordinary(proxies[0].bootstrap, topic, config=MANAGED)

        await asyncio.to_thread(make_again)
        again = records.next
        await records.send_during(asyncio.sleep(0.5))
        await records.until_read(again)
        await records.send_during(asyncio.to_thread(resize(admin, topic, 5).result, 60))
        await records.until_read(again)
    assert records.errors == []
    records.assert_once()
    records.assert_in_order(FIRST, again)
    records.assert_in_order(again, records.next)
