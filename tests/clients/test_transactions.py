"""Unmodified clients with transactions: what is committed is read, whole and in order, and nothing else is.

Writers are killed and begin again under their transactional id. On a topic of Kafka's own, directly at its broker, this
shows that the clients and the checker are right. On a managed topic it shows that Kordon is.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kordon.testing.cluster import Cluster
from kordon.testing.emptied import emptied
from kordon.testing.managed_clients import resize, write
from kordon.testing.order.findings import Anomaly
from kordon.testing.order.history import SUFFIX
from kordon.testing.order.transact import Task
from kordon.testing.order.transactional import CLIENTS, Outcome, Plan, Program, Run
from kordon.testing.order.transactions import check_folder
from kordon.testing.order.ways import DIRECT, MANAGED, Way, way_to

pytestmark = [pytest.mark.broker, pytest.mark.beside, pytest.mark.timeout(900)]  # the first time, programs are built

SKIPPED = os.environ.get("KORDON_SKIP_CLIENTS", "").split(",")
EXPENSIVE = {DIRECT: ["java-3.9", "java", "librdkafka"], MANAGED: [each for each in CLIENTS if each != "java"]}
"""Clients that only `make deep` runs there. librdkafka is on managed topics anyway while these grow."""
GROWTH = (6, 12, 4)
_BETWEEN_SECONDS = 1.0
"""Two changes: there are always transactions that were begun before one and end behind it."""


@pytest.fixture
def way(spare_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Way]:
    with way_to(emptied(spare_cluster), request.param) as opened:
        yield opened


def ways() -> list[object]:
    """Each client on each way."""
    return [
        pytest.param(name, client, marks=[pytest.mark.deep] if client in EXPENSIVE[name] else [])
        for name in (DIRECT, MANAGED)
        for client in CLIENTS
    ]


def run(way: Way, clients: Sequence[str], meanwhile: Callable[[Plan], None] = lambda _: None, **more: Any) -> Outcome:
    """Lets clients write and read a new topic."""
    if left_out := set(clients) & set(SKIPPED):
        pytest.skip(f"{', '.join(left_out)} left out by KORDON_SKIP_CLIENTS")
    plan = Plan(
        bootstraps=way.bootstraps,
        topic=f"transactions-{'-'.join(clients)}-{time.time_ns()}",
        partitions=way.partitions,
        writers=clients,
        readers=clients,
        **more,
    )
    with Run(plan) as prepared:
        way.create(plan.topic)
        outcome = prepared.run(partial(meanwhile, plan))
    assert outcome.told == "", f"{outcome.told}\n{outcome.folder}"
    return outcome


def assert_all_told(outcome: Outcome, writers: Sequence[str], least: int) -> None:
    """No writer was told an error, and each has committed and aborted its share."""
    assert outcome.checked.troubles == {}
    for writer in writers:
        assert outcome.checked.outcomes[writer, "committed"] >= least
        assert outcome.checked.outcomes[writer, "aborted"] > 0


@pytest.mark.parametrize(("way", "client"), ways(), indirect=["way"])
def test_what_a_client_commits_is_read_and_nothing_else(way: Way, client: str) -> None:
    """The writer is killed once; the same client reads by both isolations, and librdkafka from anywhere."""
    outcome = run(way, [client], transactions=10)
    assert_all_told(outcome, [client], least=5)
    accounts = outcome.checked.verdict.accounts
    uncommitted = accounts[f"{client}-read_uncommitted"].records
    assert uncommitted > accounts[f"{client}-read_committed"].records > 20


@pytest.mark.parametrize("way", [DIRECT], indirect=True)
def test_reader_that_is_shown_aborted_records_is_noticed(way: Way) -> None:
    """One that asks for what is not committed, and says that it asks for what is: the proof that all this can fail."""
    plan = Plan(bootstraps=way.bootstraps, topic=f"transactions-shown-{time.time_ns()}", transactions=8, kills=0)
    with Run(plan) as prepared:
        way.create(plan.topic)
        outcome = prepared.run()
        assert outcome.told == ""
        history = outcome.folder / f"librdkafka-read_uncommitted{SUFFIX}"
        history.write_text(history.read_text().replace('read_uncommitted"}', 'read_committed"}', 1))
        found = check_folder(outcome.folder).verdict.findings.found()
    assert found == {Anomaly.ABORTED_READ, Anomaly.DISAGREEMENT}


@pytest.mark.parametrize("way", [DIRECT], indirect=True)
def test_reader_that_cannot_read_on_ends_and_says_why(way: Way, tmp_path: Path) -> None:
    """A consumer of kafkajs stops at snappy, which it lacks, without a word: that looked like records that are held."""
    if "kafkajs" in SKIPPED:
        pytest.skip("kafkajs left out by KORDON_SKIP_CLIENTS")
    topic = f"transactions-snappy-{time.time_ns()}"
    way.create(topic)
    settings = {"bootstrap.servers": way.bootstraps[0], "compression.codec": "snappy"}
    write(settings, topic, [{"key": "one", "value": f"0 {'x' * 2000}"}])
    told: dict[str, Any] = {
        "bootstrap": way.bootstraps[0],
        "topic": topic,
        "folder": tmp_path,
        "isolation": "read_committed",
    }
    assert "Snappy" in (Program("kafkajs", Task(role="read", name="kafkajs", **told)).wait() or "")


@pytest.mark.deep
@pytest.mark.parametrize("way", [DIRECT, MANAGED], indirect=True)
def test_all_clients_at_once_read_the_same(way: Way) -> None:
    """Each writer is killed three times, and each reader gets what all of them have written."""
    outcome = run(way, CLIENTS, transactions=40, kills=3)
    assert_all_told(outcome, CLIENTS, least=60)


GROWING = [
    pytest.param(["librdkafka"], 1, id="librdkafka"),
    *(pytest.param([each], 2, id=each, marks=pytest.mark.deep) for each in CLIENTS if each != "librdkafka"),
    *(pytest.param(CLIENTS, seed, id=f"all-{seed}", marks=pytest.mark.deep) for seed in (3, 4)),
]


@pytest.mark.parametrize(("clients", "seed"), GROWING)
@pytest.mark.parametrize("way", [MANAGED], indirect=True)
def test_growth_within_open_transactions_and_a_killed_proxy_break_no_promise(
    way: Way, clients: Sequence[str], seed: int
) -> None:
    """3 to 6 to 12 to 4 partitions; one of two proxies is killed behind the first change."""

    def change(plan: Plan) -> None:
        admin = way.admin()
        for count in GROWTH:
            resize(admin, plan.topic, count).result(180)
            if count == GROWTH[0]:
                way.proxies[1].kill()
            time.sleep(_BETWEEN_SECONDS)

    outcome = run(way, clients, change, transactions=20, seed=seed)
    for client in clients:
        assert outcome.checked.outcomes[client, "committed"] > 20
