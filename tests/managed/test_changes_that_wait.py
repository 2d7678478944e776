"""Metrics of a change that waits, on a real cluster: from when somebody asked for it until it is done."""

import re
import time

import pytest
from confluent_kafka.admin import AdminClient

from kordon.proxy.ordering.changes import Stage
from kordon.proxy.process.waits import NOT_BEGUN
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import CHANGE_SECONDS, create_managed, resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.short_leases import LEASE_SECONDS, PROGRAM
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker


def waits(proxy: ProxyProcess) -> list[tuple[str, float]]:
    """By stage, how long changes have been under way."""
    rows = re.findall(r'^kordon_managed_change_seconds\{stage="([^"]+)",topic="waits"\} (\S+)$', proxy.metrics(), re.M)
    return [(stage, float(seconds)) for stage, seconds in rows]


def test_a_change_that_waits_for_a_dead_proxy_shows_how_long_and_for_what(unled_cluster: Cluster) -> None:
    """It has one series, whose time goes on from attempt to attempt, and none when it is done."""
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap, program=PROGRAM) as first:
        create_managed(first.bootstrap, "waits")
        with ProxyProcess.start(bootstrap, program=PROGRAM) as second:
            assert first.leads()
            wait_until("both hold leases", lambda: len(first.topics()["control"]["members"]) == 2)
            second.kill()
            admin = AdminClient({"bootstrap.servers": first.bootstrap})
            change = resize(admin, "waits", 6)
            seen: list[tuple[str, float]] = []
            leases: list[float] = []
            while not change.done():
                rows = waits(first)
                assert len(rows) <= 1
                seen += rows
                leases.append(first.metric("kordon_managed_lease_seconds"))
                time.sleep(0.05)
            change.result(CHANGE_SECONDS)
        ages = [seconds for _, seconds in seen]
        assert ages == sorted(ages)
        assert ages[-1] > 1.0, "the dead proxy did not delay it"
        stages = {stage for stage, _ in seen}
        assert Stage.PAUSING.value in stages or Stage.WAITING.value in stages
        assert stages <= {NOT_BEGUN, *(each.value for each in Stage)}
        wait_until("nothing waits any more", lambda: not waits(first))
        assert 0 < max(leases) <= LEASE_SECONDS
        assert first.metric("kordon_managed_pause_seconds_count", topic="waits") >= 1
