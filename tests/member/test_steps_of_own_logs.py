"""No record of Kordon's own topics holds up a worker for long, however many, tiny or large they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import UUID

import pytest

from kordon.codecs.records import HEADER_BYTES, look_batch, patch_base_offset
from kordon.proxy.config.config import Upstream
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.decisions.journal import NoJournal
from kordon.proxy.kafka.batches import BatchIdentity, NewRecord, Record, build_batch
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.internal_topic_log import InternalTopicLog
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.member.layout_member import LayoutMember
from kordon.proxy.member.served import ServedParts
from kordon.proxy.ordering.position_records import MemberKey, key_of
from kordon.proxy.ordering.records import MOST_BYTES, TopicRecord
from kordon.proxy.own_topics.group_positions import GroupPositions
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.testing.large_layouts import LARGEST
from kordon.testing.step_times import in_short_steps

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("collector_at_rest")]

BATCH_BYTES: Final = 1_000_000
"""Topics take no larger ones by default."""
NOBODY: Final = BatchIdentity(-1, -1, -1)


class Topic:
    """A row of a Metadata answer."""

    error_code = 0

    def get(self, _: str, default: UUID) -> UUID:
        return UUID(int=1)


class Broker:
    """The leader of one of Kordon's own topics, which has batches and gives one Fetch's worth of them at a time.

    Args:
        batches: What stands there.
        aborted: (producer id, first offset) of its aborted transactions.
    """

    def __init__(self, batches: list[bytearray], aborted: list[tuple[int, int]] | None = None) -> None:
        self.end = 0
        for batch in batches:
            patch_base_offset(batch, 0, self.end)
            self.end = look_batch(batch, 0).next_offset
        self._batches = batches
        self._aborted = [SimpleNamespace(producer_id=each, first_offset=at) for each, at in aborted or ()]

    async def metadata(self, _: object) -> Any:
        return SimpleNamespace(topics=[Topic()])

    async def leader(self, *_: object) -> Broker:
        return self

    def version(self, *_: object) -> int:
        return 13

    async def ask(self, _: int, __: int, fields: dict[str, Any]) -> Any:
        """Answers Fetch: the batch in which a position lies is given whole, those behind it as far as there is room."""
        ((asked,),) = (each["partitions"] for each in fields["topics"])
        await asyncio.sleep(0)
        records = bytearray()
        for batch in self._batches:
            if look_batch(batch, 0).next_offset <= asked["fetch_offset"]:
                continue
            if records and len(records) + len(batch) > asked["partition_max_bytes"]:
                break
            records += batch
        if not records:
            await asyncio.sleep(0.5)
        row = SimpleNamespace(
            error_code=0, high_watermark=self.end, aborted_transactions=self._aborted, records=bytes(records)
        )
        return SimpleNamespace(responses=[SimpleNamespace(partitions=[row])])


def batch_of(*entries: NewRecord, identity: BatchIdentity = NOBODY) -> bytearray:
    """Makes a batch; that of a producer belongs to a transaction."""
    return bytearray(build_batch(entries, identity, is_transactional=identity is not NOBODY))


def marker_of(producer_id: int) -> bytearray:
    """Makes the control batch that aborts a producer's transaction."""
    made = batch_of(NewRecord("\0\0\0\0", b"\0" * 6), identity=BatchIdentity(producer_id, 0, 0))
    made[21:23] = (0x30).to_bytes(2, "big")
    return made


