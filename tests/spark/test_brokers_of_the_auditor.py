"""The auditor's own way to brokers and batches: what it reads is what plain clients see."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from kordon.codecs.fetched import Fetched
from kordon.codecs.records import BATCH_HEADER, batches
from kordon.spark_jobs.batch_reader import columns, read_partition
from kordon.spark_jobs.batches_source import BatchesStream
from kordon.spark_jobs.brokers import EARLIEST, LATEST, BrokersUnavailable, Cluster, NotAllowed, PartitionKey, Security
from kordon.spark_jobs.errors import cause_of
from kordon.spark_jobs.judging.schema import BATCHES
from kordon.spark_jobs.judging.shipments import What, of_arrow, unpacked
from kordon.testing.broker_config import USERS
from kordon.testing.cluster import Cluster as RealCluster
from kordon.testing.managed_clients import create_ordinary, read_to_ends, wait_told_of, watermarks
from kordon.testing.managed_writes import a_batch
from kordon.testing.rights import Allowed
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def rows(reading: Iterator[tuple[What, pl.DataFrame]]) -> list[dict[str, Any]]:
    return [row for what, table in reading if what != What.KEYS for row in table.to_dicts()]


def topic_of(cluster: RealCluster) -> str:
    name = f"audit-{uuid.uuid4().hex[:8]}"
    create_ordinary(cluster.bootstrap(), name, 1)
    return name


def produce(cluster: RealCluster, topic: str, count: int, **options: Any) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap(), **options})
    if "transactional.id" in options:
        producer.init_transactions(90)
        producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, key=str(number % 7), value=f"value {number}" * 10, partition=0)
    if "transactional.id" in options:
        producer.commit_transaction(90)
    assert producer.flush(90) == 0


def consumed(cluster: RealCluster, topic: str) -> list[int]:
    """Offsets of the records that a plain consumer sees, aborted ones too."""
    settings = {"bootstrap.servers": cluster.bootstrap(), "isolation.level": "read_uncommitted"}
    return [message.offset() or 0 for message in read_to_ends(settings, topic)]


def stable_end(cluster: RealCluster, topic: str) -> int:
    """Returns where read_committed consumers, as those of librdkafka are, find the log's end."""
    return watermarks(cluster.bootstrap(), topic, [0])[0][1]


@pytest.mark.broker
def test_batches_are_what_a_plain_consumer_sees(cluster: RealCluster) -> None:
    """Compressed or not, idempotent or not, in transactions: offsets without a hole, and every record counted once."""
    topic = topic_of(cluster)
    for number, compression in enumerate(("none", "gzip", "lz4")):
        produce(cluster, topic, 200, **{"compression.type": compression, "linger.ms": 5})
        produce(cluster, topic, 200, **{"compression.type": compression, "enable.idempotence": True})
        produce(cluster, topic, 50, **{"transactional.id": f"{topic}-{number}", "compression.type": compression})
    place = PartitionKey(topic, 0)
    with Cluster(cluster.bootstrap(), Security()) as asked:
        assert asked.partitions([topic, "no-such-topic"]) == [place]
        # A coordinator answers a commit before it writes the marker (KIP-98); until then the log is open at its end.
        wait_until("the last marker", lambda: stable_end(cluster, topic) == asked.ends([place], LATEST)[place])
        end = asked.ends([place], LATEST)[place]
        assert asked.ends([place], EARLIEST) == {place: 0}
        *found, last = rows(read_partition(asked, place, None, end))
    assert last == {"topic": topic, "partition": 0, "log_start": 0, "next_offset": end}
    assert [row["base_offset"] for row in found] == [0, *(row["last_offset"] + 1 for row in found[:-1])]
    assert found[-1]["last_offset"] + 1 == end
    offsets = [o for row in found if not row["is_control"] for o in range(row["base_offset"], row["last_offset"] + 1)]
    assert offsets == consumed(cluster, topic)
    assert sum(row["is_control"] for row in found) == 3
    assert {row["attributes"] & 7 for row in found if not row["is_control"]} == {0, 1, 3}
    assert all(row["v"] is None and row["client_producer_id"] is None for row in found)
    idempotent = [row for row in found if row["producer_id"] >= 0 and not row["is_control"]]
    for row in idempotent:
        assert row["last_sequence"] - row["base_sequence"] == row["last_offset"] - row["base_offset"]


