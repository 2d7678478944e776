"""KIP-360's cases on brokers that forget soon: producers, transactional ids, and ids whose epochs are used up."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.own_topics.layouts_writer import TRANSACTIONAL_ID, ChangeNotCommitted, LayoutsWriter, WriterState
from kordon.testing.broker_features import DESCRIBED_PRODUCERS, FORGOTTEN_PRODUCERS, VERIFIED_TRANSACTIONS
from kordon.testing.cluster import Cluster
from kordon.testing.cluster_links import links_to
from kordon.testing.emptied import emptied
from kordon.testing.jars import DEFAULT, kafka_version
from kordon.testing.kip_360 import coordinator_plays as asked
from kordon.testing.kip_360.client import Client, Stage
from kordon.testing.kip_360.expiry_plays import (
    FORGETFUL,
    OF_IDS,
    OF_IDS_WITH_ID_AND_EPOCH,
    OF_PRODUCERS,
    expired_ids,
    forget_producers,
)
from kordon.testing.kip_360.last_epochs import write_last_epochs
from kordon.testing.kip_360.lent_client import LentClient
from kordon.testing.kip_360.runs import Run, answers
from kordon.testing.kip_360.table import COORDINATOR, EXPIRED_IDS, EXPIRED_PRODUCERS, OVERFLOWS, Where, told
from kordon.testing.managed_clients import create_managed, create_ordinary, resize
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import until, wait_until

pytestmark = pytest.mark.broker
OF_COORDINATORS = {Where.DIRECT: "direct", Where.UNTOUCHED: "ordinary"} | (
    {} if DESCRIBED_PRODUCERS.is_missing else {Where.MANAGED: "managed"}
)
"""Prefixes of transactional ids, and topics."""
MANAGED = ("managed", "other", "grown", "shrunk", "grown-before")
PARTITION = 2
"""A virtual partition that moves with each change between 3 and 6 partitions."""
LENT = (
    asked.new_instances,
    *(play for play in asked.WITH_ID_AND_EPOCH if play is not asked.half_said),
    asked.epochs_run_out_for_instances,
    *asked.OVERFLOWS_WITH_ID_AND_EPOCH,
    expired_ids,
    *OF_IDS_WITH_ID_AND_EPOCH,
)
"""Plays whose epochs Kordon itself can lend; what is only half said it need not ask a broker about."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    """One broker that forgets soon; some transactional ids have no more epochs when it is first asked for them."""
    with Cluster.start(config={"authorizer.class.name": "", **FORGETFUL}) as cluster:
        stage = Stage(cluster.bootstrap(), "direct", "direct")
        with Client(stage, "first") as client:
            client.wait_for_coordinator()
        names = [f"{topic}-{play.__name__}" for topic in OF_COORDINATORS.values() for play in asked.OVERFLOWS]
        names += [
            f"lent-{play.__name__}" for play in LENT if play.__name__.startswith(("epochs_run_out", "instances_of"))
        ]
        write_last_epochs(cluster.bootstrap(), names)
        (broker,) = cluster.brokers
        broker.stop()
        broker.start()
        yield cluster if DESCRIBED_PRODUCERS.is_missing else emptied(cluster)


@pytest.fixture(scope="module")
def two(brokers: Cluster) -> Iterator[list[ProxyProcess]]:
    """Two proxies in front of it."""
    with ExitStack() as stack:
        yield [stack.enter_context(ProxyProcess.start(brokers.bootstrap())) for _ in range(2)]


@pytest.fixture(scope="module")
def stages(brokers: Cluster, two: list[ProxyProcess]) -> dict[str, Stage]:
    """By name, topics: one behind the broker alone, one ordinary, and managed ones."""
    bootstrap = two[0].bootstrap
    for name in ("direct", "ordinary"):
        create_ordinary(brokers.bootstrap(), name, 2)
    found = {
        "direct": Stage(brokers.bootstrap(), "direct", "direct"),
        "ordinary": Stage(bootstrap, "ordinary", "ordinary"),
    }
    for name in () if DESCRIBED_PRODUCERS.is_missing else MANAGED:
        create_managed(bootstrap, name)
        found[name] = Stage(bootstrap, name, "ordinary", PARTITION)
    return found


def test_epochs_run_out(stages: dict[str, Stage]) -> None:
    """The transactional id gets another producer id, wherever it is asked for."""
    found = {where: answers(stages[name], asked.OVERFLOWS) for where, name in OF_COORDINATORS.items()}
    assert found == {where: told(OVERFLOWS, where, kafka_version()) for where in OF_COORDINATORS}


def test_transactional_ids_are_forgotten(stages: dict[str, Stage]) -> None:
    """Their producers go on under another id, unless another instance has come."""
    runs = {where: Run(stages[name], OF_IDS) for where, name in OF_COORDINATORS.items()}
    for run in runs.values():
        run.begin()
    found = {where: run.end() for where, run in runs.items()}
    assert found == {where: told(EXPIRED_IDS, where, kafka_version()) for where in OF_COORDINATORS}


@pytest.mark.skipif(FORGOTTEN_PRODUCERS.is_missing, reason=FORGOTTEN_PRODUCERS.reason)
def test_producers_are_forgotten(brokers: Cluster, two: list[ProxyProcess], stages: dict[str, Stage]) -> None:
    """Kordon tells clients so where it does not know the producer either."""
    admin = AdminClient({"bootstrap.servers": two[0].bootstrap})
    resize(admin, "shrunk", 6).result(60)
    runs = {name: Run(stage, OF_PRODUCERS) for name, stage in stages.items()}
    for run in runs.values():
        run.begin()
    resize(admin, "grown-before", 6).result(60)
    forget_producers(brokers.bootstrap(), stages.values())
    resize(admin, "grown", 6).result(60)
    resize(admin, "shrunk", 3).result(60)

    found = {name: run.end(two[1].bootstrap if name == "other" else None) for name, run in runs.items()}

    places = {
        "direct": Where.DIRECT,
        "ordinary": Where.UNTOUCHED,
        "managed": Where.MANAGED,
        "other": Where.OTHER_PROXY,
        "grown": Where.MOVED,
        "shrunk": Where.MOVED,
        "grown-before": Where.FORGOTTEN_LATER,
    }
    assert found == {name: told(EXPIRED_PRODUCERS, where, kafka_version()) for name, where in places.items()}


@pytest.mark.skipif(VERIFIED_TRANSACTIONS.is_missing, reason=VERIFIED_TRANSACTIONS.reason)
def test_a_controller_outlives_its_own_transactional_id(brokers: Cluster, two: list[ProxyProcess]) -> None:
    """Brokers forget it when no layout has changed for a week: the controller begins anew, and a change comes about."""
    admin = create_managed(two[0].bootstrap, "idle")
    wait_until("the broker has forgotten it", partial(is_forgotten, brokers.bootstrap(), TRANSACTIONAL_ID))
    resize(admin, "idle", 4).result(60)


@pytest.mark.skipif(VERIFIED_TRANSACTIONS.is_missing, reason=VERIFIED_TRANSACTIONS.reason)
async def test_a_former_controller_writes_no_layouts_though_brokers_have_forgotten_it(brokers: Cluster) -> None:
    """ONE-CONTROLLER: epochs of the transactional id begin anew, with another producer id."""
    create_ordinary(brokers.bootstrap(), "layouts", 1)
    async with links_to(brokers) as links:
        former, present = (LayoutsWriter(Brokers(links), "layouts", "layouts") for _ in range(2))
        await former.open()
        assert await former.commit([NewRecord("a", b"1")]) == [0]
        await until("the broker has forgotten it", partial(is_forgotten, brokers.bootstrap(), "layouts"))
        await until("the present one writes", partial(writes, present, NewRecord("a", b"2")))
        with pytest.raises(ChangeNotCommitted, match=r"brokers have forgotten it, .*transactional\.id\.expiration\.ms"):
            await former.commit([NewRecord("a", b"3")])
        await until("the present one goes on", partial(writes, present, NewRecord("a", b"4")))
        for each in (former, present):
            await each.close()
    assert values(brokers.bootstrap(), "layouts") == [b"1", b"2", b"4"]


async def writes(writer: LayoutsWriter, record: NewRecord) -> bool:
    """Writes a record; says whether it is committed. On a busy machine brokers forget the writer meanwhile."""
    try:
        if writer.state is not WriterState.READY:
            await writer.open()
        await writer.commit([record])
    except (ChangeNotCommitted, UpstreamUnavailable):
        return False
    return True


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    """Reads what is committed in partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "all", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    while (message := wait_until("a record", lambda: consumer.poll(1))) and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


def is_forgotten(bootstrap: str, transactional_id: str) -> bool:
    with PlainConnection(bootstrap) as client:
        answer = client.ask(apis.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [transactional_id]})
    return bool(answer.transaction_states[0].error_code == Code.TRANSACTIONAL_ID_NOT_FOUND)


def test_epochs_that_kordon_lends_are_those_of_newer_brokers(brokers: Cluster) -> None:
    """Of the broker it takes no more than brokers before 2.5 have: InitProducerId 1."""
    create_ordinary(brokers.bootstrap(), "lent", 1)
    found = answers(Stage(brokers.bootstrap(), "lent", "lent"), LENT, LentClient)
    newest = told((*COORDINATOR, *OVERFLOWS, *EXPIRED_IDS), Where.LENT, DEFAULT)
    assert found == {case: newest[case] for case in found}
    assert newest.keys() - found.keys() == {
        "an id without an epoch",
        "an epoch without an id",
        "no transactional id, an id without an epoch",
        "no transactional id, an id and its epoch",
    }
