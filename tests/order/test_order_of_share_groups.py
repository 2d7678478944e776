"""Share groups in trouble: nothing is lost, each key is in order, and no two members have a key in hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from kordon.codecs import apis
from kordon.testing.broker_features import SHARE_GROUPS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import CHANGE_SECONDS, create_managed, resize
from kordon.testing.order.consume_share import group_of
from kordon.testing.order.cooperative import Judged, judge
from kordon.testing.order.run import Action, Plan, Run
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess

SERVES = {"ordering": {"share_groups": True}}
SET, GROUP_RESOURCE = 0, 32
LONG_SECONDS = 600
SHORT_SESSIONS = {
    "authorizer.class.name": "",
    "group.share.min.heartbeat.interval.ms": "500", "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.session.timeout.ms": "2000", "group.share.session.timeout.ms": "6000",
}  # fmt: skip
"""A member that is killed keeps its partitions for as long as its session. With 45 s, of twelve members that the
coordinator knows nine are dead, and most partitions have nobody who reads them."""

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(900),
    pytest.mark.skipif(SHARE_GROUPS.is_missing, reason=SHARE_GROUPS.reason),
]


def played(plan: Plan, folder: Path, change: Callable[[int], None]) -> Judged:
    """Runs a plan with a group that begins at the earliest record; what its members wrote down, judged."""
    configs = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "15000"}
    rows = [{"name": name, "config_operation": SET, "value": value} for name, value in configs.items()]
    group = {"resource_type": GROUP_RESOURCE, "resource_name": group_of(plan.topic), "configs": rows}
    with PlainConnection(plan.bootstraps[0]) as connection:
        connection.ask(apis.INCREMENTAL_ALTER, 1, {"resources": [group], "validate_only": False})
    outcome = Run(plan, change).run(folder)
    assert outcome.problems == []
    assert outcome.verdict.passed, str(outcome.verdict.findings)  # of the writes
    return judge(folder)


def kept(judged: Judged, least: int) -> None:
    """No promise was broken, and they were put to the test: repeats are of what nobody was told to be done."""
    assert not judged.counts, judged.examples
    assert judged.finished >= least
    assert judged.accepted > least / 2


def test_a_managed_topic_grows_while_members_of_a_share_group_and_a_proxy_are_killed(
    open_cluster: Cluster, tmp_path: Path
) -> None:
    """3 -> 5, through two proxies; half of the records have one key."""
    upstream = open_cluster.bootstrap()
    with ProxyProcess.start(upstream, config=SERVES) as first, ProxyProcess.start(upstream, config=SERVES) as second:

        def kill() -> None:
            second.kill()
            second.start_again()

        plan = Plan(
            [first.bootstrap, second.bootstrap], "share-managed", seconds=8, resize_to=(5,), members=3,
            churn_seconds=3, killed_percent=50, producers=["librdkafka"], groups=["share"], rate=50, keys=40,
            hot_percent=50, actions=[Action(5, "kill -9 of a proxy", kill)],
        )  # fmt: skip
        admin = create_managed(first.bootstrap, plan.topic)
        judged = played(plan, tmp_path, lambda count: resize(admin, plan.topic, count).result(CHANGE_SECONDS) and None)
        kept(judged, 300)


@pytest.mark.deep
@pytest.mark.timeout(3_600)
def test_share_groups_go_through_much_trouble(tmp_path: Path) -> None:
    """Ten minutes: a member is killed every 5 s, a proxy every 30 s, and the topic grows and shrinks eighteen times."""
    with (
        Cluster.start(config=SHORT_SESSIONS) as brokers,
        ProxyProcess.start(brokers.bootstrap(), config=SERVES) as first,
        ProxyProcess.start(brokers.bootstrap(), config=SERVES) as second,
    ):

        def kill(proxy: ProxyProcess) -> None:
            proxy.kill()
            proxy.start_again()

        turns = zip(range(10, LONG_SECONDS, 30), cycle((first, second)), strict=False)
        plan = Plan(
            [first.bootstrap, second.bootstrap], "share-deep", seconds=LONG_SECONDS,
            resize_to=(6, 4, 12, 7, 3, 5) * 3, members=3, churn_seconds=10, killed_percent=100,
            producers=["librdkafka"], groups=["share"], rate=40, keys=100, hot_percent=5, drain_seconds=900,
        )  # fmt: skip
        killed = [Action(at, f"kill -9 of a proxy at {at} s", partial(kill, proxy)) for at, proxy in turns]
        admin = create_managed(first.bootstrap, plan.topic)

        def change(count: int) -> None:
            resize(admin, plan.topic, count).result(CHANGE_SECONDS)

        kept(played(replace(plan, actions=killed), tmp_path, change), 5_000)
