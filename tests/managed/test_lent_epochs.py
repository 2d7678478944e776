"""KIP-360 in front of brokers before 2.5, which have none of it: Kordon keeps what they would have to remember."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import repeat

import pytest

from kordon.codecs import apis
from kordon.testing import dying_lender
from kordon.testing.broker_features import BUMPED_EPOCHS
from kordon.testing.cluster import Cluster
from kordon.testing.jars import DEFAULT, VERSIONS
from kordon.testing.kip_360 import coordinator_plays as asked
from kordon.testing.kip_360.client import NOBODY, Client, Stage
from kordon.testing.kip_360.coordinator_plays import OLD, WITH_FENCED
from kordon.testing.kip_360.expiry_plays import FORGETFUL, OF_IDS_WITH_ID_AND_EPOCH, expired_ids
from kordon.testing.kip_360.last_epochs import write_last_epochs
from kordon.testing.kip_360.runs import Run, answers
from kordon.testing.kip_360.table import COORDINATOR, EXPIRED_IDS, OVERFLOWS, Where, told
from kordon.testing.managed_clients import create_ordinary
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]
OVERFLOWING = (asked.epochs_run_out_for_instances, *asked.OVERFLOWS_WITH_ID_AND_EPOCH)
PLAYS = (asked.new_instances, *asked.WITH_ID_AND_EPOCH, *OVERFLOWING)
FENCED, BUSY = "PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS"


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    """One broker that forgets soon; some transactional ids have no more epochs when it is first asked for them."""
    with Cluster.start(version=VERSIONS["2.4"], config=FORGETFUL) as cluster:
        with Client(Stage(cluster.bootstrap(), "direct", "direct"), "first") as client:
            client.wait_for_coordinator()
        write_last_epochs(cluster.bootstrap(), [f"lent-{play.__name__}" for play in OVERFLOWING])
        (broker,) = cluster.brokers
        broker.stop()
        broker.start()
        create_ordinary(cluster.bootstrap(), "ordinary", 1)
        yield cluster


@pytest.fixture(scope="module")
def two(brokers: Cluster) -> Iterator[list[ProxyProcess]]:
    """Two proxies in front of it."""
    with ExitStack() as stack:
        yield [stack.enter_context(ProxyProcess.start(brokers.bootstrap())) for _ in range(2)]


def stage(proxy: ProxyProcess, name: str = "lent") -> Stage:
    return Stage(proxy.bootstrap, name, "ordinary")


def test_kordon_answers_as_newer_brokers_do(two: list[ProxyProcess]) -> None:
    """Case by case; where it differs, the table says why."""
    assert answers(stage(two[0]), PLAYS) == told((*COORDINATOR, *OVERFLOWS), Where.LENT, DEFAULT)


def test_transactional_ids_are_forgotten_by_the_broker(two: list[ProxyProcess]) -> None:
    """Whoever asks gets another producer id, unless another instance has come before; through another proxy, too."""
    run = Run(stage(two[0]), (expired_ids, *OF_IDS_WITH_ID_AND_EPOCH))
    run.begin()
    assert run.end(two[1].bootstrap) == told(EXPIRED_IDS, Where.LENT, DEFAULT)


def test_what_one_proxy_has_given_all_know(two: list[ProxyProcess]) -> None:
    """A repeated request, the next one and a zombie may come through any of them."""
    with Client(stage(two[0]), "two") as client:
        client.wait_for_coordinator()
        assert client.init(version=OLD) == "A 0"
        first = client.last
        client.go_on_at(two[1].bootstrap)
        assert client.init(first, WITH_FENCED) == "A 1"
        client.go_on_at(two[0].bootstrap)
        assert client.init(first, WITH_FENCED) == "A 1"
        second = client.last
        assert client.init(version=WITH_FENCED) == "A 2"
        client.go_on_at(two[1].bootstrap)
        assert [client.init(each, WITH_FENCED) for each in (first, second)] == [FENCED] * 2


def test_who_comes_round_kordon_fences(brokers: Cluster, two: list[ProxyProcess]) -> None:
    """Its epoch is one that no claim explains."""
    with Client(stage(two[0]), "round") as client:
        client.wait_for_coordinator()
        assert client.init(version=OLD) == "A 0"
        first = client.last
        client.go_on_at(brokers.bootstrap())
        assert client.init(version=OLD) == "A 1"
        client.go_on_at(two[0].bootstrap)
        assert client.init(first, WITH_FENCED) == FENCED


@pytest.mark.skipif(BUMPED_EPOCHS.is_missing, reason=BUMPED_EPOCHS.reason)
def test_nothing_of_it_is_there_in_front_of_newer_brokers(cluster: Cluster) -> None:
    """They offer what they have, and Kordon writes nothing."""
    with ProxyProcess.start(cluster.bootstrap()) as proxy, Client(stage(proxy, "newer"), "new") as client:
        client.wait_for_coordinator()
        for bootstrap in (cluster.bootstrap(), proxy.bootstrap):
            client.go_on_at(bootstrap)
            found = client.ask(apis.API_VERSIONS, 0, {}).api_keys
            assert next(each.max_version for each in found if each.api_key == apis.INIT_PRODUCER_ID) != WITH_FENCED
            client.init(version=OLD)
    assert own_topics(cluster) == set()


def own_topics(brokers: Cluster) -> set[str]:
    """Which topics of Kordon's own for lent epochs the brokers have."""
    with PlainConnection(brokers.bootstrap()) as connection:
        rows = connection.ask(apis.METADATA, 1, {"topics": None}).topics
    return {row.name for row in rows if row.name == "__kordon.producers"}


