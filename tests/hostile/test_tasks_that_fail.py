"""Background work that fails: all of it, at its beginning and in its midst, and clients go on."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import Sender, create_managed, resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker

FAILED_TWICE = {
    "accept clients",
    "belong to the proxies' group",
    "end runs of decisions",
    "follow ACLs",
    "follow the cluster",
    "hold layouts to their topics",
    "hold logs to their layouts",
    "join the proxies' group",
    "keep managed topics",
    "lead",
    "look at the lag of groups",
    "look through compacted topics",
    "look whether transactions are verified",
    "renew the lease",
    "sweep connections",
    "upkeep",
    "watch files",
    "watch the lease",
    "write decisions",
}
"""All that lives as long as the proxy, or leads."""


def failures(proxy: ProxyProcess) -> dict[str, float]:
    """Returns how often each work has failed."""
    return {
        sample.labels["task"]: sample.value
        for family in text_string_to_metric_families(proxy.metrics())
        for sample in family.samples
        if sample.name == "kordon_task_failures_total"
    }


def failed_twice(proxy: ProxyProcess) -> set[str]:
    return {name for name, count in failures(proxy).items() if count >= 2}


def test_whatever_fails_is_begun_again_and_no_client_notices(unled_cluster: Cluster) -> None:
    """A topic is managed, written, grown and read through a proxy each of whose tasks fails twice; it ends in order."""
    with ProxyProcess.start(
        unled_cluster.bootstrap("PLAINTEXT"),
        config={"decisions": {"to": "topic"}},
        program="kordon.testing.failing_tasks",
    ) as proxy:
        admin = create_managed(proxy.bootstrap, "failing-tasks")
        sender = Sender(proxy.bootstrap, "failing-tasks")
        sender.send_for(3.0)
        resize(admin, "failing-tasks", 6).result(90)
        sender.send_for(1.0)
        sender.finish()
        sender.assert_read_by(proxy.bootstrap)
        wait_until(
            "all has failed twice", lambda: {name for name, n in failures(proxy).items() if n >= 2} >= FAILED_TWICE
        )
        assert failures(proxy)["passing"] == 0
        assert proxy.stop() == 0