@pytest.mark.broker
def test_ranges_that_end_anywhere_read_each_batch_once(cluster: RealCluster) -> None:
    """A micro-batch has the batches that begin in it, wherever its offsets fall."""
    topic = topic_of(cluster)
    produce(cluster, topic, 500, **{"linger.ms": 5, "batch.num.messages": 50})
    place = PartitionKey(topic, 0)
    with Cluster(cluster.bootstrap(), Security()) as asked:
        end = asked.ends([place], LATEST)[place]
        whole = rows(read_partition(asked, place, 0, end))[:-1]
        steps = [*range(0, end, 37), end]
        parts = [rows(read_partition(asked, place, a, b))[:-1] for a, b in itertools.pairwise(steps)]
    assert [row for part in parts for row in part] == whole


@pytest.mark.broker
def test_what_deletion_took_is_passed_over_and_said(cluster: RealCluster) -> None:
    """Reading goes on where the log begins, and the last row tells where that is."""
    topic = topic_of(cluster)
    produce(cluster, topic, 100, **{"batch.num.messages": 10, "linger.ms": 5})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
    for done in admin.delete_records([TopicPartition(topic, 0, 60)]).values():
        done.result(60)
    place = PartitionKey(topic, 0)
    with Cluster(cluster.bootstrap(), Security()) as asked:
        *found, last = rows(read_partition(asked, place, 0, 100))
    assert (last["log_start"], last["next_offset"]) == (60, 100)
    assert found[0]["last_offset"] >= 60
    assert found[-1]["last_offset"] == 99


@pytest.mark.broker
def test_a_stream_is_cut_into_bounded_parts_and_goes_on_where_it_was(cluster: RealCluster) -> None:
    """Offsets rise by about `max_bytes`, up to the end that was there at the first look."""
    topic = topic_of(cluster)
    produce(cluster, topic, 5000, **{"batch.num.messages": 100, "linger.ms": 5})
    options = {"bootstrap": cluster.bootstrap(), "topics": topic, "max_bytes": "100000", "pinned": "true"}
    reader = BatchesStream(options)
    at, sizes = reader.initialOffset(), []
    found: list[dict[str, Any]] = []
    while (following := reader.latestOffset()) != at:
        parts = reader.partitions(at, following)
        tables = (table for part in parts for table in reader.read(part))
        shipments = [each for table in tables for each in of_arrow(table) if each.what == What.BATCHES]
        found += unpacked(BATCHES, shipments).to_dicts()
        sizes.append(sum(row["bytes"] for row in found))
        at = following
        if len(sizes) == 2:  # begun again, as after a kill
            reader = BatchesStream({**options, "positions": json.dumps(at)})
    assert at == {topic: {"0": 5000}}
    assert [row["base_offset"] for row in found] == [0, *(row["last_offset"] + 1 for row in found[:-1])]
    assert len(sizes) > 3
    assert max(b - a for a, b in itertools.pairwise([0, *sizes])) < 300_000


def test_brokers_that_are_not_there_are_said_to_be() -> None:
    """With their address, and at once."""
    with pytest.raises(BrokersUnavailable, match=r"127\.0\.0\.1:1"):
        Cluster("127.0.0.1:1", Security()).partitions(["t"])
    with pytest.raises(BrokersUnavailable, match="host:port"):
        Cluster("nonsense", Security())


