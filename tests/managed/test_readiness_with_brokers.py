"""What /readyz says while the one broker that has `__kordon.layouts` is away, and others go on."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kordon.proxy.own_topics.compacted_topic import LAYOUTS
from kordon.proxy.own_topics.layouts_topic import LAYOUTS_TOPIC
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.known import known
from kordon.testing.managed_clients import create_managed
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.short_leases import PROGRAM
from kordon.testing.waiting import wait_until

# confluent_kafka.admin re-exports these without saying so.
# pyright: reportPrivateImportUsage=false

pytestmark = [pytest.mark.broker, pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason)]

TOPIC: Final = "orders"
CAUSE: Final = f"{LAYOUTS_TOPIC} has no leader"


class Readiness(NamedTuple):
    """An answer of /readyz."""

    status: int
    reasons: str
    notes: str


def readiness(proxy: ProxyProcess) -> Readiness:
    try:
        with urllib.request.urlopen(f"http://{proxy.admin}/readyz", timeout=60) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
    said: dict[str, Any] = json.loads(body)
    return Readiness(status, "; ".join(said["reasons"]), "; ".join(said["notes"]))


def readiness_when(what: str, proxy: ProxyProcess, says: Callable[[Readiness], bool]) -> Readiness:
    """Waits until /readyz says something; returns that answer."""

    def found() -> Readiness | None:
        answer = readiness(proxy)
        return answer if says(answer) else None

    return known(wait_until(what, found))


def wait_until_well(proxy: ProxyProcess) -> None:
    """Waits until it serves managed topics and has nothing to tell."""
    wait_until("it serves", lambda: proxy.metric("kordon_managed_serving") == 1)
    wait_until("it is well", lambda: readiness(proxy) == (200, "", ""))


def test_a_fault_of_all_proxies_leaves_them_ready_and_one_that_knows_no_layouts_is_not() -> None:
    """A proxy that serves goes on under its lease; one that has to read the layouts anew says what is wrong for all.

    It stays ready, for nobody serves managed topics better. One that starts does not know which topics are managed, and
    passes nothing: its clients are better off with the others. Both are well when the broker is back.
    """
    with Cluster.start(brokers=3, config={"authorizer.class.name": ""}) as cluster:
        bootstrap = cluster.bootstrap()
        holder = cluster.brokers[2]
        layouts = NewTopic(LAYOUTS_TOPIC, 1, replica_assignment=[[holder.node_id]], config=LAYOUTS.configs(1))
        direct = AdminClient({"bootstrap.servers": bootstrap})
        direct.create_topics([layouts])[LAYOUTS_TOPIC].result(60)
        with (
            ProxyProcess.start(bootstrap, program=PROGRAM) as running,
            ProxyProcess.start(bootstrap, program=PROGRAM) as other,
        ):
            create_managed(running.bootstrap, TOPIC)
            for proxy in (running, other):
                wait_until_well(proxy)
            holder.stop()
            other.kill()
            found = readiness_when("it names the cause", running, lambda answer: CAUSE in answer.notes)
            assert found.status == 200
            assert found.reasons == ""
            assert "all proxies share the cause" in found.notes
            assert AdminClient({"bootstrap.servers": running.bootstrap}).list_topics(timeout=60).brokers
            other.start_again(wait_ready=False)
            found = readiness_when("it says why", other, lambda answer: CAUSE in answer.reasons)
            assert found.status == 503
            assert "the layouts have not been read yet" in found.reasons
            holder.start()
            for proxy in (running, other):
                wait_until_well(proxy)
