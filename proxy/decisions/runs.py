"""Runs: many verdicts that follow on each other, as one record.

A run holds a producer's batches to one stream, what a connection is given of one stream, or one error again and again.
`merge` takes the next event in, unless the run does not continue with it. A client is what has runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, TypedDict

from kordon.codecs.decision import Decision, Kind
from kordon.proxy.decisions.events import NOTHING, Given, OwnError, ReadingMember
from kordon.proxy.ordering.identity import client_id_of, protocol_of
from kordon.proxy.ordering.write_sequencer import Write
from kordon.proxy.topics.managed_topics import ManagedTopic

WriteKey: TypeAlias = tuple[str, int, int]
"""Topic, stream, producer id."""
ReadKey: TypeAlias = tuple[str, int]
"""Topic and stream."""
RefusalKey: TypeAlias = tuple[int, str | None, int | None, str]
"""Api key, topic, stream and the error's name."""


class WriteRun:
    """Batches of one producer to one stay of a stream, acknowledged on one connection under one layout."""

    __slots__ = (
        "base_sequence",
        "batches",
        "began_ms",
        "client",
        "count",
        "first_offset",
        "last_offset",
        "layout_epoch",
        "layouts_offset",
        "move",
        "next_sequence",
        "partition",
        "producer_epoch",
        "producer_id",
        "records",
        "sent_epoch",
        "size",
        "stream",
        "topic",
    )
    kind = Kind.ADMIT
    is_plain = True
    """A run is plain if it holds only numbers and names: it is small, and may be written down later."""

    def __init__(
        self, client: Client, topic: ManagedTopic, stream: int, write: Write, *, base_offset: int, began_ms: int
    ) -> None:
        assert write.bound is not None, "it was sent"
        self.client = client
        self.topic = topic.name
        self.layout_epoch = topic.layout.epoch
        self.layouts_offset = topic.layouts_offset
        self.stream = stream
        self.partition = write.bound.partition
        self.move = write.bound.move
        self.producer_id = write.producer_id
        self.producer_epoch = write.producer_epoch
        self.count = write.undeleted_partition_count
        self.sent_epoch = write.sent_epoch
        self.base_sequence = write.base_sequence
        self.next_sequence = next_sequence(write)
        """The sequence that continues with the run. Without idempotence it is always -1, and rising offsets suffice."""
        self.first_offset = base_offset
        self.last_offset = base_offset + write.records - 1
        self.batches = 1
        self.records = write.records
        self.size = write.size
        self.began_ms = began_ms

    def merge(self, topic: ManagedTopic, write: Write, base_offset: int) -> bool:
        """Takes in the next batch of the same producer and stream; False: the run does not continue with it."""
        bound, sequence, records = write.bound, write.base_sequence, write.records
        if (
            bound is None
            or self.next_sequence != sequence
            or self.last_offset >= base_offset
            or self.partition != bound.partition
            or self.move != bound.move
            or self.layout_epoch != topic.layout.epoch
            or self.layouts_offset != topic.layouts_offset
            or self.producer_epoch != write.producer_epoch
            or self.count != write.undeleted_partition_count
            or self.sent_epoch != write.sent_epoch
        ):
            return False
        self.last_offset = base_offset + records - 1
        if sequence >= 0:
            self.next_sequence = sequence + records
        self.batches += 1
        self.records += records
        self.size += write.size
        return True

    def end(self) -> None:
        """Ends the run; the next batch begins another one."""
        self.client.writes.pop((self.topic, self.stream, self.producer_id), None)

    def decision(self) -> Decision:
        """Returns what the run stands for, once it has ended."""
        evidence = of_transaction(self.producer_id)
        if self.count is not None:
            evidence |= {"undeleted_partition_count": self.count, "sent_epoch": self.sent_epoch}
        return Decision(
            kind=self.kind,
            **self.client.fields(),
            topic=self.topic,
            stream=self.stream,
            partition=self.partition,
            move=self.move,
            layout_epoch=self.layout_epoch,
            layouts_offset=self.layouts_offset,
            producer_id=client_id_of(self.producer_id),
            producer_epoch=self.producer_epoch,
            first_sequence=self.base_sequence,
            last_sequence=last_sequence(self.next_sequence),
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            batches=self.batches,
            records=self.records,
            bytes=self.size,
            evidence=evidence or NOTHING,
        )


