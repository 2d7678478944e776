"""The topic of the layouts on a real broker: what is read, when it is known to be all, and who may write."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer

from kordon.codecs import apis
from kordon.codecs.schema import Api
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.internal_topic_log import LogLost
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.own_topics.compacted_topic import OwnTopicUnfit
from kordon.proxy.own_topics.layouts_log import LayoutsLog
from kordon.proxy.own_topics.layouts_writer import (
    ChangeNotCommitted,
    Fenced,
    LayoutsWriter,
    OutcomeUnknown,
)
from kordon.testing.cluster import Cluster

pytestmark = pytest.mark.broker

SECONDS = 90.0


class Reader:
    """A proxy that follows the layouts."""

    def __init__(self, brokers: Brokers, topic: str) -> None:
        self.log = LayoutsLog(brokers, topic)
        self.records: list[Record] = []
        self.following = asyncio.get_running_loop().create_task(self.log.follow(self.records.append))

    @property
    def entries(self) -> list[NewRecord]:
        """What was read, without offsets."""
        return [NewRecord(record.key, record.value) for record in self.records]


@asynccontextmanager
async def reader(brokers: Brokers, topic: str) -> AsyncIterator[Reader]:
    """Follows a layouts topic while the context lasts."""
    made = Reader(brokers, topic)
    try:
        yield made
    finally:
        made.following.cancel()
        made.log.close()
        await asyncio.gather(made.following, return_exceptions=True)


@pytest.fixture
def topic() -> str:
    """The name of a layouts topic that no other test uses."""
    return f"layouts-{uuid4().hex[:8]}"


@pytest.fixture
async def proxy(brokers: Brokers, topic: str) -> AsyncIterator[Reader]:
    """A proxy that follows the topic, which there is."""
    async with reader(brokers, topic) as made:
        await made.log.create()
        yield made


class CutOff(LayoutsWriter):
    """A controller's writer that can be kept from hearing its coordinator's answers to one kind of request.

    Its time is over when such an answer has come, however long everything before has taken.
    """

    deaf_to: int | None = None

    async def _ask(self, api: Api[Any, Any], versions: range, body: Any) -> Any:
        answer = await super()._ask(api, versions, body)
        if api.key == self.deaf_to:
            raise TimeoutError
        return answer


NewWriter = Callable[[], CutOff]


@pytest.fixture
async def new_writer(brokers: Brokers, topic: str) -> AsyncIterator[NewWriter]:
    """Makes controllers' writers; all those of one topic fence one another."""
    made: list[CutOff] = []

    def make() -> CutOff:
        made.append(CutOff(brokers, topic, f"{topic}.transactions"))
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def test_what_is_committed_has_been_given_when_the_end_is_reached(proxy: Reader, new_writer: NewWriter) -> None:
    """After `read_to_end` a proxy knows every record committed before, in order, tombstones included."""
    controller = new_writer()
    await controller.open()
    wanted: list[NewRecord] = []
    for number in range(5):
        entries = [NewRecord("orders", b"%d" % number), NewRecord("procedure", None)]
        offsets = await controller.commit(entries)
        wanted += entries
        await proxy.log.read_to_end()
        assert proxy.entries == wanted
        assert offsets == [each.offset for each in proxy.records[-2:]]


async def test_acknowledgements_of_members_are_read_by_all(brokers: Brokers, topic: str) -> None:
    """What a member appends is read by itself and by others, at the offset that it was told."""
    async with reader(brokers, topic) as one, reader(brokers, topic) as other:
        await one.log.create()
        offset = await one.log.append([NewRecord("ack/1", b"{}"), NewRecord("ack/2", b"{}")])
        await other.log.read_to_end()
        assert other.records == [Record("ack/1", b"{}", offset - 1), Record("ack/2", b"{}", offset)]
        await one.log.read_to_end()
        assert one.records == other.records


@asynccontextmanager
async def open_transaction(cluster: Cluster, topic: str, entry: NewRecord) -> AsyncIterator[None]:
    """A controller that has written a record and not come to its end."""
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap(), transactional_id=f"{topic}.transactions", transaction_timeout_ms=60_000
    )
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(topic, entry.value, entry.key.encode())
    try:
        yield
    finally:
        await producer.stop()


