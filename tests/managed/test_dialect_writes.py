"""Clients of the dialect write to physical partitions of managed topics, with real brokers."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.dialect.connection import PRODUCE, DialectConnection
from kordon.testing.dialect.writer import DialectWriter
from kordon.testing.managed_clients import Sender, create_managed, read_all, resize
from kordon.testing.managed_writes import a_batch
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason),
]


def log_end(cluster: Cluster, topic: str, partition: int) -> int:
    """Returns where a physical partition ends, as its broker says."""
    row = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}
    asked = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [row]}]}
    with PlainConnection(cluster.bootstrap("PLAINTEXT")) as broker:
        found = broker.ask(apis.LIST_OFFSETS, 4, asked).topics[0].partitions[0]
    assert found.error_code == Code.NONE
    return int(found.offset)


@contextmanager
def writing(bootstraps: list[str], topic: str, writers: int) -> Iterator[list[DialectWriter]]:
    """Lets clients of the dialect write while the block runs, and to their ends."""
    started = [DialectWriter(bootstraps, topic, f"dialect-{number}") for number in range(writers)]
    for writer in started:
        writer.start()
    yield started
    for writer in started:
        writer.finish()


def assert_all_once_and_in_order(acknowledged: list[tuple[bytes, int]], got: list[tuple[bytes, int]]) -> None:
    """Nothing acknowledged is lost, nothing doubled, and each key's records are in the order of their numbers."""
    assert set(acknowledged) == set(got)
    assert len(got) == len(set(got))
    by_key: dict[bytes, list[int]] = {}
    for key, number in got:
        by_key.setdefault(key, []).append(number)
    assert by_key == {key: sorted(numbers) for key, numbers in by_key.items()}


def test_a_wrong_count_is_refused_for_its_topic_only_and_writes_nothing(
    proxies: list[ProxyProcess], open_cluster: Cluster
) -> None:
    """KIP-253: whoever does not know how many partitions there are learns it before he writes; other topics go on."""
    for topic in ("counted", "counted-too"):
        admin = create_managed(proxies[0].bootstrap, topic)
        resize(admin, topic, 4).result(60)
    with DialectConnection(proxies[1].bootstrap) as dialect:
        assert dialect.produce("counted", 0, a_batch("right"), count=4).error_code == Code.NONE
        ends = [log_end(open_cluster, "counted", q) for q in range(4)]
        for count in (3, 5, -1, 12):
            answer = dialect.produce("counted", 0, a_batch("wrong"), count=count)
            assert (answer.error_code, answer.base_offset) == (Code.INVALID_PARTITION_METADATA, -1)
        for unknown in (4, 11, 99):
            answer = dialect.produce("counted", unknown, a_batch("wrong"), count=4)
            assert answer.error_code == Code.INVALID_PARTITION_METADATA
        rows = [
            {
                "name": topic,
                "partition_data": [{"index": q, "records": a_batch("both")} for q in (0, 1)],
                "undeleted_partition_count": count,
            }
            for topic, count in (("counted", 3), ("counted-too", 4))
        ]
        told = dialect.ask(apis.PRODUCE, PRODUCE, {"acks": -1, "timeout_ms": 10_000, "topic_data": rows}).responses
        codes = {row.name: [each.error_code for each in row.partition_responses] for row in told}
        assert codes == {"counted": [Code.INVALID_PARTITION_METADATA] * 2, "counted-too": [Code.NONE] * 2}
    assert [log_end(open_cluster, "counted", q) for q in range(4)] == ends


