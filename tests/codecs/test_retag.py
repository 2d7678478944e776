"""Another producer in a batch: the CRC follows without a pass over the records, and the broker takes the batch."""

import uuid
from collections.abc import Iterator

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.records import CRC_AT, CRC_FROM, batches, look_batch
from kordon.codecs.retag import PRODUCER_AT, crc32c, effect, retag, set_transactional
from kordon.proxy.ordering.identity import tag
from kordon.testing.cluster import Cluster
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.waiting import wait_until

PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
_NOT_YET = {3, 6}
"""UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER."""

IDS = st.integers(-(2**63), 2**63 - 1)
EPOCHS = st.integers(-(2**15), 2**15 - 1)
SEQUENCES = st.integers(-(2**31), 2**31 - 1)
LENGTHS = st.one_of(st.integers(0, 300), st.sampled_from([4_000, 4_096, 4_097, 65_536, 1_000_003]))


def a_batch(value: bytes, *, producer: tuple[int, int, int] = (9, 2, 5), records: int = 1) -> bytearray:
    """A batch as aiokafka builds it, by a producer of (id, epoch, base sequence)."""
    producer_id, epoch, sequence = producer
    builder = DefaultRecordBatchBuilder(2, 0, 0, producer_id, epoch, sequence, 10_000_000)
    for offset in range(records):
        builder.append(offset, timestamp=1_000, key=None, value=value, headers=[])
    return bytearray(builder.build())


def stored_crc(batch: bytearray) -> int:
    return int.from_bytes(batch[CRC_AT:CRC_FROM], "big")


def test_the_published_check_value() -> None:
    """CRC-32C of "123456789" as every catalogue of CRCs has it."""
    assert crc32c(b"123456789") == 0xE3069283


@given(LENGTHS, IDS, EPOCHS, SEQUENCES)
def test_crc_equals_one_computed_anew(length: int, producer_id: int, epoch: int, sequence: int) -> None:
    """For batches of all sizes the corrected CRC is that of the bytes as they are now."""
    batch = bytearray(b"--") + a_batch(b"x" * length)
    retag(batch, 2, producer_id, epoch, sequence)
    header = look_batch(batch, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, epoch, sequence)
    assert header.crc == crc32c(batch[2 + CRC_FROM :])


@given(LENGTHS, IDS, SEQUENCES)
def test_nothing_else_changes(length: int, producer_id: int, sequence: int) -> None:
    """All bytes but the producer's and the CRC's are as they were."""
    before = a_batch(b"x" * length)
    after = bytearray(before)
    retag(after, 0, producer_id, 3, sequence)
    for batch in (before, after):
        batch[CRC_AT:CRC_FROM] = bytes(4)
        batch[PRODUCER_AT : PRODUCER_AT + 14] = bytes(14)
    assert after == before


@given(LENGTHS, st.data(), IDS)
def test_damage_is_not_healed(length: int, data: st.DataObject, producer_id: int) -> None:
    """A batch whose bytes are not those that its CRC was made of has a wrong CRC after, too."""
    batch = a_batch(b"x" * length)
    place = data.draw(st.integers(CRC_AT, len(batch) - 1))
    batch[place] ^= data.draw(st.integers(1, 255))
    retag(batch, 0, producer_id, 3, 4)
    assert stored_crc(batch) != crc32c(batch[CRC_FROM:])


@given(LENGTHS, IDS)
def test_a_batch_leaves_its_transaction_and_comes_back(length: int, producer_id: int) -> None:
    """DAMAGE-STAYS: the CRC follows the transactional bit too, before and behind another producer's id."""
    began = a_batch(b"x" * length)
    batch = bytearray(b"--") + began
    for is_transactional in (True, True, False):
        set_transactional(batch, 2, is_transactional=is_transactional)
        header = look_batch(batch, 2)
        assert header.is_transactional == is_transactional
        assert header.crc == crc32c(batch[2 + CRC_FROM :])
    assert batch[2:] == began
    set_transactional(batch, 2, is_transactional=True)
    retag(batch, 2, producer_id, 2, 5)
    set_transactional(batch, 2, is_transactional=False)
    retag(batch, 2, 9, 2, 5)
    assert batch[2:] == began


