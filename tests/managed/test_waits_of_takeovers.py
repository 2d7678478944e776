"""How long records wait for their delivery while their topic is taken over under load (TAKEOVER-SHARES)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_ordinary, manage, resize
from kordon.testing.order.findings import Anomaly
from kordon.testing.order.run import Action, Outcome, Plan, Run
from kordon.testing.order.waits import longest_us, waits_of
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

PROMISED_US: Final = 2_000_000
GROUP: Final = "librdkafka-group"


def taken_over(proxy: ProxyProcess, topic: str) -> list[Action]:
    """A takeover that delivers, and what comes to pass in it."""
    admin = create_ordinary(proxy.bootstrap, topic)

    def take_over() -> None:
        manage(admin, topic, "delivering", transition_ms="3000").result(60)

    def wait_for_cut() -> None:
        wait_until("it is cut", lambda: proxy.topic(topic)["epochs"][-1]["placement"] == "linear")

    def wait_for_end() -> None:
        wait_until("all is delivered", lambda: not proxy.topic(topic)["held"])

    return [
        Action(1.0, "usual", lambda: None),
        Action(2.0, "manage", take_over),
        Action(2.0, "transition", wait_for_cut),
        Action(2.0, "cut", wait_for_end),
        Action(2.0, "after", lambda: None),
    ]


def grown(bootstrap: str, topic: str) -> list[Action]:
    """An ordinary topic gets as many partitions."""
    admin = create_ordinary(bootstrap, topic)
    return [
        Action(1.0, "usual", lambda: None),
        Action(2.0, "grow", lambda: resize(admin, topic, VIRTUAL_PARTITIONS).result(60)),
    ]


def run(bootstraps: Sequence[str], topic: str, actions: Sequence[Action], folder: Path) -> Outcome:
    """Has steady producers of two hashes write, and a group read that commits and rebalances quickly."""
    folder.mkdir()
    plan = Plan(
        bootstraps,
        topic,
        seconds=9,
        rate=100,
        commit_seconds=0.25,
        heartbeat_ms=200,
        churn_seconds=0,
        producers=["librdkafka", "aiokafka"],
        groups=[GROUP],
        actions=actions,
    )
    return Run(plan, lambda partitions: None).run(folder)


def test_no_record_waits_long_for_its_delivery_while_its_topic_is_taken_over(
    proxies: list[ProxyProcess], open_cluster: Cluster, tmp_path: Path
) -> None:
    """Beside it, a topic of the brokers gets as many partitions: what its records wait, the machine is to blame for."""
    broker, topic, direct = open_cluster.bootstrap(), "waits", "waits-at-brokers"
    with ThreadPoolExecutor() as side_by_side:
        beside = side_by_side.submit(run, [broker], direct, grown(broker, direct), tmp_path / "direct")
        bootstraps = [proxy.bootstrap for proxy in proxies]
        outcome = run(bootstraps, topic, taken_over(proxies[0], topic), tmp_path / "kordon")
        assert not beside.result().problems
    assert not outcome.problems
    found = outcome.verdict.findings.found()
    found.discard(
        Anomaly.INCONSISTENT_OFFSETS
    )  # producers are told of a new partition, and readers get it in an old one
    assert not found, str(outcome.verdict.findings)
    assert outcome.verdict.accounts[GROUP].records == outcome.verdict.accounts["writes"].records
    waits = waits_of(tmp_path / "kordon")
    told = {name: (each.p99_us, each.longest_us) for name, each in waits[GROUP].items()}
    assert longest_us(waits) < PROMISED_US + longest_us(waits_of(tmp_path / "direct")), told
