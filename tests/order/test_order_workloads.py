"""Real clients on a real broker: the checker sees what Kafka keeps, and what it does not keep when a topic grows."""

from pathlib import Path

import psutil
import pytest

from kordon.testing.broker_features import NEW_GROUPS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_managed
from kordon.testing.order.findings import WRITES, Anomaly
from kordon.testing.order.processes import GROUPS
from kordon.testing.order.run import Plan, Run, Topic
from kordon.testing.order.scenarios import coming_and_going, growth_under_backlog
from kordon.testing.proxy_process import ProxyProcess

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(600),
    pytest.mark.skipif(NEW_GROUPS.is_missing, reason=NEW_GROUPS.reason),
]


@pytest.mark.deep
def test_topic_that_keeps_its_partitions_keeps_every_promise(kordon: ProxyProcess) -> None:
    """Members come and go, some without a commit; nothing is lost, doubled or out of order."""
    topic = Topic(kordon.bootstrap, "order-steady")
    topic.create(3)
    outcome = Run(coming_and_going([kordon.bootstrap], "order-steady"), topic.resize).run()
    assert outcome.problems == []
    assert outcome.verdict.passed, str(outcome.verdict.findings)
    accounts = outcome.verdict.accounts
    assert accounts[WRITES].records > 12 * 3 * 600 * 0.5
    assert {accounts[group].records for group in GROUPS} == {accounts[WRITES].records}
    assert sum(accounts[group].again for group in GROUPS) > 0
    assert all(accounts[group].stints > 3 and accounts[group].commits > 0 for group in GROUPS)


@pytest.mark.deep
def test_kafka_reorders_keys_when_a_topic_grows_under_a_backlog(cluster: Cluster, tmp_path: Path) -> None:
    """Records in a key's new partition are processed before those that wait in its old one: why there is Kordon."""
    topic = Topic(cluster.bootstrap(), "order-growing")
    topic.create(3)
    outcome = Run(growth_under_backlog([cluster.bootstrap()], "order-growing"), topic.resize).run(tmp_path)
    assert outcome.problems == []
    assert outcome.verdict.findings.found() == {Anomaly.NONMONOTONIC_POLL}
    assert all(behind > 1000 for behind in outcome.backlogs["resize to 6"].values())


def test_kordon_keeps_every_key_in_order_while_a_topic_grows_and_shrinks(open_cluster: Cluster) -> None:
    """The same work, through two proxies: 3 -> 6 -> 3 under a backlog, and nothing is out of order."""
    upstream = open_cluster.bootstrap()
    with ProxyProcess.start(upstream) as first, ProxyProcess.start(upstream) as second:
        create_managed(first.bootstrap, "order-two-proxies")
        topic = Topic(second.bootstrap, "order-two-proxies")
        bootstraps = [first.bootstrap, second.bootstrap]
        plan = growth_under_backlog(bootstraps, "order-two-proxies", resize_to=[6, 3], seconds=18)
        outcome = Run(plan, topic.resize).run()
    assert outcome.problems == []
    assert outcome.verdict.passed, str(outcome.verdict.findings)
    accounts = outcome.verdict.accounts
    assert {accounts[group].records for group in GROUPS} == {accounts[WRITES].records}
    assert all(behind > 1000 for behind in outcome.backlogs["resize to 6"].values())


def test_resize_that_is_refused_is_told_and_leaves_nothing_running(cluster: Cluster) -> None:
    """Kafka takes no partitions away: the run goes on to its end and says what failed."""
    topic = Topic(cluster.bootstrap(), "order-shrinking")
    topic.create(3)
    small = Plan(
        [cluster.bootstrap()], "order-shrinking", seconds=2, resize_to=[2], producers=["librdkafka"],
        groups=["librdkafka-group"], rate=200,
    )  # fmt: skip
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    outcome = Run(small, topic.resize).run()
    assert outcome.verdict.passed
    assert [problem.partition(":")[0] for problem in outcome.problems] == ["resize to 2"]
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before
