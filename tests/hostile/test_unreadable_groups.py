"""Whatever somebody writes into `__kordon.groups` at the brokers, members' reports are read before and behind it."""

import asyncio
import reprlib
from array import array
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from kordon.codecs import apis
from kordon.proxy.config.config import Upstream
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.kafka.batches import Record
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.producer import produce_request
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.ordering.position_records import MemberKey, dump, key_of
from kordon.proxy.ordering.positions import MemberReport, TopicReport
from kordon.proxy.own_topics.group_positions import GroupPositions
from kordon.testing.cluster import Cluster
from kordon.testing.cluster_links import links_to
from kordon.testing.managed_clients import configure, write
from kordon.testing.messages.bombs import bomb
from kordon.testing.plain_connection import PlainConnection

# confluent_kafka.admin re-exports these without saying so.
# pyright: reportPrivateImportUsage=false

SECONDS: Final = 90.0
MB: Final = 1_000_000
VICTIM, GOOD = MemberKey("readers", "victim"), MemberKey("readers", "good")
REPORT: Final = MemberReport(1, 1, {"orders": TopicReport({0: 40}, array("i"))})
JUNK: Final[Mapping[bytes, bytes]] = {
    b"positions/": b"{}",
    key_of(VICTIM).encode(): b"not json",
    key_of(MemberKey("readers", "large")).encode(): b'{"version":1,"x":"' + b"x" * (16 * MB) + b'"}',
    key_of(MemberKey("readers", "odd")).encode(): b'{"version":1,"generation_id":"later"}',
    key_of(MemberKey("readers", "deep")).encode(): b"[" * 100_000,
    b'positions/["readers"]': b"{}",
    b"positions/" + b"[" * 10_000: dump(REPORT),
    b"positions/\xff\xfe": b"\x00",
}
OTHERS: Final[Mapping[bytes, bytes]] = {
    b"later/readers": b"{}",
    b"": b"nobody's",
    key_of(MemberKey("readers", "newer")).encode(): b'{"version":2,"said":"otherwise"}',
}
"""Of a later version: passed over, and no fault."""


@pytest.mark.parametrize(("key", "value"), JUNK.items(), ids=reprlib.repr)
def test_what_cannot_be_read_is_counted_and_concerns_nobody_else(key: bytes, value: bytes) -> None:
    """Nothing is raised; who has reported before is known still."""
    nowhere = Upstream(bootstrap=(HostPort("127.0.0.1", 1),))
    groups = GroupPositions(Brokers(BrokerConnections(Topology(nowhere, lambda _: None, lambda _: None))))
    groups.log.on_record(Record(key_of(GOOD), dump(REPORT), 0))
    groups.log.on_record(Record(key.decode(errors="replace"), value, 1))
    groups.log.on_record(Record(key_of(GOOD), dump(REPORT), 2, fault="its batch has another checksum"))
    groups.log.on_record(Record("", None, 3, fault="a batch of which nothing can be read"))
    assert (groups.log.tally.read, groups.log.tally.unreadable) == (4, 3)
    assert set(groups.positions.members("readers")) == {"good"}


@asynccontextmanager
async def worker(cluster: Cluster, topic: str) -> AsyncIterator[GroupPositions]:
    """What one worker of a proxy that has just started knows."""
    async with links_to(cluster) as links:
        made = GroupPositions(Brokers(links), topic)
        try:
            await made.ready(SECONDS)
            yield made
        finally:
            await made.close()


def write_junk(bootstrap: str, topic: str) -> None:
    """Writes it as anybody may whom no ACL forbids it, where brokers take large and compressed batches."""
    large = {"max.message.bytes": str(20 * MB), "compression.type": "producer"}
    admin = AdminClient({"bootstrap.servers": bootstrap})  # lives until it is answered
    configure(admin, topic, large)
    settings = {"bootstrap.servers": bootstrap, "message.max.bytes": 20 * MB}
    write(settings, topic, ({"key": key, "value": value} for key, value in {**JUNK, **OTHERS}.items()))
    with PlainConnection(bootstrap) as broker:
        (answered,) = broker.ask(apis.PRODUCE, 8, produce_request(topic, 0, bomb("zstd", 200 * MB))).responses
    assert [each.error_code for each in answered.partition_responses] == [0]


@pytest.mark.broker
async def test_no_record_in_the_groups_holds_up_what_stands_behind_it(open_cluster: Cluster) -> None:
    """By a worker that reads on, and by one that begins; a member whose record was overwritten reports anew."""
    topic, bootstrap = f"groups-{uuid4().hex[:8]}", open_cluster.bootstrap("PLAINTEXT")
    async with worker(open_cluster, topic) as running:
        await running.say({GOOD: REPORT, VICTIM: REPORT}, SECONDS)
        await asyncio.to_thread(write_junk, bootstrap, topic)
        await running.say({MemberKey("readers", "behind"): REPORT}, SECONDS)
        async with worker(open_cluster, topic) as restarted:
            for each in (running, restarted):
                assert each.log.tally.unreadable == len(JUNK) + 1
                assert each.log.tally.lost == each.log.tally.failed == 0
                assert {"good", "behind"} <= set(each.positions.members("readers"))
            await restarted.say({VICTIM: REPORT}, SECONDS)
            assert "victim" in restarted.positions.members("readers")
