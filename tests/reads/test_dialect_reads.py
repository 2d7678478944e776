"""Clients of the dialect read physical partitions through Kordon, each key in order, from a real broker."""

import time
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.codecs import apis
from kordon.codecs.dialect import INVALID_PARTITION_METADATA
from kordon.proxy.ordering.epochs import virtual_epoch
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.streams import physical_stream
from kordon.testing.audits.play_requests import assert_accepted, produce
from kordon.testing.cluster import Cluster
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.dialect.group import GroupMember, join_all
from kordon.testing.dialect.reader import DialectReader, records_of
from kordon.testing.managed_clients import Sender, assert_all_once_and_in_order, create_managed, resize
from kordon.testing.managed_writes import a_batch
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

LATEST, EARLIEST = -1, -2
OPEN = -1


@pytest.fixture(scope="module")
def grown(proxy: ProxyProcess) -> str:
    """A topic that went from 3 partitions to 4, with records in all segments."""
    changed(proxy, "grown", 4)
    return "grown"


def changed(proxy: ProxyProcess, topic: str, *counts: int, seconds: float = 0.2) -> Sender:
    """A topic of 3 partitions that went through counts, with records of 50 keys written before, between and after."""
    admin = create_managed(proxy.bootstrap, topic)
    sender = Sender(proxy.bootstrap, topic)
    sender.send_for(seconds)
    for count in counts:
        sender.finish()
        resize(admin, topic, count).result(60)
        sender.send_for(seconds)
    sender.finish()
    sender.close()
    return sender


