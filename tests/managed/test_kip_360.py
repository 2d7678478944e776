"""KIP-360's cases as raw frames: to a broker, to Kordon for an ordinary topic, and to Kordon for a managed one.

`testing/kip_360/table.py` has the answers, docs/kip-360.md shows them, and `test_kip_360_expiry.py` has the cases that
need brokers of their own.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import repeat

import pytest
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing.broker_features import BUMPED_EPOCHS, DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.jars import kafka_version
from kordon.testing.kip_360 import coordinator_plays, produce_plays
from kordon.testing.kip_360.client import NOBODY, Client, Stage
from kordon.testing.kip_360.coordinator_plays import LAST_EPOCH, OLD
from kordon.testing.kip_360.runs import Run, answers
from kordon.testing.kip_360.table import COORDINATOR, OVERFLOWS, PRODUCE, Where, told
from kordon.testing.managed_clients import create_managed, create_ordinary, resize
from kordon.testing.proxy_process import ProxyProcess

# Where topics cannot be managed, the other cases are played all the same.
CLUSTER = "cluster" if DESCRIBED_PRODUCERS.is_missing else "open_cluster"
NEEDS_MANAGED = pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason)
WRITTEN_TO, EMPTIED = 2, 6
"""Virtual partitions that move with each change between 3 and 6 partitions."""
PLAYS = (*coordinator_plays.PLAYS, *produce_plays.PLAYS)
ROWS = (*COORDINATOR, *PRODUCE)

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures(CLUSTER)]


@pytest.fixture(scope="module")
def brokers(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(CLUSTER)
    return found


@pytest.fixture(scope="module")
def two(brokers: Cluster) -> Iterator[list[ProxyProcess]]:
    """Two proxies in front of them."""
    with ExitStack() as stack:
        yield [stack.enter_context(ProxyProcess.start(brokers.bootstrap())) for _ in range(2)]


def ordinary(brokers: Cluster, bootstrap: str, name: str) -> Stage:
    create_ordinary(brokers.bootstrap(), name, 2)
    return Stage(bootstrap, name, name)


def managed(brokers: Cluster, proxy: ProxyProcess, name: str) -> Stage:
    """A managed topic with 3 partitions, and an ordinary one beside it for transactions."""
    create_managed(proxy.bootstrap, name)
    create_ordinary(brokers.bootstrap(), f"{name}-ordinary", 1)
    return Stage(proxy.bootstrap, name, f"{name}-ordinary", WRITTEN_TO, EMPTIED)


def moves(proxy: ProxyProcess, topic: str) -> list[int]:
    """How often the partitions of the plays have moved."""
    chains = proxy.topic(topic)["chains"]
    return [chain["moves"] for v in (WRITTEN_TO, EMPTIED) for chain in chains if v in chain["virtual_partitions"]]


def test_brokers_answer_as_the_table_says(brokers: Cluster) -> None:
    """Without Kordon."""
    found = answers(ordinary(brokers, brokers.bootstrap(), "kip-360-direct"), PLAYS)
    assert found == told(ROWS, Where.DIRECT, kafka_version())


def test_kordon_answers_the_same_for_ordinary_topics(brokers: Cluster, two: list[ProxyProcess]) -> None:
    """Case by case; in front of brokers before 2.5 as far as the table says."""
    found = answers(ordinary(brokers, two[0].bootstrap, "kip-360-ordinary"), PLAYS)
    if BUMPED_EPOCHS.is_missing:
        assert found == told(ROWS, Where.LENT, kafka_version())
    else:
        assert found == told(ROWS, Where.UNTOUCHED, kafka_version()) == told(ROWS, Where.DIRECT, kafka_version())


@NEEDS_MANAGED
def test_kordon_answers_as_the_table_says_for_managed_topics(brokers: Cluster, two: list[ProxyProcess]) -> None:
    """As long as no partition comes or goes."""
    found = answers(managed(brokers, two[0], "kip-360-managed"), PLAYS)
    assert found == told(ROWS, Where.MANAGED, kafka_version())


@NEEDS_MANAGED
def test_a_producer_goes_on_through_another_proxy(brokers: Cluster, two: list[ProxyProcess]) -> None:
    """It has not seen what the producer has written, and answers the same."""
    run = Run(managed(brokers, two[0], "kip-360-two"), produce_plays.PLAYS)
    run.begin()
    assert run.end(two[1].bootstrap) == told(PRODUCE, Where.OTHER_PROXY, kafka_version())


@NEEDS_MANAGED
@pytest.mark.parametrize(("before", "after"), [(3, 6), (6, 3)], ids=["growth", "shrink"])
def test_a_producer_goes_on_when_its_partition_has_moved(
    brokers: Cluster, two: list[ProxyProcess], before: int, after: int
) -> None:
    """Through both proxies: one has seen what it has written, and the other has not."""
    stages = [managed(brokers, two[0], f"kip-360-{before}-{each}") for each in range(2)]
    admin = AdminClient({"bootstrap.servers": two[0].bootstrap})
    runs = [Run(stage, produce_plays.PLAYS) for stage in stages]
    for stage, run in zip(stages, runs, strict=True):
        if before != 3:
            resize(admin, stage.topic, before).result(60)
        earlier = moves(two[0], stage.topic)
        run.begin()
        resize(admin, stage.topic, after).result(60)
        assert moves(two[0], stage.topic) == [each + 1 for each in earlier]
    found = [run.end(bootstrap) for run, bootstrap in zip(runs, (None, two[1].bootstrap), strict=True)]
    assert found == [told(PRODUCE, Where.MOVED, kafka_version())] * 2


@pytest.mark.deep
def test_ids_really_run_out_of_epochs(brokers: Cluster) -> None:
    """With a request for each epoch; the table is the same as where the state was written."""
    stage = ordinary(brokers, brokers.bootstrap(), "kip-360-epochs")
    for play in coordinator_plays.OVERFLOWS:
        with Client(stage, play.__name__) as client:
            client.wait_for_coordinator()
            assert client.init_many(repeat(NOBODY, LAST_EPOCH), OLD).epoch == LAST_EPOCH - 1
    assert answers(stage, coordinator_plays.OVERFLOWS) == told(OVERFLOWS, Where.DIRECT, kafka_version())
