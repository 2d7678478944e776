"""A controller that ends in order: the next one begins at once, for it knows that no lease is left (MISSING-WAITED)."""

from datetime import datetime
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import CHANGE_SECONDS, Sender, create_managed, resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.short_leases import LEASE_SECONDS, PROGRAM

pytestmark = pytest.mark.broker


def seconds_between(first: dict[str, Any], last: dict[str, Any]) -> float:
    """Returns what lies between two lines of a log."""
    return (datetime.fromisoformat(last["timestamp"]) - datetime.fromisoformat(first["timestamp"])).total_seconds()


def joined_last(proxy: ProxyProcess) -> dict[str, Any]:
    """Returns the line from which on a proxy has belonged to each generation; those before are of strangers."""
    joined = proxy.events("group_joined")
    numbers = [each["generation"] for each in joined]
    gaps = [at for at in range(1, len(joined)) if numbers[at] - numbers[at - 1] not in (0, 1)]
    return joined[max(gaps, default=0)]


def test_changes_go_on_when_the_controller_ends_in_order(unled_cluster: Cluster) -> None:
    """The next one waits for nobody but strangers of before its own time; what it admits is in order."""
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap, program=PROGRAM) as first:
        create_managed(first.bootstrap, "handed-over")
        with ProxyProcess.start(bootstrap, program=PROGRAM) as second:
            assert first.leads()
            sender = Sender(second.bootstrap, "handed-over")
            sender.send_for(2.0)
            assert first.stop() == 0
            admin = AdminClient({"bootstrap.servers": second.bootstrap})
            resize(admin, "handed-over", 6).result(CHANGE_SECONDS)
            sender.send_for(0.5)
            sender.finish()
            sender.assert_read_by(second.bootstrap)
            (began,) = second.events("controller_began")
            left_of_a_lease = max(LEASE_SECONDS - seconds_between(joined_last(second), began), 0.0)
            assert began["waits_seconds"] <= left_of_a_lease + 1.0
            assert first.events("left_unsaid") == []


def test_a_controller_that_ends_without_the_layouts_ends_in_order(unled_cluster: Cluster) -> None:
    """It cannot say that it is gone, says that, and ends all the same."""
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap) as proxy:
        create_managed(proxy.bootstrap, "left-behind")
        direct = AdminClient({"bootstrap.servers": bootstrap})
        direct.delete_topics(["__kordon.layouts"])["__kordon.layouts"].result(60)
        assert proxy.stop() == 0
        assert "Traceback" not in proxy.log()