def admin_of(proxy: ProxyProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": proxy.bootstrap})


def ends(connection: DialectConnection, topic: str, *partitions: int, timestamp: int = LATEST) -> dict[int, int]:
    """Where physical partitions end (or begin), by ListOffsets."""
    rows = [{"partition_index": q, "timestamp": timestamp} for q in partitions]
    asked = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": rows}]}
    (answer,) = connection.ask(apis.LIST_OFFSETS, 4, asked).topics
    assert not any(row.error_code for row in answer.partitions)
    return {row.partition_index: row.offset for row in answer.partitions}


def segments(connection: DialectConnection, topic: str, partition: int) -> list[Any]:
    """The segments of a physical partition, oldest first."""
    (row,) = connection.leader_epochs(topic, partition).partitions
    return sorted(row.segments, key=lambda each: each.layout_epoch)


def read_on(reader: DialectReader, partition: int, until: int) -> None:
    """Reads a partition up to an offset, and not further."""
    wait_until(f"{partition} is read up to {until}", lambda: _reads_to(reader, partition, until), 60)


def _reads_to(reader: DialectReader, partition: int, until: int) -> bool:
    if reader.positions[partition] < until:
        reader.read(partition)
    return reader.positions[partition] >= until


def test_a_child_is_held_until_its_parent_is_read_up_to_the_cut(proxy: ProxyProcess, grown: str) -> None:
    """3 -> 4: partition 3 is told its true end and gives nothing, until 0's reader has passed the cut."""
    reader = DialectReader(proxy.bootstrap, grown)
    reader.refresh()
    (sealed, opened), (child,) = (segments(reader.connection, grown, q) for q in (0, 3))
    assert (sealed.end_offset, opened.start_offset, opened.end_offset) == (opened.start_offset, sealed.end_offset, OPEN)
    end = ends(reader.connection, grown, 3)[3]
    assert end > child.start_offset
    held = reader.read(3)[3]
    assert (held.error_code, held.high_watermark, bytes(held.records)) == (0, end, b"")
    read_on(reader, 0, sealed.end_offset)
    assert reader.positions[0] == sealed.end_offset, "an answer ends where what follows may be gated"
    read_on(reader, 3, end)
    assert proxy.metric("kordon_gate_holds_total", topic=grown) >= 1
    assert proxy.metric("kordon_gate_held_seconds_total", topic=grown) > 0
    assert proxy.metric("kordon_gate_held_partitions") == 0
    reader.close()


def test_a_held_partition_is_answered_at_max_wait_and_does_not_hold_up_others(proxy: ProxyProcess, grown: str) -> None:
    """It alone waits as long as the client allows; beside one that has something the answer comes at once."""
    reader = DialectReader(proxy.bootstrap, grown)
    reader.refresh()
    began = time.monotonic()
    assert bytes(reader.read(3, max_wait_ms=1500)[3].records) == b""
    assert time.monotonic() - began >= 1.4
    rows = reader.read(1, 3, max_wait_ms=120_000)  # longer than the connection's patience
    assert records_of(rows[1])
    assert not records_of(rows[3])
    reader.close()


def test_what_one_member_reports_opens_the_gate_for_another(proxy: ProxyProcess, grown: str) -> None:
    """KIP-253 7: a has 0, b has 3; b waits until a says that it has passed the cut, and again when a goes back."""
    with GroupMember(proxy.bootstrap, "workers") as a, GroupMember(proxy.bootstrap, "workers") as b:
        join_all([a, b])
        cut = segments(a.connection, grown, 0)[0].end_offset
        assert b.tell(grown, {3: 0}, wanted=[0]).positions[0] == -1
        for position, is_open in ((cut - 1, False), (cut, True), (0, False)):
            assert a.tell(grown, {0: position}).error_code == 0
            assert b.tell(grown, {3: 0}, wanted=[0]).positions[0] == position
            wait_until("the gate is as it should be", lambda: _is_open(b, grown) is is_open, 60)  # noqa: B023
        assert not records_of(a.connection.fetch(grown, {3: 0}, 4, group_id="workers")[3])  # of no generation


def _is_open(member: GroupMember, topic: str) -> bool:
    """Whether a member is given records of partition 3."""
    who = {"group_id": member.group_id, "generation_id": member.generation_id, "member_id": member.member_id}
    return bool(records_of(member.connection.fetch(topic, {3: 0}, 4, **who)[3]))


def test_an_empty_child_passes_the_wait_on(proxy: ProxyProcess) -> None:
    """3 -> 4 -> 12: partition 9 comes from 3, where nothing was written, and waits for 0 all the same."""
    admin = create_managed(proxy.bootstrap, "empty")
    sender = Sender.sent_for(0.3, proxy.bootstrap, "empty")
    for count in (4, 12):
        resize(admin, "empty", count).result(60)
    sender.send_for(0.3)
    sender.finish()
    sender.close()
    reader = DialectReader(proxy.bootstrap, "empty")
    reader.refresh()
    (grandchild,) = segments(reader.connection, "empty", 9)
    assert [each.partition for each in grandchild.predecessors] == [3]
    assert segments(reader.connection, "empty", 3)[0].end_offset == 0
    assert not records_of(reader.read(9)[9])
    read_on(reader, 0, segments(reader.connection, "empty", 0)[0].end_offset)
    read_on(reader, 9, ends(reader.connection, "empty", 9)[9])
    reader.close()


def test_a_reader_that_goes_back_is_gated_again(proxy: ProxyProcess, grown: str) -> None:
    """Partition 3 has been read; its group begins 0 anew: what is left of 3 waits, wherever its reader stands."""
    reader = DialectReader(proxy.bootstrap, grown)
    reader.refresh()
    cut = segments(reader.connection, grown, 0)[0].end_offset
    read_on(reader, 0, cut)
    read_on(reader, 3, ends(reader.connection, grown, 3)[3])
    reader.positions |= {0: cut - 1, 3: 1}
    assert not records_of(reader.read(3)[3])
    read_on(reader, 0, cut)
    assert records_of(reader.read(3)[3])
    reader.close()


def test_a_retired_partition_is_read_to_its_end_and_its_keys_wait_for_that(proxy: ProxyProcess) -> None:
    """3 -> 4 -> 3: what follows in partition 0 waits for the reader of 3, who then stands at 3's end and waits."""
    changed(proxy, "retired", 4, 3)
    reader = DialectReader(proxy.bootstrap, "retired")
    reader.refresh()
    connection = reader.connection
    (child,) = segments(connection, "retired", 3)
    first, second, third = segments(connection, "retired", 0)
    assert sorted(each.partition for each in third.predecessors) == [0, 3]
    assert ends(connection, "retired", 3) == {3: child.end_offset}
    read_on(reader, 0, first.end_offset)
    read_on(reader, 0, second.end_offset)
    assert not records_of(reader.read(0)[0])
    read_on(reader, 3, child.end_offset)
    began = time.monotonic()
    at_end = reader.read(3, max_wait_ms=1000)[3]
    assert time.monotonic() - began >= 0.9, "whoever has all of a retired partition waits as at any end"
    assert (at_end.error_code, at_end.high_watermark, bytes(at_end.records)) == (0, child.end_offset, b"")
    read_on(reader, 0, ends(connection, "retired", 0)[0])
    reader.close()


def test_strays_are_hidden_and_passed_over_where_a_partition_is_used_again(
    proxy: ProxyProcess, open_cluster: Cluster
) -> None:
    """What lands behind a cut with the identity of before is nobody's: no reader gets it, and all come past it."""
    sender = changed(proxy, "strays", 4, 3)
    with PlainConnection(open_cluster.bootstrap()) as broker:
        batch = a_batch("stray", "stray", producer_id=tag(physical_stream(3), 1, 5), epoch=0, sequence=0)
        assert_accepted(produce(broker, "strays", 3, batch))
    reader = DialectReader(proxy.bootstrap, "strays")
    reader.refresh()
    (child,) = segments(reader.connection, "strays", 3)
    assert ends(reader.connection, "strays", 3) == {3: child.end_offset}
    admin = admin_of(proxy)
    resize(admin, "strays", 4).result(60)
    more = Sender.sent_for(0.3, proxy.bootstrap, "strays", sent=sender.sent, acknowledged=sender.acknowledged)
    more.close()
    assert segments(reader.connection, "strays", 3)[1].start_offset == child.end_offset + 2
    reader.read_until(len(more.acknowledged))
    assert_all_once_and_in_order(more, reader.numbered)
    reader.close()


def test_whoever_believes_in_another_count_is_refused_for_that_topic_only(
    dialect: DialectConnection, proxy: ProxyProcess, grown: str
) -> None:
    """KIP-253 8.6: the consumer refreshes and rejoins; other topics of the same request are answered."""
    create_managed(proxy.bootstrap, "small")
    for count in (3, 5, -1):
        row = dialect.fetch(grown, {0: 0}, count)[0]
        assert (row.error_code, bytes(row.records or b"")) == (INVALID_PARTITION_METADATA, b"")
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topics = [
        {"topic": grown, "partitions": [partition], "undeleted_partition_count": 3},
        {"topic": "small", "partitions": [partition], "undeleted_partition_count": 3},
    ]
    answer = dialect.ask(apis.FETCH, 12, {"max_wait_ms": 500, "min_bytes": 1, "topics": topics})
    refused, read = (each.partitions[0] for each in answer.responses)
    assert (refused.error_code, read.error_code) == (INVALID_PARTITION_METADATA, 0)
    assert read.high_watermark == 0


def test_a_change_of_the_layout_wakes_whoever_waits_under_the_former_count(
    dialect: DialectConnection, proxy: ProxyProcess
) -> None:
    """A consumer at the end of a partition hears of the change at once, not when its request has waited long enough."""
    admin = create_managed(proxy.bootstrap, "woken")
    done = resize(admin, "woken", 4)
    row = dialect.fetch("woken", {1: 0}, 3, max_wait_ms=120_000)[1]  # longer than the connection's patience
    assert row.error_code == INVALID_PARTITION_METADATA
    done.result(60)


def test_offsets_and_leader_epochs_are_of_the_physical_partition(dialect: DialectConnection, grown: str) -> None:
    """The epoch before a child's first leads to its parent's cut, as KIP-253 8.4 has consumers ask for it."""
    sealed, opened = segments(dialect, grown, 0)
    (row,) = dialect.leader_epochs(grown, 3).partitions
    after_creation = row.leader_epoch_after_creation
    assert after_creation == virtual_epoch(opened.layout_epoch, 0) - 1
    (child,) = segments(dialect, grown, 3)
    asked = {
        "topic": grown,
        "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": after_creation}],
    }
    (answer,) = dialect.ask(apis.OFFSET_FOR_LEADER_EPOCH, 4, {"replica_id": -1, "topics": [asked]}).topics
    assert (answer.partitions[0].error_code, answer.partitions[0].end_offset) == (0, sealed.end_offset)
    begins = ends(dialect, grown, 0, 3, timestamp=EARLIEST)
    assert begins == {0: 0, 3: child.start_offset}


def test_stock_and_dialect_readers_have_one_topic_at_the_same_time(proxy: ProxyProcess) -> None:
    """3 -> 4 -> 6 -> 12 -> 5 -> 3 under a stock producer: both kinds read all, once, each key in order."""
    admin = create_managed(proxy.bootstrap, "both")
    with DialectReader(proxy.bootstrap, "both") as reader, closing(Sender(proxy.bootstrap, "both")) as sender:
        sender.send_for(0.5)
        for count in (4, 6, 12, 5, 3):
            done = resize(admin, "both", count)
            while not done.done():
                sender.send_for(0.05)
                reader.read(max_wait_ms=50)
            done.result(60)
            reader.read(max_wait_ms=50)  # by the former count, unless it has been refused already
        sender.finish()
        reader.read_until(len(sender.acknowledged))
        assert_all_once_and_in_order(sender, reader.numbered)
        sender.assert_read_by(proxy.bootstrap)
        assert reader.refusals >= 5
