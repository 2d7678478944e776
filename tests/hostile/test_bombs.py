"""Batches of a few kilobytes that hold gigabytes: readers pass over them, and so does the janitor."""

import json
from collections.abc import Iterable, Mapping

import psutil
import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.testing.cluster import Cluster
from kordon.testing.compacted_topics import Writer, read_from_0
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.managed_clients import Sender, create_managed, resize
from kordon.testing.messages.bombs import bomb
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker
MB = 1_000_000
SIZES: Mapping[str, tuple[int, ...]] = {"zstd": (200 * MB, 1_900 * MB), "gzip": (60 * MB,), "lz4": (60 * MB,)}
"""What brokers take: no larger than a megabyte as it is sent. Snappy leaves a twentieth, which is below the limit."""
PASSED = 4


@pytest.fixture(scope="module")
def bombs() -> list[bytes]:
    return [bomb(codec, size) for codec, sizes in SIZES.items() for size in sizes]


def throw(client: PlainConnection, topic: str, partition: int, batches: Iterable[bytes]) -> None:
    """Writes batches round Kordon; the broker, which looks into them, takes all."""
    for data in batches:
        row = {"name": topic, "partition_data": [{"index": partition, "records": data}]}
        answer = client.ask(apis.PRODUCE, 9, {"acks": -1, "timeout_ms": 60_000, "topic_data": [row]})
        assert answer.responses[0].partition_responses[0].error_code == Code.NONE


def passed_over(proxy: ProxyProcess, topic: str) -> float:
    """How many batches were counted, as often as the log says it."""
    events = map(json.loads, proxy.log().splitlines())
    logged = [each for each in events if each["event"] == "batch_passed_over" and each["topic"] == topic]
    counted = proxy.metric("kordon_managed_passed_over_batches_total", topic=topic, reason="too_large")
    assert len(logged) == counted
    return counted


def test_readers_are_moved_on_over_bombs(open_cluster: Cluster, proxy: ProxyProcess, bombs: list[bytes]) -> None:
    """Thrown by a client of the dialect and by one that goes round Kordon; stock consumers get everything else."""
    create_managed(proxy.bootstrap, "bombed")
    sender = Sender.sent_for(1, proxy.bootstrap, "bombed")
    process = psutil.Process(proxy.pid)
    memory = process.memory_info().rss
    with DialectConnection(proxy.bootstrap) as client:
        for data in bombs:
            assert client.produce("bombed", 0, data, count=3).error_code == Code.NONE
    with PlainConnection(open_cluster.bootstrap("PLAINTEXT")) as client:
        throw(client, "bombed", 1, bombs)
    sender.send_for(1)
    sender.finish()
    sender.close()
    for _ in range(2):
        read = read_from_0(proxy.bootstrap, "bombed")
        assert sorted((key, int(value or b"-1")) for key, value in read) == sorted(sender.acknowledged)
        assert passed_over(proxy, "bombed") == 2 * PASSED
    assert process.memory_info().rss - memory < 100 * MB


def test_the_janitor_goes_on_behind_bombs(unled_cluster: Cluster, bombs: list[bytes]) -> None:
    """It gives up what they hold, looks at the rest, and the topic grows as ever."""
    configs = {"cleanup.policy": "compact", "kordon.janitor": "true"}
    with ProxyProcess.start(unled_cluster.bootstrap("PLAINTEXT")) as leader:
        admin = create_managed(leader.bootstrap, "bombed-keys", configs=configs)
        writer = Writer(leader.bootstrap, "bombed-keys")
        writer.put(range(60), b"first")
        resize(admin, "bombed-keys", 6).result(60)
        memory = psutil.Process(leader.pid).memory_info().rss
        with DialectConnection(leader.bootstrap) as client:
            for data in bombs:
                assert client.produce("bombed-keys", 4, data, count=6).error_code == Code.NONE
        writer.put(range(30), b"second")

        def is_level() -> bool:
            given_up = leader.metric("kordon_janitor_values_given_up_total", topic="bombed-keys")
            return given_up == PASSED and not leader.metric("kordon_janitor_behind_records", topic="bombed-keys")

        wait_until("the janitor has looked at all", is_level, 60)
        resize(admin, "bombed-keys", 12).result(60)
        writer.put(range(10), b"third")
        writer.close()
        assert dict(read_from_0(leader.bootstrap, "bombed-keys")) == writer.truth
        assert passed_over(leader, "bombed-keys") == PASSED
        assert psutil.Process(leader.pid).memory_info().rss - memory < 100 * MB
