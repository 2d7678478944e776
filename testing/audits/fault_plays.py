"""What real clients do while a Kordon breaks one promise, so that its decisions and topics show it; and a clean run.

Each play has a managed topic of its own and no more traffic than its fault needs, but a growth and readers where
order could suffer.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kordon.client import SourceProducer, SourceRebalancedError
from kordon.client.partitioning import key_hash
from kordon.proxy.ordering.layout import Layout
from kordon.testing.audits.faults import Fault
from kordon.testing.audits.play_requests import (
    assert_accepted,
    keyed,
    new_producer,
    one_record,
    produce,
    read_to,
    write,
)
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.dialect.reader import DialectReader
from kordon.testing.individual_member import Committed, IndividualMember
from kordon.testing.managed_clients import (
    CHANGE_SECONDS,
    VIRTUAL_PARTITIONS,
    Sender,
    alter_commit,
    create_managed,
    create_ordinary,
    read_all,
    read_to_ends,
    resize,
)
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.source_member import SourceMember
from kordon.testing.waiting import wait_until

PARTITIONS: Final = 3
GROWN: Final = 4
BYPASS: Final = "bypass"
"""A record that somebody writes round the proxy, which keeps all of its own promises."""
DELETED: Final = "deleted"
"""Records that the brokers delete before an audit has seen them; nothing is wrong with that."""
DELETED_TO: Final = 2
TRANSACTIONAL: Final = frozenset({Fault.UNWITNESSED, Fault.HIDDEN_WRITE, Fault.UNCOMMITTED_RANGE})
"""Plays for a Kordon that takes transactions."""
INDIVIDUAL: Final = frozenset({Fault.PUSHED_AHEAD, Fault.PUSHED_BACK, Fault.CLAIMED_AFTER_END})
"""Plays for a Kordon that takes individual commits."""
SOURCED: Final = frozenset({Fault.TWO_OWNERS, Fault.POINT_FELL, Fault.FORMER_OWNER})
"""Plays on a source topic."""
GROUP: Final = "one-by-one"
_PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a play is given."""

    proxy: str
    """host:port of the Kordon."""
    broker: str
    """host:port of a broker."""
    topic: str
    """To be made: a managed one."""


def made(stage: Stage, partitions: int) -> AdminClient:
    """Makes the topic, and has it grow to so many partitions; returns the client."""
    admin = create_managed(stage.proxy, stage.topic)
    if partitions != PARTITIONS:
        resize(admin, stage.topic, partitions).result(CHANGE_SECONDS)
    return admin


def stale_count(stage: Stage, first: int = PARTITIONS, then: int = GROWN) -> None:
    """A dialect producer that has not heard of a change is let write."""
    admin = made(stage, first)
    with DialectConnection(stage.proxy) as client:
        identity = new_producer(client)
        epoch = client.metadata(stage.topic).layout_epoch
        before = client.produce(stage.topic, 0, one_record(identity, 0, "known"), first, epoch)
        resize(admin, stage.topic, then).result(CHANGE_SECONDS)
        after = client.produce(stage.topic, 0, one_record(identity, 1, "outdated"), first, epoch)
    assert_accepted(before.error_code, after.error_code)


def early_child(stage: Stage) -> None:
    """A reader is given the new partition's records though it stands at the beginning of the old ones."""
    admin = create_managed(stage.proxy, stage.topic)
    with DialectConnection(stage.proxy) as client:
        assert_accepted(*(write(client, stage.topic, q, PARTITIONS) for q in range(PARTITIONS)))
        resize(admin, stage.topic, GROWN).result(CHANGE_SECONDS)
        assert_accepted(write(client, stage.topic, GROWN - 1, GROWN))
    with DialectReader(stage.proxy, stage.topic) as reader:
        reader.read_until(1, GROWN - 1)


def write_after_fence(stage: Stage, first: int = PARTITIONS, then: int = GROWN) -> None:
    """A producer writes without a break while its topic changes."""
    admin = made(stage, first)
    with closing(Sender(stage.proxy, stage.topic)) as sender:
        sender.send_for(0.5)
        sender.send_for(0.5, resize(admin, stage.topic, then))
        sender.finish()


def doubled_sequence(stage: Stage, first: int = PARTITIONS, then: int = GROWN) -> None:
    """A producer sends again, after its virtual partition has moved, what had been acknowledged."""
    admin = made(stage, first)
    moved = first_to_move(stage.topic)
    with PlainConnection(stage.proxy) as client:
        batch = one_record(new_producer(client), 0, "once")
        before = produce(client, stage.topic, moved, batch)
        resize(admin, stage.topic, then).result(CHANGE_SECONDS)
        after = produce(client, stage.topic, moved, batch)
    assert_accepted(before, after)


