"""The workload that Kafka reorders when a topic grows, on a managed topic; and a minute of everything at once."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from kordon.testing.broker_features import NEW_GROUPS
from kordon.testing.cluster import Cluster
from kordon.testing.demo_growing import grow_and_shrink
from kordon.testing.managed_clients import CHANGE_SECONDS, create_managed, resize
from kordon.testing.order.processes import GROUPS
from kordon.testing.order.run import Run
from kordon.testing.order.scenarios import growth_under_backlog
from kordon.testing.proxy_process import ProxyProcess

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(900),
    pytest.mark.skipif(NEW_GROUPS.is_missing, reason=NEW_GROUPS.reason),
]


def test_no_key_is_reordered_when_a_managed_topic_grows_under_a_backlog(open_cluster: Cluster) -> None:
    """What is nonmonotonic on today's Kafka (test_order_workloads) is in order here, for every kind of group."""
    with ProxyProcess.start(open_cluster.bootstrap()) as kordon:
        admin = create_managed(kordon.bootstrap, "order-managed")

        def grow(partitions: int) -> None:
            resize(admin, "order-managed", partitions).result(CHANGE_SECONDS)

        outcome = Run(growth_under_backlog([kordon.bootstrap], "order-managed"), grow).run()
    assert outcome.problems == []
    assert outcome.verdict.passed, outcome.verdict.findings.examples
    assert {outcome.verdict.accounts[group].records for group in GROUPS} == {outcome.verdict.accounts["writes"].records}
    assert all(behind > 1000 for behind in outcome.backlogs["resize to 6"].values())


def test_a_minute_of_growth_shrink_and_a_killed_proxy_breaks_no_promise() -> None:
    """The second half of the demo: three kinds of producers and of groups, members coming and going."""
    told = io.StringIO()
    wrong = grow_and_shrink(Console(file=told, width=140))
    assert wrong == [], told.getvalue()
