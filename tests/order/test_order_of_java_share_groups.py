"""Java's share groups: brokers give a key's records to several members at once, and Kordon one after another."""

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
from kordon.testing.managed_clients import CHANGE_SECONDS, create_managed, create_ordinary, resize
from kordon.testing.order.cooperative import Judged, judge
from kordon.testing.order.processes import JAVA_SHARE_GROUP
from kordon.testing.order.run import Action, Plan, Run
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess

SERVES = {"ordering": {"share_groups": True}}
SET, GROUP_RESOURCE = 0, 32
LONG_SECONDS = 60

pytestmark = [
    pytest.mark.broker,
    pytest.mark.deep,
    pytest.mark.timeout(900),
    pytest.mark.skipif(SHARE_GROUPS.is_missing, reason=SHARE_GROUPS.reason),
]


def played(plan: Plan, folder: Path, change: Callable[[int], None]) -> Judged:
    """Runs a plan with a group that begins at the earliest record; what its members wrote down, judged."""
    rows = [{"name": "share.auto.offset.reset", "config_operation": SET, "value": "earliest"}]
    group = {"resource_type": GROUP_RESOURCE, "resource_name": JAVA_SHARE_GROUP, "configs": rows}
    with PlainConnection(plan.bootstraps[0]) as connection:
        told = connection.ask(apis.INCREMENTAL_ALTER, 1, {"resources": [group], "validate_only": False})
    assert told.responses[0].error_code == 0
    outcome = Run(plan, change).run(folder)
    assert outcome.problems == []
    assert outcome.verdict.passed, str(outcome.verdict.findings)  # of the writes
    return judge(folder)


def in_trouble(bootstrap: str, topic: str, seconds: float) -> Plan:
    """Two members come and go; few keys, so that records of one wait for each other all the time."""
    return Plan(
        [bootstrap], topic, seconds=seconds, members=2, churn_seconds=3, producers=["librdkafka"],
        groups=[JAVA_SHARE_GROUP], rate=100, keys=10,
    )  # fmt: skip


def test_a_broker_gives_records_of_a_key_to_several_at_once(open_cluster: Cluster, tmp_path: Path) -> None:
    """So the checker sees what would be wrong: share groups have no order, and what is judged here can fail."""
    plan = in_trouble(open_cluster.bootstrap(), "shared-by-brokers", 4)
    create_ordinary(plan.bootstraps[0], plan.topic)
    judged = played(plan, tmp_path, lambda _: None)
    assert judged.counts["inversion"] > 0
    assert judged.counts["overlap"] > 0
    assert judged.counts["lost"] == 0
    assert judged.finished > 100


def test_kordon_gives_one_record_of_a_key_at_a_time(open_cluster: Cluster, tmp_path: Path) -> None:
    """3 -> 6 -> 4 -> 12 -> 7, while a proxy is killed every 20 s; a record is in hand from when it is given."""
    upstream = open_cluster.bootstrap()
    with ProxyProcess.start(upstream, config=SERVES) as first, ProxyProcess.start(upstream, config=SERVES) as second:

        def kill(proxy: ProxyProcess) -> None:
            proxy.kill()
            proxy.start_again()

        turns = zip(range(10, LONG_SECONDS, 20), cycle((first, second)), strict=False)
        plan = replace(
            in_trouble(first.bootstrap, "shared-in-order", LONG_SECONDS),
            bootstraps=[first.bootstrap, second.bootstrap],
            resize_to=(6, 4, 12, 7),
            actions=[Action(at, f"kill -9 of a proxy at {at} s", partial(kill, proxy)) for at, proxy in turns],
            members=3,
            churn_seconds=8,
            drain_seconds=400,
        )
        admin = create_managed(first.bootstrap, plan.topic)
        judged = played(plan, tmp_path, lambda count: resize(admin, plan.topic, count).result(CHANGE_SECONDS) and None)
    assert not judged.counts, judged.examples
    assert judged.finished > 500
