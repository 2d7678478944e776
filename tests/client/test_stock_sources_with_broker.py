"""Producers in a group with stock clients, as docs/sources.md has them: at a bare broker and through Kordon."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kordon.testing.broker_features import BUMPED_EPOCHS, NEW_GROUPS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_ordinary
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.tails import JAVA, KAFKA_PYTHON, KIP_848, LIBRDKAFKA, SDK, Tails
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.skipif(BUMPED_EPOCHS.is_missing, reason="KIP-447 came with Kafka 2.5")]

FILES = 3


@pytest.fixture(params=[pytest.param("bare", marks=pytest.mark.deep), "kordon"])
def tails(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Iterator[Tails]:
    """Three files, and nobody who copies them yet."""
    bootstrap, config = cluster.bootstrap(), dict[str, str]()
    if request.param == "kordon":
        proxy: ProxyProcess = request.getfixturevalue("kordon")
        bootstrap, config = proxy.bootstrap, {"kordon.source": "true"}
    group = f"source-{uuid.uuid4().hex[:8]}"
    create_ordinary(bootstrap, group, FILES, config)
    create_ordinary(bootstrap, f"data-of-{group}", 2)
    started = Tails(bootstrap, group, f"data-of-{group}", tmp_path, files=FILES)
    try:
        yield started
    finally:
        started.stop()


@pytest.mark.parametrize(
    ("mortal", "heirs"),
    [
        pytest.param([JAVA, KAFKA_PYTHON], [SDK], id="mixed"),
        pytest.param([LIBRDKAFKA], [LIBRDKAFKA, LIBRDKAFKA], id="librdkafka", marks=pytest.mark.deep),
    ],
)
def test_lines_are_copied_once_though_programs_are_killed(tails: Tails, mortal: list[str], heirs: list[str]) -> None:
    """Each of three programs has a file; those that are killed leave theirs, in the middle of it, to the others."""
    killed = [tails.start(kind) for kind in mortal]
    for kind in heirs:
        tails.start(kind)
    tails.add(100)
    wait_until("each has a file", lambda: tails.shares() == [1] * FILES)
    wait_until("all is copied", tails.is_copied)
    tails.add(20_000)  # several transactions of each
    wait_until("more is copied", lambda: tails.copied().total() > FILES * 100)
    for each in killed:
        each.kill()
    wait_until("all is copied by the others", tails.is_copied)
    for kind in mortal:
        tails.start(kind)
    wait_until("each has a file again", lambda: tails.shares() == [1] * FILES)
    tails.add(100)
    wait_until("all is copied", tails.is_copied)


@pytest.mark.deep
@pytest.mark.skipif(NEW_GROUPS.is_missing, reason=NEW_GROUPS.reason)
def test_lines_are_copied_once_in_a_group_of_the_new_protocol(tmp_path: Path) -> None:
    """The broker shares partitions out, and knows of no userData (KIP-848); a session is the broker's, too."""
    short = {"group.consumer.min.session.timeout.ms": "2000", "group.consumer.session.timeout.ms": "6000"}
    beats = {"group.consumer.min.heartbeat.interval.ms": "500", "group.consumer.heartbeat.interval.ms": "1000"}
    with Cluster.start(config=short | beats) as cluster, ProxyProcess.start(cluster.bootstrap()) as kordon:
        create_ordinary(kordon.bootstrap, "files", FILES)
        create_ordinary(kordon.bootstrap, "lines", 2)
        tails = Tails(kordon.bootstrap, "files", "lines", tmp_path, files=FILES)
        try:
            programs = [tails.start(KIP_848) for _ in range(FILES)]
            wait_until("each has a file", lambda: tails.shares() == [1] * FILES)
            for victim in programs:
                tails.add(20_000)
                wait_until("more is copied", lambda: tails.copied().total() > 0)
                victim.kill()
                tails.start(KIP_848)
                wait_until("all is copied", tails.is_copied)
        finally:
            tails.stop()
