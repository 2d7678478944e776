"""How long records wait for their delivery while their topic is taken over under load (TAKEOVER-SHARES)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import CHANGE_SECONDS, VIRTUAL_PARTITIONS, create_ordinary, manage, resize
from kordon.testing.order.findings import Anomaly
from kordon.testing.order.run import Action, Outcome, Plan, Run
from kordon.testing.order.waits import longest_us, waits_of
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

ATTEMPTS: Final = 3
PROMISED_US: Final = 2_000_000
GROUP: Final = "librdkafka-group"


def taken_over(proxy: ProxyProcess, topic: str) -> list[Action]:
    """A takeover that delivers, and what comes to pass in it."""
    admin = create_ordinary(proxy.bootstrap, topic)

    def take_over() -> None:
        manage(admin, topic, "delivering", transition_ms="3000").result(CHANGE_SECONDS)

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
        Action(2.0, "grow", lambda: resize(admin, topic, VIRTUAL_PARTITIONS).result(CHANGE_SECONDS)),
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
    """Beside it, a topic of the brokers gets as many partitions: what its records wait, the machine is to blame for.

    The two need not be stopped by the machine at the same time, so the best of a few takeovers counts. Each of them
    delivers every record once and in order.
    """
    broker, bootstraps = open_cluster.bootstrap(), [proxy.bootstrap for proxy in proxies]
    told = list[str]()
    for number in range(1, ATTEMPTS + 1):
        topic, direct, folder = f"waits-{number}", f"waits-at-brokers-{number}", tmp_path / str(number)
        folder.mkdir()
        with ThreadPoolExecutor() as side_by_side:
            beside = side_by_side.submit(run, [broker], direct, grown(broker, direct), folder / "direct")
            outcome = run(bootstraps, topic, taken_over(proxies[0], topic), folder / "kordon")
            assert not beside.result().problems
        assert not outcome.problems
        found = outcome.verdict.findings.found()
        found.discard(
            Anomaly.INCONSISTENT_OFFSETS
        )  # producers are told of a new partition, and readers get it in an old one
        assert not found, str(outcome.verdict.findings)
        assert outcome.verdict.accounts[GROUP].records == outcome.verdict.accounts["writes"].records
        waits, by_themselves = waits_of(folder / "kordon"), longest_us(waits_of(folder / "direct"))
        if longest_us(waits) < PROMISED_US + by_themselves:
            return
        told.append(f"{by_themselves}: { ({name: (w.p99_us, w.longest_us) for name, w in waits[GROUP].items()}) }")
    pytest.fail("\n".join(told))