def skipped_range(stage: Stage) -> None:
    """A reader reads a partition of many batches to its end."""
    create_managed(stage.proxy, stage.topic)
    count = 12
    with PlainConnection(stage.proxy) as client:
        identity = new_producer(client)
        assert_accepted(*(produce(client, stage.topic, 0, one_record(identity, n, f"value {n}")) for n in range(count)))
        read_to(client, stage.topic, count)


def keys_by_home() -> dict[int, list[bytes]]:
    """Some keys for each virtual partition, by Java's partitioner."""
    lots: dict[int, list[bytes]] = {v: [] for v in range(VIRTUAL_PARTITIONS)}
    for key in (b"key-%d" % number for number in range(16 * VIRTUAL_PARTITIONS)):
        lots[key_hash(key) % VIRTUAL_PARTITIONS].append(key)
    return lots


def misplaced_key(stage: Stage) -> None:
    """A producer writes keys to where Java's partitioner has them, some to each virtual partition."""
    create_managed(stage.proxy, stage.topic)
    lots = keys_by_home()
    with PlainConnection(stage.proxy) as client:
        identity = new_producer(client)
        assert_accepted(*(produce(client, stage.topic, v, keyed(identity, 0, keys)) for v, keys in lots.items()))


def unwitnessed(stage: Stage) -> None:
    """A producer commits what it has written to a virtual partition."""
    create_managed(stage.proxy, stage.topic)
    with closing(transactional(stage)) as producer:
        producer.write(0)
        producer.end()


def hidden_write(stage: Stage) -> None:
    """A producer writes to one virtual partition, then to another one that lives there too, and commits."""
    create_managed(stage.proxy, stage.topic)
    with closing(transactional(stage)) as producer:
        producer.write(0)
        producer.write(1)
        producer.end()


def uncommitted_range(stage: Stage) -> None:
    """A producer commits, aborts and commits, and a reader of committed records reads all."""
    create_managed(stage.proxy, stage.topic)
    with closing(transactional(stage)) as producer:
        for is_commit in (True, False, True):
            producer.write(0)
            producer.end(is_commit=is_commit)
    read_committed(stage)


def pushed_ahead(stage: Stage) -> None:
    """A member commits what it has done behind a gap, and once more."""
    create_managed(stage.proxy, stage.topic)
    with individual(stage) as member:
        taken(member.commit(0), member.commit(0, (3, 5)), member.commit(0, (3, 5), (7, 9)))


def pushed_back(stage: Stage) -> None:
    """A member commits, and then one that was told where the group stood before that."""
    create_managed(stage.proxy, stage.topic)
    with individual(stage) as first:
        taken(first.commit(0))
        with individual(stage) as second:
            taken(first.commit(5), second.commit(0, (7, 9)))


def claimed_after_end(stage: Stage) -> None:
    """A group is reset, and goes on; then a member commits that was told where it stood before the reset."""
    create_managed(stage.proxy, stage.topic)
    with individual(stage) as late:
        taken(late.commit(10, (12, 20)))
        alter_commit(stage.proxy, GROUP, stage.topic, 4)
        with individual(stage) as member:
            taken(member.commit(4, (6, 7)), late.commit(10, (12, 20), (22, 25)))


def individual(stage: Stage) -> IndividualMember:
    """Returns a member that was told where its group stands, on partition 0."""
    member = IndividualMember(PlainConnection(stage.proxy), GROUP, stage.topic)
    member.ask()
    return member


def taken(*commits: Committed) -> None:
    """All of them were."""
    assert_accepted(*(each.code for each in commits))


def individual_commits(stage: Stage) -> None:
    """Members commit offset by offset, the group is reset, and no promise is broken."""
    create_managed(stage.proxy, stage.topic)
    with individual(stage) as first:
        taken(first.commit(0), first.commit(0, (3, 5)))
        with individual(stage) as second:
            taken(second.commit(0, (1, 2), (3, 5)), first.commit(3), second.commit(5, (9, 12)))
            alter_commit(stage.proxy, GROUP, stage.topic, 2)
            for each in (second, first):
                each.ask()
                taken(each.commit(2, (9, 12)), each.commit(8, (9, 12)))


def two_owners(stage: Stage) -> None:
    """Of two members the one that leads gives the only partition to itself."""
    make_source(stage)
    with source_member(stage) as one, source_member(stage) as other:
        one.begin_join()
        one.join()
        one.sync({one.member_id: [0]})
        other.begin_join()
        wait_until("the group wants its members", one.is_to_join)
        one.begin_join()
        assert (one.join(), other.join()) == (True, False)
        one.sync({one.member_id: [0], other.member_id: []})
        other.sync()