async def test_a_transaction_that_is_open_is_waited_for_and_its_records_never_given_when_it_is_aborted(
    cluster: Cluster, proxy: Reader, new_writer: NewWriter, topic: str
) -> None:
    """The end is not reached while something before it is undecided; the next controller decides it by opening."""
    first, second = new_writer(), new_writer()
    await first.open()
    await first.commit([NewRecord("orders", b"1")])
    async with open_transaction(cluster, topic, NewRecord("orders", b"never")):
        with pytest.raises(UpstreamUnavailable, match="not read to its end"):
            await proxy.log.read_to_end(timeout=1.5)
        await second.open()
        await second.commit([NewRecord("orders", b"2")])
        await proxy.log.read_to_end()
    assert proxy.entries == [NewRecord("orders", b"1"), NewRecord("orders", b"2")]


async def test_a_transaction_that_is_begun_ahead_is_the_next_commit_and_holds_up_no_reader(
    proxy: Reader, new_writer: NewWriter
) -> None:
    """Its beginning is not asked for again; until something is written in it others are read as ever."""
    controller = new_writer()
    await controller.open()
    await controller.commit([NewRecord("orders", b"1")])
    await controller.begin()
    await proxy.log.append([NewRecord("ack", b"1")])
    await proxy.log.read_to_end()
    controller.deaf_to = apis.ADD_PARTITIONS_TO_TXN
    await controller.begin()
    await controller.commit([NewRecord("orders", b"2")])
    with pytest.raises(ChangeNotCommitted):
        await controller.commit([NewRecord("orders", b"never")])  # the one behind it has not been begun
    await proxy.log.read_to_end()
    assert proxy.entries == [NewRecord("orders", b"1"), NewRecord("ack", b"1"), NewRecord("orders", b"2")]
    controller.deaf_to = None