def written(two: list[ProxyProcess]) -> float:
    return sum(proxy.metric("kordon_epochs_records_total", kind="written") for proxy in two)


def test_a_flood_of_requests_and_ids_costs_no_more_than_it_asks_for(two: list[ProxyProcess]) -> None:
    """One connection has one request under way, and a long transactional id has a short key."""
    with Client(stage(two[0]), "x" * 30_000) as client:
        client.wait_for_coordinator()
        assert client.init(version=OLD) == "A 0"
        before = written(two)
        assert client.init_many(repeat(NOBODY, 50), OLD).epoch == 50
        assert written(two) == before + 2 * 50
        stale = client.last.at(3)
        assert [client.init(stale, WITH_FENCED) for _ in range(20)] == [FENCED] * 20
        assert written(two) == before + 2 * 50


def test_clients_see_nothing_of_the_topic(brokers: Cluster, two: list[ProxyProcess]) -> None:
    """Which is there once a transactional producer has come."""
    with Client(stage(two[0]), "hidden") as client:
        client.wait_for_coordinator()
        client.init(version=OLD)
        assert own_topics(brokers) == {"__kordon.producers"}
        assert "__kordon.producers" not in {row.name for row in client.ask(apis.METADATA, 1, {"topics": None}).topics}


@pytest.fixture(scope="module")
def living(brokers: Cluster) -> Iterator[ProxyProcess]:
    """A proxy that soon goes on for those that have died."""
    with start(brokers) as proxy:
        yield proxy


def start(brokers: Cluster, dies_at: str = "") -> ProxyProcess:
    """Starts a proxy that dies at a step of lending."""
    env = dict(os.environ) | {dying_lender.DIES_AT: dies_at}
    return ProxyProcess.start(brokers.bootstrap(), env=env, program=dying_lender.PROGRAM)


@pytest.mark.parametrize(
    ("step", "wanted"), [("claimed", "A 1"), ("called", "A 2"), ("settled", "A 1")], ids=dying_lender.STEPS
)
def test_a_proxy_that_dies_at_a_step_costs_a_producer_at_most_an_epoch(
    brokers: Cluster, living: ProxyProcess, step: str, wanted: str
) -> None:
    """It asks again through another proxy, and goes on. Who asks by what it has left is told the same, or is fenced."""
    with ExitStack() as stack:
        dying = stack.enter_context(start(brokers, step))
        client = stack.enter_context(Client(stage(living), f"dies-{step}"))
        client.wait_for_coordinator()
        assert client.init(version=OLD) == "A 0"
        first = client.last
        client.go_on_at(dying.bootstrap)
        with pytest.raises((ConnectionError, EOFError)):
            client.init(first, WITH_FENCED)
        client.go_on_at(living.bootstrap)
        said = client.init(first, WITH_FENCED)
        assert (said == BUSY) == (step != "settled")
        words = wait_until("it goes on", lambda: "" if (told := client.init(first, WITH_FENCED)) == BUSY else told)
        assert words == wanted
        assert client.begin(client.last) == "NONE"
        assert client.init(first, WITH_FENCED) == wanted
        assert client.init(version=OLD) not in (BUSY, wanted)
        assert client.init(first, WITH_FENCED) == FENCED
