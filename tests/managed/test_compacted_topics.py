"""Compacted managed topics with their janitor, in front of a real broker whose cleaner is in a hurry."""

from collections import Counter
from collections.abc import Generator

import pytest
from confluent_kafka import KafkaException

from kordon.testing.cluster import Cluster
from kordon.testing.compacted_topics import HASTY, PATIENCE_SECONDS, Writer, configure, land_strays, read_from_0
from kordon.testing.managed_clients import create_managed, resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until


@pytest.fixture(scope="module")
def proxies(compacting_cluster: Cluster) -> Generator[list[ProxyProcess], None, None]:
    """Two proxies that let topics be compacted at once."""
    config = {"ordering": {"janitor_lag_ms": 0}}
    bootstrap = compacting_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap, config=config) as first, ProxyProcess.start(bootstrap, config=config) as second:
        yield [first, second]


def test_a_compacted_topic_read_from_0_gives_the_latest_value_of_each_key(
    compacting_cluster: Cluster, proxies: list[ProxyProcess]
) -> None:
    """Growths, shrinks, deletes, compaction all the while: in the end nothing else is left, and no key comes back."""
    admin = create_managed(proxies[0].bootstrap, "prices", configs=HASTY)
    writer = Writer(proxies[1].bootstrap, "prices")
    writer.put(range(60), b"first")
    resize(admin, "prices", 6).result(PATIENCE_SECONDS)
    writer.put(range(40), b"second")
    writer.put(range(0, 40, 4), None)
    resize(admin, "prices", 4).result(PATIENCE_SECONDS)
    writer.put(range(1, 60, 3), b"third")
    writer.put(range(1, 60, 6), None)
    resize(admin, "prices", 12).result(PATIENCE_SECONDS)
    writer.put(range(2, 60, 7), b"fourth")

    got = read_from_0(proxies[0].bootstrap, "prices")
    assert dict(got).items() >= writer.truth.items()
    assert {key for key, value in got if value is None} <= writer.deleted  # a marker would be one of another key

    def is_compacted() -> bool:
        writer.roll()
        left = [each for each in read_from_0(compacting_cluster.bootstrap(), "prices") if each[1] is not None]
        return Counter(left) == Counter(writer.truth.items())

    wait_until("only the latest values are left", is_compacted, PATIENCE_SECONDS)
    got = read_from_0(proxies[1].bootstrap, "prices")
    assert Counter(each for each in got if each[1] is not None) == Counter(writer.truth.items())
    assert {key for key, value in got if value is None} <= writer.deleted
    writer.close()


def test_a_value_that_a_hidden_record_stands_behind_comes_back(
    compacting_cluster: Cluster, proxies: list[ProxyProcess]
) -> None:
    """Tombstones that landed late: no reader sees them, but brokers compact by them. What they take is repeated."""
    configs = {**HASTY, "min.compaction.lag.ms": "600000"}
    create_managed(proxies[0].bootstrap, "quotes", configs=configs)
    writer = Writer(proxies[1].bootstrap, "quotes")
    writer.put(range(30), b"first")
    shadowed = sorted(key for key, _ in read_from_0(compacting_cluster.bootstrap(), "quotes", partitions=1))
    assert shadowed
    land_strays(compacting_cluster, "quotes", shadowed)

    def are_back() -> bool:
        got = Counter(key for key, _ in read_from_0(proxies[0].bootstrap, "quotes"))
        return all(got[key] == 1 + (key in shadowed) for key in writer.truth)

    wait_until("values are written again", are_back, PATIENCE_SECONDS)
    configure(compacting_cluster.bootstrap(), "quotes", {"min.compaction.lag.ms": "0", "max.compaction.lag.ms": "100"})

    def is_compacted() -> bool:
        writer.roll()
        left = read_from_0(compacting_cluster.bootstrap(), "quotes", partitions=3)
        return Counter(left) == Counter(writer.truth.items())

    wait_until("only the latest values are left", is_compacted, PATIENCE_SECONDS)
    assert Counter(read_from_0(proxies[1].bootstrap, "quotes")) == Counter(writer.truth.items())
    writer.close()


@pytest.mark.deep
def test_compaction_that_was_switched_on_without_kordon_is_a_finding(
    compacting_cluster: Cluster, proxies: list[ProxyProcess]
) -> None:
    """Kordon refuses it, brokers do not: within a minute its people are told, until it is mended."""
    create_managed(proxies[0].bootstrap, "yields")
    configure(compacting_cluster.bootstrap(), "yields", {"cleanup.policy": "compact,delete"})

    def findings() -> set[str]:
        found = [finding for proxy in proxies for finding in proxy.topics()["findings"]]
        return {finding["kind"] for finding in found if finding["topic"] == "yields"}

    wait_until("it is found", lambda: findings() == {"compacted_without_janitor"}, PATIENCE_SECONDS)
    configure(proxies[0].bootstrap, "yields", {"kordon.janitor": "true"})
    wait_until("it is mended", lambda: not findings(), PATIENCE_SECONDS)


def test_a_managed_topic_is_compacted_only_with_its_janitor(proxies: list[ProxyProcess]) -> None:
    """Compaction waits for the janitor to be switched on, and the janitor stays as long as the topic is compacted."""
    bootstrap = proxies[0].bootstrap
    create_managed(bootstrap, "rates")
    with pytest.raises(KafkaException, match=r"kordon\.janitor=true"):
        configure(bootstrap, "rates", {"cleanup.policy": "compact"})
    configure(bootstrap, "rates", {"kordon.janitor": "true"})
    configure(bootstrap, "rates", {"cleanup.policy": "compact"})
    with pytest.raises(KafkaException, match="is compacted"):
        configure(bootstrap, "rates", {"kordon.janitor": "false"})
    configure(bootstrap, "rates", {"cleanup.policy": "delete"})
    configure(bootstrap, "rates", {"kordon.janitor": "false"})