def of_transaction(writer: int) -> dict[str, object]:
    """Returns what a decision says of the transaction that a write is in; brokers count its sequences apart.

    Args:
        writer: The writer's id, as `identity.writer_id` makes it; negative without idempotence.

    >>> of_transaction(7), of_transaction(-1), of_transaction(2 << 38 | 7)
    ({}, {}, {'transaction': 'v1'})
    """
    protocol = protocol_of(writer) if writer >= 0 else None
    return {} if protocol is None else {"transaction": protocol.value}


def next_sequence(write: Write) -> int:
    """Returns the sequence that continues with a batch; -1 without idempotence."""
    return write.base_sequence + write.records if write.base_sequence >= 0 else -1


def last_sequence(next_sequence: int) -> int:
    """Returns the sequence before another one; 0 follows 2^31 - 1.

    >>> last_sequence(10), last_sequence(2**31), last_sequence(2**31 + 5), last_sequence(-1)
    (9, 2147483647, 4, -1)
    """
    return -1 if next_sequence < 0 else (next_sequence - 1) & 0x7FFFFFFF


class ReadRun:
    """The records of one stay of a stream that one connection gets.

    It stays with the client after its end, and tells where the reader stood.
    """

    __slots__ = (
        "answers",
        "began_ms",
        "client",
        "evidence",
        "first",
        "group",
        "is_open",
        "layouts_offset",
        "next_offset",
        "records",
        "size",
        "stream",
        "told",
        "topic",
    )
    kind = Kind.DELIVER

    def __init__(
        self,
        client: Client,
        topic: ManagedTopic,
        stream: int,
        given: Given,
        *,
        group: ReadingMember,
        evidence: Mapping[str, object],
        began_ms: int,
    ) -> None:
        self.client = client
        self.topic = topic.name
        self.layouts_offset = topic.layouts_offset
        self.stream = stream
        self.first = given
        self.group = group
        self.evidence = evidence
        self.told = given.told
        """The stream's offset that the reader asks for next."""
        self.next_offset = given.next_offset
        """The same offset in the physical partition."""
        self.answers = 1
        self.records = given.records
        self.size = given.size
        self.began_ms = began_ms
        self.is_open = True

    def merge(self, topic: ManagedTopic, given: Given, group: ReadingMember, evidence: Mapping[str, object]) -> bool:
        """Takes in the next answer to the same reader; False: the run does not continue with it."""
        first, (stay, layout_epoch, asked, told, records, size, _, _, is_committed) = self.first, given
        if (
            self.told != asked
            or not self.is_open
            or self.next_offset != asked - stay.delta
            or first.stay.partition != stay.partition
            or first.stay.move != stay.move
            or first.layout_epoch != layout_epoch
            or first.is_committed is not is_committed
            or self.layouts_offset != topic.layouts_offset
            or self.group.group_id != group.group_id
            or self.group.member_id != group.member_id
            or evidence
        ):
            return False
        self.told = told
        self.next_offset = told - stay.delta
        self.answers += 1
        self.records += records
        self.size += size
        return True

    def end(self) -> None:
        """Ends the run; the next answer begins another one."""
        self.is_open = False

    def decision(self) -> Decision:
        """Returns what the run stands for, once it has ended."""
        stay = self.first.stay
        return Decision(
            kind=self.kind,
            **self.client.fields(),
            topic=self.topic,
            stream=self.stream,
            partition=stay.partition,
            move=stay.move,
            layout_epoch=self.first.layout_epoch,
            layouts_offset=self.layouts_offset,
            first_offset=self.first.first_offset,
            last_offset=self.next_offset - 1,
            batches=self.answers,
            records=self.records,
            bytes=self.size,
            isolation_level=int(self.first.is_committed),
            group_id=self.group.group_id,
            member_id=self.group.member_id,
            evidence=self.evidence,
        )

    @property
    def is_plain(self) -> bool:
        """Whether the run holds only numbers and names."""
        return not self.evidence

    def rewind(self, to: ReadRun) -> Decision:
        """Returns the decision that the reader continues at another place than the end of this run."""
        stood, given = self.first.stay, to.first
        return Decision(
            kind=Kind.REWIND,
            **self.client.fields(),
            topic=self.topic,
            stream=self.stream,
            partition=given.stay.partition,
            move=given.stay.move,
            layout_epoch=given.layout_epoch,
            layouts_offset=to.layouts_offset,
            first_offset=given.first_offset,
            last_offset=self.next_offset - 1,
            group_id=to.group.group_id,
            member_id=to.group.member_id,
            reason="back" if given.asked < self.told else "forward",
            evidence={
                "asked": given.asked,
                "stood": self.told,
                "stood_partition": stood.partition,
                "stood_move": stood.move,
            },
        )