def tiny(key: str) -> list[bytearray]:
    """As many of the smallest records as there is room for in two batches, by nobody in particular."""
    size = len(batch_of(*[NewRecord(key, None)] * 1_001)) - len(batch_of(*[NewRecord(key, None)] * 1))
    return [batch_of(*[NewRecord(key, None)] * (BATCH_BYTES * 1_000 // size)) for _ in range(2)]


def layout_member() -> LayoutMember:
    """A worker's layout_member that belongs to no group."""
    group = SimpleNamespace(incarnation="me", word="word", lease=SimpleNamespace(seconds=20.0))
    clients = SimpleNamespace(invalidate=nobody)
    nothing: Any = None
    return LayoutMember(
        topics=ManagedTopics(),
        layouts=cast("Any", SimpleNamespace(position=0)),
        membership=cast("Any", group),
        served=ServedParts(nothing, cast("Any", clients)),
        make_role=nothing,
        admit=nothing,
        journal=NoJournal(),
    )


def positions() -> GroupPositions:
    """A worker's view of where groups stand, that knows of no broker."""
    nowhere = Upstream(bootstrap=(HostPort("127.0.0.1", 1),))
    return GroupPositions(Brokers(BrokerConnections(Topology(nowhere, lambda _: None, lambda _: None))))


def nobody(_: object) -> None:
    """Takes in nothing."""


def transactions(count: int) -> Broker:
    """Transactions of one tiny record each, all aborted."""
    batches = [
        each for at in range(count) for each in (batch_of(NewRecord("", None), identity=BatchIdentity(at, 0, 0)),)
    ]
    markers = [marker_of(at) for at in range(count)]
    return Broker([*batches, *markers], [(at, at) for at in range(count)])


def report(rows: int) -> bytes:
    """A member's report of so many partitions."""
    owned = ",".join(f'"{at}":1' for at in range(rows))
    orders = f'{{"owned":{{{owned}}},"wanted":[{",".join(map(str, range(rows)))}]}}'
    return f'{{"version":1,"generation_id":1,"sequence":1,"said_ms":0,"topics":{{"orders":{orders}}}}}'.encode()


LOGS: Final[dict[str, tuple[Callable[[], Broker], Callable[[], Callable[[Record], None]]]]] = {
    "tiny records": (lambda: Broker(tiny("")), lambda: nobody),
    "tiny batches": (lambda: Broker([batch_of(NewRecord("", None)) for _ in range(30_000)]), lambda: nobody),
    "aborted transactions": (lambda: transactions(7_000), lambda: nobody),
    "tiny records of no kind": (lambda: Broker(tiny("")), lambda: layout_member().on_record),
    "tiny tombstones of fences": (lambda: Broker(tiny("fence/a")), lambda: layout_member().on_record),
    "tiny records of no member": (lambda: Broker(tiny("")), lambda: positions().log.on_record),
    "marks": (lambda: Broker(tiny("mark")), lambda: layout_member().on_record),
    "the largest layouts": (
        lambda: Broker([batch_of(NewRecord("topic/orders", value)) for value in LARGEST.values()]),
        lambda: layout_member().on_record,
    ),
    "the largest reports": (
        lambda: Broker([batch_of(NewRecord(key_of(MemberKey("g", "m")), report(10_000))) for _ in range(3)]),
        lambda: positions().log.on_record,
    ),
    "reports that are too large": (
        lambda: Broker([batch_of(NewRecord(key_of(MemberKey("g", "m")), report(60_000))) for _ in range(3)]),
        lambda: positions().log.on_record,
    ),
}


@pytest.mark.parametrize("name", LOGS)
async def test_step_is_short(name: str) -> None:
    """From the answer to a Fetch to what comes of its records."""
    log, on_record = LOGS[name]
    broker = log()
    await in_short_steps(lambda: read_whole(broker, on_record()))


async def read_whole(broker: Broker, on_record: Callable[[Record], None]) -> None:
    own = InternalTopicLog(cast("Any", broker), "__kordon.layouts", "layouts")
    following = asyncio.ensure_future(own.follow(on_record))
    await own.reached(broker.end - 1)
    assert own.position == broker.end
    following.cancel()
    await asyncio.wait({following})


def test_these_records_are_read() -> None:
    """The largest ones are as large as they may be, and no larger."""
    known = layout_member()
    for value in LARGEST.values():
        assert len(value) <= MOST_BYTES
        known.on_record(Record("topic/orders", value, 1))
        assert isinstance(known.state.member.topics.get("orders"), TopicRecord)
        assert not known.findings.unserved
    said = positions()
    said.log.on_record(Record(key_of(MemberKey("g", "m")), report(10_000), 0))
    assert said.log.tally.unreadable == 0
    said.log.on_record(Record(key_of(MemberKey("g", "m")), report(60_000), 1))
    assert said.log.tally.unreadable == 1


def test_a_marker_is_one() -> None:
    """It ends a transaction, as far as its header goes."""
    assert look_batch(marker_of(7), 0).is_control
    assert len(marker_of(7)) > HEADER_BYTES