@given(LENGTHS, st.data())
def test_a_batch_that_leaves_its_transaction_stays_damaged(length: int, data: st.DataObject) -> None:
    """DAMAGE-STAYS: a batch whose bytes are not those that its CRC was made of has a wrong CRC after, too."""
    batch = a_batch(b"x" * length)
    set_transactional(batch, 0, is_transactional=True)
    place = data.draw(st.integers(CRC_AT, len(batch) - 1))
    batch[place] ^= data.draw(st.integers(1, 255))
    set_transactional(batch, 0, is_transactional=False)
    assert stored_crc(batch) != crc32c(batch[CRC_FROM:])


@given(LENGTHS, IDS, EPOCHS, SEQUENCES)
def test_there_and_back_is_the_same(length: int, producer_id: int, epoch: int, sequence: int) -> None:
    """Retagging back gives the batch that came."""
    batch = a_batch(b"x" * length)
    before = bytes(batch)
    retag(batch, 0, producer_id, epoch, sequence)
    retag(batch, 0, 9, 2, 5)
    assert bytes(batch) == before


@given(st.integers(0, 400), IDS)
def test_the_header_alone_is_enough(length: int, producer_id: int) -> None:
    """The records need not be copied to where the header is changed."""
    batch = a_batch(b"x" * length)
    header = batch[:61]
    retag(batch, 0, producer_id, 1, 2)
    retag(header, 0, producer_id, 1, 2)
    assert header == batch[:61]


@pytest.mark.parametrize("follow", [0, 4_095, 4_096, 2**20, 2**27 + 5])
def test_effect_of_long_batches(follow: int) -> None:
    """The tables agree with a CRC over as many real bytes."""
    change = b"\x01\x80changed"
    assert effect(change, follow) == crc32c(change + bytes(follow)) ^ crc32c(bytes(len(change) + follow))


@pytest.fixture
def broker(cluster: Cluster) -> Iterator[PlainConnection]:
    with PlainConnection(cluster.bootstrap()) as connection:
        yield connection


@pytest.mark.broker
def test_a_broker_takes_retagged_batches_and_knows_them_again(broker: PlainConnection) -> None:
    """It stores the batch under its new producer, answers a repetition with the old offset, and refuses a gap."""
    topic = f"retag-{uuid.uuid4().hex[:8]}"
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    assert broker.ask(CREATE_TOPICS, 5, {"topics": [wanted], "timeout_ms": 10_000}).topics[0].error_code == 0

    def produce(batch: bytearray) -> tuple[int, int]:
        data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}]
        answer = broker.ask(PRODUCE, 8, {"acks": -1, "timeout_ms": 10_000, "topic_data": data})
        (partition,) = answer.responses[0].partition_responses
        return partition.error_code, partition.base_offset

    written: list[bytearray] = []
    for v in (0, 41):
        for sequence, count in ((0, 3), (3, 2)):
            batch = a_batch(b"v" * 100, producer=(1_234, 0, 700 + sequence), records=count)
            retag(batch, 0, tag(v, 0, 1_234), 0, sequence)
            written.append(batch)
    # a broker answers CreateTopics before it leads what is new; a batch that it has taken it knows again below
    wait_until("the broker leads the topic", lambda: produce(written[0])[0] not in _NOT_YET, 60)
    assert [produce(batch) for batch in written] == [(0, 0), (0, 3), (0, 5), (0, 8)]
    assert [produce(batch) for batch in written] == [(0, 0), (0, 3), (0, 5), (0, 8)], "each was known again"
    retag(written[0], 0, tag(0, 0, 1_234), 0, 9)
    assert produce(written[0])[0] == OUT_OF_ORDER_SEQUENCE_NUMBER

    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    fields = {"replica_id": -1, "max_bytes": 1 << 20, "topics": [{"topic": topic, "partitions": partitions}]}
    records = broker.ask(FETCH, 11, fields).responses[0].partitions[0].records
    headers = [span.header for span in batches(records) if span.header is not None]
    assert [(h.producer_id, h.base_sequence) for h in headers] == [
        (tag(0, 0, 1_234), 0),
        (tag(0, 0, 1_234), 3),
        (tag(41, 0, 1_234), 0),
        (tag(41, 0, 1_234), 3),
    ]