class RefusalRun:
    """One error that one connection was answered again and again."""

    __slots__ = ("began_ms", "client", "first", "times", "topic")
    kind = Kind.REFUSE

    def __init__(self, client: Client, error: OwnError, began_ms: int) -> None:
        self.client = client
        self.first = error
        self.topic = error.topic
        self.times = 1
        self.began_ms = began_ms

    @property
    def is_plain(self) -> bool:
        """Whether the run holds only numbers and names."""
        return not self.first.evidence

    def merge(self, error: OwnError) -> bool:
        """Takes in the same error once more; False: another rule or layout says so."""
        is_same = self.first.layout_epoch == error.layout_epoch and self.first.rule == error.rule
        self.times += is_same
        return is_same

    def end(self) -> None:
        """Ends the run; the next error begins another one."""
        first = self.first
        self.client.refusals.pop((first.api_key, first.topic, first.stream, first.reason), None)

    def decision(self) -> Decision:
        """Returns what the run stands for, once it has ended."""
        return Decision(kind=self.kind, **self.client.fields(), batches=self.times, **self.first._asdict())


Run: TypeAlias = WriteRun | ReadRun | RefusalRun


class ClientFields(TypedDict):
    """The fields of a decision that name a client."""

    connection: int
    client_id: str | None
    principal: str | None


class Client:
    """A client's connection, as decisions name it.

    Args:
        number: The number of the connection in its worker, from 1 on.
        client_id: The client id, as the first request says it.
        principal: The name by which the client logged in to Kordon.
    """

    __slots__ = (
        "__weakref__",
        "broker",
        "client_id",
        "held",
        "most_fetch_bytes",
        "number",
        "principal",
        "reads",
        "recorded",
        "refusals",
        "user",
        "writes",
    )

    def __init__(self, number: int, client_id: str | None = None, principal: str | None = None) -> None:
        self.number = number
        self.client_id = client_id
        self.principal = principal
        self.user: str | None = ""
        """Whom quotas of users mean: "" is nobody yet, None a user whom brokers alone know."""
        self.broker: int | None = None
        """The node id of the broker that it speaks with; None: of the bootstrap listener."""
        self.most_fetch_bytes: int | None = None
        """What one answer to its Fetch may have by its quota; None: no quota holds."""
        self.recorded = False
        """Whether a decision names the connection; of others the end is not on record."""
        self.writes: dict[WriteKey, WriteRun] = {}
        self.reads: dict[ReadKey, ReadRun] = {}
        self.refusals: dict[RefusalKey, RefusalRun] = {}
        self.held: dict[ReadKey, float] = {}
        """What a reader of physical partitions is not given yet, each with since when, in seconds."""

    def fields(self) -> ClientFields:
        """Returns how a decision names the connection, which is on record from then on."""
        self.recorded = True
        return {"connection": self.number, "client_id": self.client_id, "principal": self.principal}
