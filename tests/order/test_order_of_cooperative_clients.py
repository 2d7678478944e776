"""Cooperative consumers in trouble: nothing is lost, keys are in order, and what a commit covers is not done again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import CHANGE_SECONDS, create_managed, create_ordinary, resize
from kordon.testing.order.cooperative import Judged, judge
from kordon.testing.order.run import Action, Plan, Run
from kordon.testing.proxy_process import ProxyProcess

KEEPS = {"ordering": {"individual_commits": True}}
"""Of a Kordon that keeps what groups have done offset by offset."""

LONG_SECONDS = 600

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]


def played(plan: Plan, folder: Path, change: Callable[[int], None]) -> Judged:
    """Runs a plan; what its members wrote down, judged."""
    outcome = Run(plan, change).run(folder)
    assert outcome.problems == []
    assert outcome.verdict.passed, str(outcome.verdict.findings)  # of the writes
    return judge(folder)


def in_trouble(bootstrap: str, topic: str, *, dialect: bool = False, seconds: float = 8, resizes: bool = True) -> Plan:
    """Two members come and go, half of them by SIGKILL, while the topic grows and shrinks.

    Those of the dialect have few keys, so that hundreds of records are given out and not finished at each change.
    """
    return Plan(
        [bootstrap], topic, seconds=seconds, resize_to=(6, 3) if resizes else (), members=2,
        churn_seconds=3, killed_percent=50, producers=["dialect" if dialect else "librdkafka"],
        groups=["cooperative-dialect" if dialect else "cooperative"],
        rate=800 if dialect else 400, keys=8 if dialect else 100, least_backlog=300 if dialect else 0,
    )  # fmt: skip


def kept(judged: Judged) -> None:
    """No promise was broken, and they were put to the test."""
    assert not judged.counts, judged.examples
    assert judged.finished > 1_000
    assert judged.commits_with_ranges > 0, "nothing was ever finished out of order"


def test_a_managed_topic_grows_and_shrinks_under_cooperative_members_that_are_killed(
    open_cluster: Cluster, tmp_path: Path
) -> None:
    """3 -> 6 -> 3 through a Kordon that keeps their ranges, by virtual partitions."""
    with ProxyProcess.start(open_cluster.bootstrap(), config=KEEPS) as proxy:
        plan = in_trouble(proxy.bootstrap, "cooperative-managed")
        admin = create_managed(proxy.bootstrap, plan.topic)
        kept(played(plan, tmp_path, lambda count: resize(admin, plan.topic, count).result(CHANGE_SECONDS) and None))


@pytest.mark.deep
def test_an_ordinary_topic_of_bare_brokers_is_handled_by_members_that_are_killed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Ranges are in the metadata of commits; brokers can be older than what manages topics."""
    brokers: Cluster = request.getfixturevalue("cluster" if DESCRIBED_PRODUCERS.is_missing else "open_cluster")
    plan = in_trouble(brokers.bootstrap(), "cooperative-bare", resizes=False)
    create_ordinary(plan.bootstraps[0], plan.topic)
    kept(played(plan, tmp_path, lambda count: None))


@pytest.mark.deep
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("dialect", [False, True])
def test_cooperative_members_go_through_much_trouble(open_cluster: Cluster, tmp_path: Path, *, dialect: bool) -> None:
    """Ten minutes, through two proxies that keep their ranges: nothing of a commit is handled again.

    A member is killed every 5 s, a proxy every 20 s, and one within every second change of the topic's size.
    """
    upstream = open_cluster.bootstrap()
    with ProxyProcess.start(upstream, config=KEEPS) as first, ProxyProcess.start(upstream, config=KEEPS) as second:

        def kill(proxy: ProxyProcess) -> None:
            proxy.kill()
            proxy.start_again()

        turns = zip(range(10, LONG_SECONDS, 20), cycle((first, second)), strict=False)
        plan = replace(
            in_trouble(first.bootstrap, f"cooperative-deep-{dialect}", dialect=dialect, seconds=LONG_SECONDS),
            bootstraps=[first.bootstrap, second.bootstrap],
            resize_to=(6, 4, 12, 7, 3, 5) * 3,
            actions=[Action(at, f"kill -9 of a proxy at {at} s", partial(kill, proxy)) for at, proxy in turns],
            members=3,
            churn_seconds=10,  # each lives from 10 to 20 s
            killed_percent=100,
            rate=150,  # less than what is left of members that die so often, or else the end is far away
            keys=40 if dialect else 100,
            least_backlog=0,
            drain_seconds=600,
        )
        admin, is_cut = create_managed(first.bootstrap, plan.topic), cycle((False, True))

        def change(count: int) -> None:
            changed = resize(admin, plan.topic, count)
            if next(is_cut):
                kill(second)
            changed.result(CHANGE_SECONDS)

        judged = played(plan, tmp_path, change)
        kept(judged)
        assert judged.repeats > 0, "nobody was killed with something finished and not committed"