def point_fell(stage: Stage) -> None:
    """Somebody sets restart points of a group that has no members, an older one at last."""
    make_source(stage)
    with source_member(stage) as operator:
        assert_accepted(*(operator.commit(each) for each in (1, 3, 2)))


def former_owner(stage: Stage) -> None:
    """A member leaves its group, its heir goes on; and then it commits as if it were a member."""
    make_source(stage)
    with source_member(stage) as zombie, source_member(stage) as heir:
        for number, each in enumerate((zombie, heir), 1):
            each.begin_join()
            each.join()
            each.sync({each.member_id: [0]})
            assert_accepted(each.commit_in_transaction(number))
            if each is zombie:
                each.leave()
        assert_accepted(zombie.commit_in_transaction(3))


def make_source(stage: Stage, partitions: int = 1) -> None:
    """Makes a source topic under the stage's name."""
    create_ordinary(stage.proxy, stage.topic, partitions, {"kordon.source": "true"})


def source_member(stage: Stage) -> closing[SourceMember]:
    """Returns a member, or somebody who may become one, of the group on the stage's topic."""
    return closing(SourceMember(PlainConnection(stage.proxy), stage.topic))


def sources(stage: Stage) -> None:
    """Members of a group come and go while they copy into a managed topic, and no promise is broken."""
    data = f"{stage.topic}-data"
    create_managed(stage.proxy, data)
    make_source(stage, 2)
    asyncio.run(_copy(stage, data))


async def _copy(stage: Stage, data: str) -> None:
    async with _source(stage) as first:
        await first.subscribe()
        await _copy_row(first, data, "1")
        await _copy_row(first, data, "2")
        async with _source(stage) as second:
            await second.subscribe()
            for number in ("3", "4"):
                await _copy_row(first, data, number)
                await _copy_row(second, data, number)
        await _copy_row(first, data, "5")


def _source(stage: Stage) -> SourceProducer:
    return SourceProducer(bootstrap_servers=stage.proxy, group_id=stage.topic, source_partition_count=None)


async def _copy_row(member: SourceProducer, data: str, row: str) -> None:
    while True:
        try:
            async with member.transaction() as points:
                for each in points:
                    await member.send(data, row.encode(), key=b"%d" % each)
                    member.restart_at({each: row})
        except SourceRebalancedError:
            continue
        return


def read_committed(stage: Stage, isolation_level: str = "read_committed") -> list[Message]:
    """Reads the stage's topic to its ends."""
    return read_to_ends({"bootstrap.servers": stage.proxy, "isolation.level": isolation_level}, stage.topic)


def transactions(stage: Stage) -> None:
    """A producer commits, aborts and commits while its topic grows; a group reads on, and no promise is broken."""
    admin = create_managed(stage.proxy, stage.topic)
    with closing(transactional(stage)) as producer:
        for is_commit in (True, False, True):
            for v in range(VIRTUAL_PARTITIONS):
                producer.write(v)
            producer.end(is_commit=is_commit)
        resize(admin, stage.topic, GROWN).result(CHANGE_SECONDS)
        for v in range(VIRTUAL_PARTITIONS):
            producer.write(v)
        producer.end()
        producer.write(0)
        producer.end(is_commit=False)
    committed = read_committed(stage)
    assert len(committed) == 3 * VIRTUAL_PARTITIONS
    assert len(read_committed(stage, "read_uncommitted")) == 4 * VIRTUAL_PARTITIONS + 1
    last = max(message.offset() or 0 for message in committed if message.partition() == 0)
    for offset in (1, last + 1):  # behind the latter is nothing but what was aborted
        hand_over(stage, offset)


class _Transactional:
    """A stock client's transactional producer, which begins the next transaction when it writes."""

    def __init__(self, settings: Mapping[str, str | int]) -> None:
        self._producer = Producer(dict(settings))
        self._producer.init_transactions(_PATIENCE_SECONDS)
        self._is_open = False
        self._topic = str(settings["transactional.id"])

    def write(self, v: int) -> None:
        """Writes a record, and waits until it is acknowledged."""
        if not self._is_open:
            self._producer.begin_transaction()
            self._is_open = True
        self._producer.produce(self._topic, b"value", b"key", partition=v)
        assert self._producer.flush(_PATIENCE_SECONDS) == 0

    def end(self, *, is_commit: bool = True) -> None:
        """Ends the transaction."""
        self._is_open = False
        (self._producer.commit_transaction if is_commit else self._producer.abort_transaction)(_PATIENCE_SECONDS)

    def close(self) -> None:
        """Waits for nothing."""


def transactional(stage: Stage) -> _Transactional:
    """Returns a producer of the stage's topic, whose name is its transactional id."""
    return _Transactional({"bootstrap.servers": stage.proxy, "transactional.id": stage.topic})