def test_a_retry_behind_a_growth_and_a_shrink_is_known_and_what_was_not_written_is_refused(
    proxies: list[ProxyProcess],
) -> None:
    """OUTCOME-FIRST: as it was, by its old count, through the other proxy, to a partition retired meanwhile."""
    admin = create_managed(proxies[0].bootstrap, "asked")
    batches = [a_batch(str(number), producer_id=77, epoch=0, sequence=number) for number in range(4)]
    resize(admin, "asked", 4).result(60)
    with DialectConnection(proxies[0].bootstrap) as first, DialectConnection(proxies[1].bootstrap) as second:
        for batch in batches[:3]:
            assert first.produce("asked", 3, batch, count=4).error_code == Code.NONE
        resize(admin, "asked", 3).result(60)
        for connection in (first, second):
            codes = [connection.produce("asked", 3, batch, count=4).error_code for batch in batches]
            assert codes == [Code.NONE, Code.NONE, Code.NONE, Code.INVALID_PARTITION_METADATA]
        resize(admin, "asked", 4).result(60)
        again = second.produce("asked", 3, batches[3], count=4)
        assert (again.error_code, again.base_offset) == (Code.NONE, 3)
        assert second.produce("asked", 3, batches[2], count=4).error_code == Code.NONE
    assert sorted(number for _, number in read_all(proxies[0].bootstrap, "asked", 4)) == [0, 1, 2, 3]


def test_writes_without_idempotence_and_without_answers_arrive(proxies: list[ProxyProcess]) -> None:
    """LENT-IDENTITY holds for dialect clients, whatever copies they wait for; transactions are refused as others'."""
    create_managed(proxies[0].bootstrap, "plain")
    with DialectConnection(proxies[0].bootstrap) as dialect:

        def fields(acks: int, value: str) -> dict[str, object]:
            row = {"name": "plain", "partition_data": [{"index": 1, "records": a_batch(value)}]}
            return {"acks": acks, "timeout_ms": 10_000, "topic_data": [{**row, "undeleted_partition_count": 3}]}

        dialect.tell(apis.PRODUCE, PRODUCE, fields(0, "0"))
        for acks, value in ((1, "1"), (-1, "2")):
            (row,) = dialect.ask(apis.PRODUCE, PRODUCE, fields(acks, value)).responses
            assert row.partition_responses[0].error_code == Code.NONE
        transactional = a_batch("3", producer_id=5, epoch=0, sequence=0, txn=1)
        assert dialect.produce("plain", 1, transactional, count=3).error_code == Code.INVALID_TXN_STATE
    assert sorted(number for _, number in read_all(proxies[0].bootstrap, "plain", 3)) == [0, 1, 2]


def grow_and_shrink(lives: ProxyProcess, other: ProxyProcess, topic: str, *, kills: bool) -> None:
    """Dialect and stock producers write through two proxies: 3 -> 6 -> 4 -> 7 -> 3; what was acknowledged is repeated.

    Consumers without the SDK read every record once, each key in order.

    Args:
        lives: A proxy that lives to the end.
        other: Another one.
        topic: A name that is free.
        kills: Whether the other one is killed at a fence.
    """
    admin = create_managed(lives.bootstrap, topic)
    stock = Sender(lives.bootstrap, topic)
    with writing([lives.bootstrap, other.bootstrap], topic, 4) as writers:
        for number, count in enumerate((6, 4, 7, 3)):
            done = resize(admin, topic, count)
            if count == 3 and kills:
                other.kill()
            stock.send_for(0.5, done)
            done.result(60)
            wait_until("all know it", lambda: all(each.layout_epoch > number for each in writers), 60)  # noqa: B023
    stock.finish()
    stock.close()
    acknowledged = [*stock.acknowledged, *(each for writer in writers for each in writer.acknowledged)]
    assert_all_once_and_in_order(acknowledged, read_all(lives.bootstrap, topic, len(acknowledged)))
    assert all(writer.repeated for writer in writers)
    assert lives.metric("kordon_managed_hidden_batches_total", kind="dialect") > 0


def test_nothing_is_lost_or_doubled_while_partitions_come_and_go(proxies: list[ProxyProcess]) -> None:
    """Whatever a client of the dialect has to send again, to whichever proxy, beside stock clients."""
    grow_and_shrink(proxies[0], proxies[1], "mixed", kills=False)


@pytest.mark.deep
@pytest.mark.timeout(400)
def test_nothing_is_lost_or_doubled_when_a_proxy_dies_at_a_fence(open_cluster: Cluster) -> None:
    """Its writes may have landed or not, and land late; the fence waits until its lease has run out."""
    bootstrap = open_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap) as lives, ProxyProcess.start(bootstrap) as dies:
        grow_and_shrink(lives, dies, "mixed-with-death", kills=True)
