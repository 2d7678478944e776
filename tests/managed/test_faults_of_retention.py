"""Brokers delete what is old, whole retired partitions in the end, while a managed topic grows and shrinks."""

from collections.abc import Generator

import pytest
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_managed, resize, set_configs, watermarks
from kordon.testing.managed_traffic import Traffic
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.deep, pytest.mark.timeout(400)]

TOPIC = "retained"
_OFTEN = {"authorizer.class.name": "", "log.retention.check.interval.ms": "500"}
_SHORT = {"segment.ms": "3000", "retention.ms": "20000", "file.delete.delay.ms": "1000"}


@pytest.fixture(scope="module")
def forgetful() -> Generator[Cluster, None, None]:
    """A broker that looks twice a second for segments to delete."""
    if DESCRIBED_PRODUCERS.is_missing:
        pytest.skip(DESCRIBED_PRODUCERS.reason)
    with Cluster.start(config=_OFTEN) as cluster:
        yield cluster


def are_empty(cluster: Cluster, partitions: range) -> bool:
    """Whether retention has taken all that these ever held."""
    return all(first == end > 0 for first, end in watermarks(cluster.bootstrap(), TOPIC, partitions).values())


def have_lost_their_head(cluster: Cluster, partitions: range) -> bool:
    """Whether retention has taken something of each."""
    return all(first > 0 for first, _ in watermarks(cluster.bootstrap(), TOPIC, partitions).values())


def test_retention_takes_old_segments_and_retired_partitions_while_they_come_and_go(forgetful: Cluster) -> None:
    """3 → 4 → 6 → 12 → 5 → 3 → 6 with 20 s of retention: groups that keep up get all; a later one gets what is left.

    The last growth uses partitions again that retention has emptied meanwhile.
    """
    with ProxyProcess.start(forgetful.bootstrap()) as proxy:
        admin = create_managed(proxy.bootstrap, TOPIC, configs=_SHORT)
        with Traffic([proxy.bootstrap], TOPIC) as traffic:
            for count in (4, 6, 12, 5, 3):
                traffic.wait_flowing()
                resize(admin, TOPIC, count).result(60)
            traffic.wait_flowing()
            wait_until("retired partitions are empty", lambda: are_empty(forgetful, range(3, 12)), 90)
            wait_until("the others go on", lambda: have_lost_their_head(forgetful, range(3)), 90)
            traffic.wait_flowing()
            resize(admin, TOPIC, 6).result(60)
            traffic.wait_flowing()
            keep_the_rest(admin)
            traffic.finish(is_kept=False)


def keep_the_rest(admin: AdminClient) -> None:
    """Lets retention take nothing more, so that something is left for a group however slow this machine is."""
    set_configs(admin, TOPIC, {"retention.ms": "-1"}).result(60)