async def test_who_is_ready_appends_without_looking_for_the_leader(
    proxy: Reader, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its connection was closed, as by a broker that has heard nothing for long, it is opened in time."""
    await proxy.log.append([NewRecord("ack/1", b"1")])
    proxy.log.close()
    await proxy.log.ready()
    monkeypatch.setattr(brokers, "leader", None)
    await proxy.log.append([NewRecord("ack/2", b"2")])
    await proxy.log.read_to_end()
    assert proxy.entries == [NewRecord("ack/1", b"1"), NewRecord("ack/2", b"2")]


async def test_a_controller_that_has_been_replaced_learns_it_when_it_begins_ahead(
    proxy: Reader, new_writer: NewWriter
) -> None:
    """Nothing is begun for a former one."""
    first, second = new_writer(), new_writer()
    await first.open()
    await second.open()
    with pytest.raises(Fenced):
        await first.begin()


async def test_a_second_controller_fences_the_first_for_ever(proxy: Reader, new_writer: NewWriter) -> None:
    """The first one's commit is refused, and so are all its later tries; nothing of it is read."""
    first, second = new_writer(), new_writer()
    await first.open()
    await first.commit([NewRecord("orders", b"1")])
    await second.open()
    with pytest.raises(Fenced):
        await first.commit([NewRecord("orders", b"never")])
    with pytest.raises(Fenced):
        await first.open()
    await second.commit([NewRecord("orders", b"2")])
    await proxy.log.read_to_end()
    assert proxy.entries == [NewRecord("orders", b"1"), NewRecord("orders", b"2")]


@pytest.mark.parametrize(
    ("deaf_to", "error", "read"),
    [(apis.ADD_PARTITIONS_TO_TXN, ChangeNotCommitted, 1), (apis.END_TXN, OutcomeUnknown, 2)],
)
async def test_a_controller_that_is_cut_off_knows_what_it_does_not_know(
    proxy: Reader, new_writer: NewWriter, deaf_to: int, error: type[UpstreamUnavailable], read: int
) -> None:
    """Before the end of a transaction was asked for nothing is written; after it only the layouts can tell."""
    controller = new_writer()
    await controller.open()
    await controller.commit([NewRecord("orders", b"1")])
    controller.deaf_to = deaf_to
    with pytest.raises(error):
        await controller.commit([NewRecord("orders", b"2")])
    with pytest.raises(ChangeNotCommitted):
        await controller.commit([NewRecord("orders", b"never")])  # it is closed now
    controller.deaf_to = None
    await controller.open()
    await proxy.log.read_to_end()
    assert proxy.entries == [NewRecord("orders", b"1"), NewRecord("orders", b"2")][:read]


async def test_a_controller_that_is_stopped_while_it_commits_holds_up_nobody(
    proxy: Reader, new_writer: NewWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction is aborted as it closes; readers do not have to wait for the transaction timeout."""
    controller = new_writer()
    await controller.open()
    written = asyncio.Event()

    async def never_end(timeout: float) -> None:
        written.set()
        await asyncio.sleep(timeout)

    monkeypatch.setattr(controller, "_end", never_end)
    committing = asyncio.ensure_future(controller.commit([NewRecord("orders", b"never")]))
    await asyncio.wait_for(written.wait(), SECONDS)
    committing.cancel()
    await asyncio.wait({committing})
    await controller.close()
    await proxy.log.append([NewRecord("ack", b"1")])
    await proxy.log.read_to_end(timeout=60)
    assert proxy.entries == [NewRecord("ack", b"1")]


async def test_a_writer_that_is_not_open_writes_nothing(new_writer: NewWriter) -> None:
    """A commit before `open`, or after `close`, is known not to have been."""
    with pytest.raises(ChangeNotCommitted):
        await new_writer().commit([NewRecord("orders", b"1")])


async def test_a_commit_larger_than_a_batch_is_read_as_one(proxy: Reader, new_writer: NewWriter) -> None:
    """Images of many producers need several batches; they come in order and together."""
    controller = new_writer()
    await controller.open()
    entries = [NewRecord(f"image/{number}", bytes(100_000)) for number in range(40)]
    await controller.commit(entries)
    with pytest.raises(ValueError, match="image/large"):
        await controller.commit([NewRecord("image/large", bytes(1_000_000))])
    await controller.commit([NewRecord("orders", b"1")])
    await proxy.log.read_to_end()
    assert proxy.entries == [*entries, NewRecord("orders", b"1")]


async def test_the_end_of_what_is_not_there_is_reached_at_once_and_creates_nothing(
    cluster: Cluster, brokers: Brokers, topic: str
) -> None:
    """In a cluster without managed topics a proxy is ready, and leaves the cluster as it was."""
    async with reader(brokers, topic) as proxy:
        assert await proxy.log.read_to_end() == 0
        assert not await proxy.log.exists()
    assert topic not in cluster.tool("kafka-topics", "--bootstrap-server", cluster.bootstrap(), "--list").stdout


async def test_a_topic_that_is_created_twice_is_compacted_and_checked(brokers: Brokers, topic: str) -> None:
    """Two proxies may create it; it has the configs that keep layouts safe."""
    log = LayoutsLog(brokers, topic)
    await asyncio.gather(log.create(), LayoutsLog(brokers, topic).create())
    configs = await TopicsAdmin(brokers).topic_configs(topic)
    assert (configs["cleanup.policy"], configs["unclean.leader.election.enable"]) == ("compact", "false")


async def test_a_topic_that_loses_layouts_is_refused(brokers: Brokers, topic: str) -> None:
    """One that somebody made with another cleanup policy is not used; the message says what to change."""
    await TopicsAdmin(brokers).create_topic(topic, partitions=1, replicas=1, configs={"cleanup.policy": "delete"})
    with pytest.raises(OwnTopicUnfit, match="set it to compact"):
        await LayoutsLog(brokers, topic).create()


async def test_a_topic_that_was_deleted_is_noticed(proxy: Reader, brokers: Brokers, topic: str) -> None:
    """Nobody goes on with layouts that the cluster does not have any more, not even when the topic is made anew."""
    await proxy.log.append([NewRecord("orders", b"1")])
    await proxy.log.read_to_end()
    await TopicsAdmin(brokers).delete_topic(topic)
    with pytest.raises(LogLost):
        await asyncio.wait_for(asyncio.shield(proxy.following), SECONDS)


async def test_many_who_ask_for_the_end_at_once_share_marks(proxy: Reader) -> None:
    """A storm of questions (NO-FALSE-END) costs the cluster a few records, not one each."""
    first = await proxy.log.read_to_end()
    ends = await asyncio.gather(*(proxy.log.read_to_end() for _ in range(200)))
    assert max(ends) - first <= 5
