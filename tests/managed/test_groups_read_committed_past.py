"""Topics with a past of transactions are taken over: who reads committed records gets these (PAST-STAYS, KIP-98)."""

from uuid import UUID

import pytest
from confluent_kafka import Producer

from kordon.codecs.apis import FETCH
from kordon.codecs.bodies import FetchResponsePartition
from kordon.codecs.primitives import Pieces
from kordon.codecs.records import patch_base_offset
from kordon.proxy.kafka.batches import BatchIdentity, NewRecord, build_batch
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.reads.aborted import AbortedTransactions
from kordon.proxy.reads.fetch_rows import pieces_of, told_row
from kordon.proxy.reads.fetching import GivenRow
from kordon.proxy.topics.managed_topics import ManagedTopic
from kordon.testing.fake_broker import Answer, Asked, FakeBroker
from kordon.testing.managed_clients import create_ordinary, manage, read, resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

NOT_LEADER_OR_FOLLOWER = 6


def batch(offset: int, producer_id: int = 7, *, is_transactional: bool = True) -> bytes:
    """Makes a batch of one record."""
    made = bytearray(
        build_batch([NewRecord("key", b"value")], BatchIdentity(producer_id, 0, 0), is_transactional=is_transactional)
    )
    patch_base_offset(made, 0, offset)
    return bytes(made)


class Past:
    """`orders`, each batch of which lies in a segment file of its own, on a broker that gives out what is decided."""

    def __init__(self, *batches: bytes) -> None:
        self.batches = batches
        self.stable = len(batches)
        """The last stable offset."""
        self.asked: list[int] = []

    def read(self, asked: Asked) -> Answer:
        """Answers Fetch: every transaction here was aborted."""
        assert asked.body.isolation_level == 1
        offset = asked.body.topics[0].partitions[0].fetch_offset
        self.asked.append(offset)
        records = self.batches[offset] if offset < self.stable else b""
        aborted = [{"producer_id": 7, "first_offset": offset}]
        row = {"partition_index": 0, "error_code": 0, "aborted_transactions": aborted, "records": records}
        return {"responses": [{"topic": "orders", "partitions": [row]}]}


async def completed(past: Past) -> FetchResponsePartition:
    """Gives out the whole past of a topic that had one partition; returns the partition's row."""
    topic = ManagedTopic(Layout.unmanaged("orders", UUID(int=1), 1, 4), UUID(int=2))
    row = told_row(0, -1, -1, Pieces(past.batches))
    broker = FakeBroker({"orders": 1}, {FETCH: past.read})
    await AbortedTransactions(Leaders(broker)).complete([GivenRow(topic, 0, row)])
    return row


async def test_a_broker_is_asked_until_all_that_is_given_out_is_covered() -> None:
    """It answers from one segment file at a time."""
    past = Past(batch(0), batch(1), batch(2))
    row = await completed(past)
    assert past.asked == [0, 1, 2]
    assert [each.first_offset for each in row.aborted_transactions or ()] == [0, 1, 2]
    assert row.error_code == 0


async def test_what_is_not_decided_yet_is_not_given_out() -> None:
    """The consumer comes again, as it would wait for the last stable offset."""
    past = Past(batch(0), batch(1))
    past.stable = 1
    row = await completed(past)
    assert (row.error_code, pieces_of(row)) == (NOT_LEADER_OR_FOLLOWER, [])


async def test_nobody_is_asked_without_need() -> None:
    """Not where there are no transactions."""
    past = Past(batch(0, is_transactional=False))
    row = await completed(past)
    assert past.asked == []
    assert row.aborted_transactions is None


def write(producer: Producer, topic: str, name: str) -> None:
    """Begins a transaction and writes 15 records, each with the name in its value."""
    producer.begin_transaction()
    for number in range(15):
        producer.produce(topic, f"{name}-{number}", partition=number % 3)
    producer.flush(90)


def values_of(bootstrap: str, topic: str, count: int, **config: str) -> list[str]:
    """Reads so many records, and those that come behind, as a new group."""
    messages = read({"bootstrap.servers": bootstrap, **config}, topic, count)
    return sorted((message.value() or b"").decode() for message in messages)


@pytest.mark.broker
def test_aborted_records_of_the_past_stay_hidden(proxy: ProxyProcess) -> None:
    """An open transaction is waited out by whoever manages the topic; then all is as it was, over a growth too."""
    topic, bootstrap = "had-transactions", proxy.bootstrap
    admin = create_ordinary(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for name in "abc":
        write(producer, topic, name)
        if name == "b":
            producer.abort_transaction(90)
        else:
            producer.commit_transaction(90)
    write(producer, topic, "d")
    assert "open transaction" in str(manage(admin, topic, transition_ms="0").exception(60))
    producer.abort_transaction(90)
    committed = sorted(f"{name}-{number}" for name in "ac" for number in range(15))
    assert values_of(bootstrap, topic, 30) == committed

    # A coordinator answers an abort before it writes the markers, and until then a transaction is open.
    wait_until("it is managed", lambda: manage(admin, topic, transition_ms="0").exception(60) is None)
    wait_until("all is taken over", lambda: resize(admin, topic, 6).exception(60) is None)
    plain = Producer({"bootstrap.servers": bootstrap})
    for v in range(12):
        plain.produce(topic, f"new-{v}", partition=v)
    plain.flush(90)

    expected = sorted([*committed, *(f"new-{v}" for v in range(12))])
    assert values_of(bootstrap, topic, len(expected)) == expected
    assert values_of(bootstrap, topic, len(expected), **{"max.partition.fetch.bytes": "200"}) == expected
    assert len(values_of(bootstrap, topic, 72, **{"isolation.level": "read_uncommitted"})) == 72
