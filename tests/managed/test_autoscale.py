"""`kordon autoscale` beside real clients: the topic follows the load, and keys keep their order."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kordon.testing.autoscale_day import HIGH, LOW, POLICY, AutoscalerProcess, begun, partitions_of
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_managed, create_ordinary, manage
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.beside,
    pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason),
]
PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="module")
def own_proxy() -> Iterator[ProxyProcess]:
    """A proxy in front of a broker of its own: loads are measured here."""
    with Cluster.start(brokers=1) as cluster, ProxyProcess.start(cluster.bootstrap()) as proxy:
        yield proxy


def test_topic_follows_a_load_that_rises_and_falls_by_ten(own_proxy: ProxyProcess) -> None:
    """It grows and shrinks back to where it began; no record is lost, doubled or out of order."""
    with begun(own_proxy, POLICY) as (traffic, autoscaler):
        wait_until("it has judged", lambda: autoscaler.events("autoscale_verdict"), PATIENCE_SECONDS)
        traffic.set_rate(HIGH)
        wait_until("the topic grows", lambda: partitions_of(own_proxy) > 3, PATIENCE_SECONDS)
        traffic.set_rate(LOW)
        wait_until("the topic shrinks", lambda: partitions_of(own_proxy) == 3, PATIENCE_SECONDS)
        traffic.catch_up()
        order, changes = traffic.order(), autoscaler.events("autoscale_changed")
    assert (order.out_of_order, order.missing, order.doubled, traffic.failed) == (0, 0, 0, 0)
    assert changes[0]["partitions"] == 3 < changes[0]["wanted"]
    assert changes[0]["bytes_per_second"] > 3 * 10 * 1024
    assert "KiB/s for each of 3 partitions, of 10.0 KiB/s" in changes[0]["because"]
    assert 3 in [each["wanted"] for each in changes[1:]]


def test_dry_run_changes_nothing_and_says_what_it_would_do(own_proxy: ProxyProcess) -> None:
    """Here the policy alone asks for more partitions than there are."""
    create_managed(own_proxy.bootstrap, "dry")
    policy = POLICY | {"minimum": 6}
    with AutoscalerProcess(own_proxy, policy, "--dry-run", topic="dry") as autoscaler:
        wait_until("it decides", lambda: autoscaler.events("autoscale_changed"), PATIENCE_SECONDS)
        said = autoscaler.events("autoscale_changed")[0]
    assert (said["dry_run"], said["partitions"], said["wanted"]) == (True, 3, 6)
    assert said["because"] == "the policy asks for 6 to 12 partitions"
    assert own_proxy.topic("dry")["undeleted_partition_count"] == 3


def test_nothing_is_changed_while_a_topic_is_taken_over(own_proxy: ProxyProcess) -> None:
    """The verdict says what it waits for."""
    admin = create_ordinary(own_proxy.bootstrap, "taken")
    producer = Producer({"bootstrap.servers": own_proxy.bootstrap})
    producer.produce("taken", key="k", value="v")
    assert not producer.flush(60)
    manage(admin, "taken", transition_ms="3600000").result(60)
    with AutoscalerProcess(own_proxy, POLICY | {"minimum": 6}, topic="taken") as autoscaler:
        wait_until("it has judged twice", lambda: len(autoscaler.events("autoscale_verdict")) > 1, PATIENCE_SECONDS)
        said = autoscaler.events("autoscale_verdict")[-1]
    assert "; not now: " in said["because"]
    assert own_proxy.topic("taken")["undeleted_partition_count"] == 3


@pytest.mark.parametrize(
    ("topic", "flags", "said"),
    [
        ("nowhere", [], "no topic nowhere is managed at"),
        ("orders", ["--admin", "127.0.0.1:1"], "no Kordon answers at 127.0.0.1:1"),
        ("orders", ["--bootstrap", "127.0.0.1:1"], "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_seen_is_said_and_ends_with_1(
    own_proxy: ProxyProcess, tmp_path: Path, topic: str, flags: list[str], said: str
) -> None:
    """Nothing is changed by a look that failed."""
    file = tmp_path / "policies.yaml"
    file.write_text(f"{{interval: 1, topics: {{{topic}: {{minimum: 6, maximum: 6, bytes_per_second: 1}}}}}}")
    command = [sys.executable, "-m", "kordon.proxy", "autoscale", str(file), "--once"]
    command += ["--bootstrap", own_proxy.bootstrap, "--admin", own_proxy.admin, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert '"event":"autoscale_blind"' in done.stderr.replace(" ", "")
    assert said in done.stderr
