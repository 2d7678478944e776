"""The comparison of groups that work on slow records counts what each way handles."""

from __future__ import annotations

import pytest

from kordon.bench.peers import SMOKE, WAYS, Handled, measure
from kordon.testing.cluster import Cluster
from kordon.testing.proxy_process import ProxyProcess


def test_what_is_begun_after_a_later_one_of_its_key_is_an_inversion() -> None:
    """Others keep their own order."""
    handled = Handled()
    for key, number in ((b"a", 1), (b"b", 0), (b"a", 3), (b"a", 2), (b"b", 1)):
        handled.begin(key, number)
    assert (handled.records, handled.inversions) == (5, 1)


@pytest.mark.broker
@pytest.mark.deep
def test_two_processes_work_on_a_topic_in_order(open_cluster: Cluster) -> None:
    """Through a Kordon that keeps what is done offset by offset."""
    (way,) = (each for each in WAYS if each.name == "CooperativeConsumer, through Kordon")
    config = {"ordering": {"individual_commits": True}}
    with ProxyProcess.start(open_cluster.bootstrap(), config=config) as proxy:
        rate = measure(way, SMOKE, open_cluster.bootstrap(), proxy.bootstrap)
    assert rate.records > 0
    assert rate.inversions == 0