@pytest.mark.broker
@pytest.mark.parametrize("listener", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_tls_and_log_ins(secure_cluster: RealCluster, listener: str) -> None:
    """As brokers ask for it; a wrong password is told as such."""
    certificates = secure_cluster.certificates
    told = {
        "security_protocol": listener,
        "ssl_cafile": str(certificates.ca),
        "sasl_mechanism": "SCRAM-SHA-256" if listener == "SASL_SSL" else "PLAIN",
        "sasl_plain_username": "admin",
        "sasl_plain_password": USERS["admin"],
        "unknown_option": "passed over",
    }
    with Cluster(secure_cluster.bootstrap(listener), Security.of(told)) as asked:
        assert asked.partitions(["no-such-topic"]) == []
    if listener.startswith("SASL"):
        wrong = Security.of({**told, "sasl_plain_password": "wrong"})
        with pytest.raises(BrokersUnavailable, match=r"(?i)authentication"):
            Cluster(secure_cluster.bootstrap(listener), wrong).partitions(["t"])


@pytest.mark.broker
def test_a_topic_that_is_not_shown_is_no_topic_that_is_not_there(secure_cluster: RealCluster) -> None:
    """Neither is one that may be seen and not read; what is told names the cure."""
    operator = AdminClient({"bootstrap.servers": secure_cluster.bootstrap("PLAINTEXT")})
    topic = f"hidden-{uuid.uuid4().hex[:8]}"
    operator.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    wait_told_of(operator, topic)
    refusal = f"Not authorized to access topics: [{topic}] (allow the auditor's user"
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "carol"}
    security = Security.of({**login, "sasl_plain_password": USERS["carol"]})
    with Cluster(secure_cluster.bootstrap("SASL_PLAINTEXT"), security) as asked:
        assert asked.partitions([topic]) == [PartitionKey(topic, 0)]
        only_alice = Allowed("alice", AclOperation.READ, topic).as_binding()
        operator.create_acls([only_alice])[only_alice].result(60)
        wait_until("it is hidden", lambda: told_by(lambda: asked.partitions([topic])) is not None)
        assert refusal in (told_by(lambda: asked.partitions([topic])) or "")
        seen = Allowed("carol", AclOperation.DESCRIBE, topic).as_binding()
        operator.create_acls([seen])[seen].result(60)
        wait_until("it is shown", lambda: told_by(lambda: asked.partitions([topic])) is None)
        assert refusal in (told_by(lambda: asked.fetch(PartitionKey(topic, 0), 0, 1000)) or "")


def told_by(ask: Callable[[], Any]) -> str | None:
    """What is told of a refusal; None: there is none."""
    try:
        ask()
    except NotAllowed as error:
        return cause_of(str(error))
    return None


def test_columns_are_the_header_of_the_codecs() -> None:
    """Numpy and construct read the same of a batch; a tagged producer id is taken apart."""
    tagged = (5 + 1) << 48 | 3 << 40 | 77
    raw = b"".join(
        a_batch("a", "b", "c", producer_id=producer_id, epoch=0, sequence=sequence)
        for producer_id, sequence in ((tagged, 10), (-1, -1), (9, 2**31 - 2))
    )
    told = Fetched(0, 9, 0, memoryview(raw))
    found = columns(told, PartitionKey("t", 2))
    assert found is not None
    table = found[0]
    assert table.schema == BATCHES
    read = table.to_dicts()
    for row, span in zip(read, batches(raw), strict=True):
        header, _ = BATCH_HEADER.at(2).parse(raw[span.start : span.end])
        assert row["bytes"] == span.end - span.start
        assert row["base_offset"] == header.base_offset
        assert row["last_offset"] == header.base_offset + header.last_offset_delta
        assert (row["producer_id"], row["producer_epoch"]) == (header.producer_id, header.producer_epoch)
        assert (row["base_sequence"], row["records"]) == (header.base_sequence, header.records_count)
        assert (row["max_timestamp_ms"], row["leader_epoch"]) == (header.max_timestamp, header.partition_leader_epoch)
    assert [(row["v"], row["move"], row["client_producer_id"]) for row in read] == [
        (5, 3, 77),
        (None,) * 3,
        (None,) * 3,
    ]
    assert [row["last_sequence"] for row in read] == [12, -1, 0]