def told_ahead(stage: Stage) -> None:
    """A member of a group commits what it has read of a partition, and another one reads on for it."""
    create_managed(stage.proxy, stage.topic)
    with PlainConnection(stage.proxy) as client:
        identity = new_producer(client)
        assert_accepted(*(produce(client, stage.topic, 0, one_record(identity, n, f"value {n}")) for n in range(3)))
    hand_over(stage, 1)


def hand_over(stage: Stage, offset: int) -> None:
    """A member of a group commits an offset of virtual partition 0, and another one asks where to read on."""
    settings = {"bootstrap.servers": stage.proxy, "group.id": stage.topic}
    place = TopicPartition(stage.topic, 0, offset)
    with closing(Consumer(settings)) as first:
        first.commit(offsets=[place], asynchronous=False)
    with closing(Consumer(settings)) as second:
        (told,) = second.committed([place], _PATIENCE_SECONDS)
    assert (told.error, told.offset >= place.offset) == (None, True)


def dropped_decision(stage: Stage) -> None:
    """A producer writes, twice: of one there is no record, and of the other one that tells of a gap."""
    create_managed(stage.proxy, stage.topic)
    for _ in range(2):
        with PlainConnection(stage.proxy) as client:
            assert_accepted(produce(client, stage.topic, 0, one_record(new_producer(client), 0, "value")))


def bypass(stage: Stage) -> None:
    """Somebody writes to the managed topic past Kordon."""
    create_managed(stage.proxy, stage.topic)
    with PlainConnection(stage.proxy) as client:
        assert_accepted(produce(client, stage.topic, 0, one_record(new_producer(client), 0, "through Kordon")))
    with PlainConnection(stage.broker) as stranger:
        assert_accepted(produce(stranger, stage.topic, 0, one_record((-1, -1), -1, "round it")))


def deleted(stage: Stage) -> None:
    """What was written and read is deleted at the brokers, up to `DELETED_TO`, and no promise is broken."""
    create_managed(stage.proxy, stage.topic)
    for count in (3, 1):
        with PlainConnection(stage.proxy) as client:
            identity = new_producer(client)
            assert_accepted(
                *(produce(client, stage.topic, 0, one_record(identity, n, f"value {n}")) for n in range(count))
            )
    with PlainConnection(stage.proxy) as client:
        read_to(client, stage.topic, 4)
    admin = AdminClient({"bootstrap.servers": stage.broker})
    for done in admin.delete_records([TopicPartition(stage.topic, 0, DELETED_TO)]).values():
        done.result(_PATIENCE_SECONDS)


def clean(stage: Stage) -> None:
    """Stock and dialect clients write and read while the topic grows and shrinks, and no promise is broken."""
    admin = create_managed(stage.proxy, stage.topic)
    with closing(Sender(stage.proxy, stage.topic)) as sender:
        sender.send_for(0.5)
        sender.send_for(0.5, resize(admin, stage.topic, GROWN + 1))
        sender.send_for(0.5, resize(admin, stage.topic, PARTITIONS))
        sender.finish()
    read_all(stage.proxy, stage.topic, len(sender.acknowledged))
    with DialectReader(stage.proxy, stage.topic) as reader:
        reader.read_until(len(sender.acknowledged))


PLAYS: Final[Mapping[str, Callable[[Stage], None]]] = MappingProxyType(
    {
        Fault.STALE_COUNT.value: stale_count,
        Fault.EARLY_CHILD.value: early_child,
        Fault.WRITE_AFTER_FENCE.value: write_after_fence,
        Fault.DOUBLED_SEQUENCE.value: doubled_sequence,
        Fault.SKIPPED_RANGE.value: skipped_range,
        Fault.TOLD_AHEAD.value: told_ahead,
        Fault.UNCOMMITTED_RANGE.value: uncommitted_range,
        Fault.MISPLACED_KEY.value: misplaced_key,
        Fault.UNWITNESSED.value: unwitnessed,
        Fault.HIDDEN_WRITE.value: hidden_write,
        Fault.PUSHED_AHEAD.value: pushed_ahead,
        Fault.PUSHED_BACK.value: pushed_back,
        Fault.CLAIMED_AFTER_END.value: claimed_after_end,
        Fault.TWO_OWNERS.value: two_owners,
        Fault.POINT_FELL.value: point_fell,
        Fault.FORMER_OWNER.value: former_owner,
        Fault.DROPPED_DECISION.value: dropped_decision,
        BYPASS: bypass,
    }
)
"""By what is broken, what shows it."""


def first_to_move(topic: str) -> int:
    """Returns the first virtual partition that a growth moves."""
    layout = Layout.created(topic, uuid.UUID(int=1), PARTITIONS, VIRTUAL_PARTITIONS)
    return min(layout.change_to(layout.next_epoch(GROWN)).movers)
