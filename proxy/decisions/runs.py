"""Runs: many verdicts that follow on each other, as one record.

A producer's batches to one stream, what a connection is given of one stream, and one and the same refusal again and
again: each is a few integers that are raised in place. What ends a run is in
`journal.py`. A client is what has runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kordon.codecs.decision import Decision, Kind

WriteKey: TypeAlias = tuple[str, int, int]
"""Topic, stream, producer id."""
ReadKey: TypeAlias = tuple[str, int]
"""Topic and stream."""
RefusalKey: TypeAlias = tuple[int, str | None, int | None, str]
"""Api key, topic, stream and the error's name."""


@dataclass(slots=True, eq=False)
class WriteRun:
    """Batches of one producer to one stay of a stream, which were acknowledged on one connection."""

    client: Client
    topic: str
    stream: int
    partition: int
    move: int
    layout_epoch: int
    layouts_offset: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    next_sequence: int
    """That goes on with it. Without idempotence always -1: there it is enough that offsets rise."""
    first_offset: int
    last_offset: int
    batches: int
    records: int
    size: int
    began_ms: int
    count: int | None = None
    """By which clients of the dialect chose the partition."""
    sent_epoch: int | None = None
    """In force when that was judged."""

    def end(self) -> None:
        """Ends it; the next batch begins another one."""
        self.client.writes.pop((self.topic, self.stream, self.producer_id), None)

    def decision(self) -> Decision:
        """Returns what it stands for, once it has ended."""
        return self.client.decision(
            Kind.ADMIT,
            topic=self.topic,
            stream=self.stream,
            partition=self.partition,
            move=self.move,
            layout_epoch=self.layout_epoch,
            layouts_offset=self.layouts_offset,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            first_sequence=self.first_sequence,
            last_sequence=last_sequence(self.next_sequence),
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            batches=self.batches,
            records=self.records,
            bytes=self.size,
            evidence=(
                {} if self.count is None else {"undeleted_partition_count": self.count, "sent_epoch": self.sent_epoch}
            ),
        )

    @property
    def kind(self) -> Kind:
        """What it will be."""
        return Kind.ADMIT

    @property
    def is_plain(self) -> bool:
        """Whether it holds numbers and names only, so that it can be written down later, and is small."""
        return True


def last_sequence(next_sequence: int) -> int:
    """Returns the sequence in front of another one; they go on with 0 behind 2^31 - 1.

    >>> last_sequence(10), last_sequence(2**31), last_sequence(2**31 + 5), last_sequence(-1)
    (9, 2147483647, 4, -1)
    """
    return -1 if next_sequence < 0 else (next_sequence - 1) & 0x7FFFFFFF


@dataclass(slots=True, eq=False)
class ReadRun:
    """What one connection is given of one stream.

    It stays when it has ended: by it one sees where the reader stood.
    """

    client: Client
    topic: str
    stream: int
    partition: int
    move: int
    layout_epoch: int
    layouts_offset: int
    told: int
    """The offset that goes on with it, as the client counts: of the stream."""
    first_offset: int
    last_offset: int
    answers: int
    records: int
    size: int
    began_ms: int
    group_id: str | None = None
    member_id: str | None = None
    evidence: Mapping[str, Any] | None = None
    is_open: bool = True

    def end(self) -> None:
        """Ends it; the next answer begins another one."""
        self.is_open = False

    def decision(self) -> Decision:
        """Returns what it stands for, once it has ended."""
        return self.client.decision(
            Kind.DELIVER,
            topic=self.topic,
            stream=self.stream,
            partition=self.partition,
            move=self.move,
            layout_epoch=self.layout_epoch,
            layouts_offset=self.layouts_offset,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            batches=self.answers,
            records=self.records,
            bytes=self.size,
            group_id=self.group_id,
            member_id=self.member_id,
            evidence=self.evidence or {},
        )

    @property
    def kind(self) -> Kind:
        """What it will be."""
        return Kind.DELIVER

    @property
    def is_plain(self) -> bool:
        """Whether it holds numbers and names only, so that it can be written down later, and is small."""
        return not self.evidence

    def rewind(self, asked: int, to: ReadRun) -> Decision:
        """Returns that its reader goes on elsewhere than where it stood.

        Args:
            asked: What it asked for, as the client counts.
            to: What it is given there.
        """
        return self.client.decision(
            Kind.REWIND,
            topic=self.topic,
            stream=self.stream,
            partition=to.partition,
            move=to.move,
            layout_epoch=to.layout_epoch,
            layouts_offset=to.layouts_offset,
            first_offset=to.first_offset,
            last_offset=self.last_offset,
            group_id=to.group_id,
            member_id=to.member_id,
            reason="back" if asked < self.told else "forward",
            evidence={"asked": asked, "stood": self.told, "stood_partition": self.partition, "stood_move": self.move},
        )


@dataclass(slots=True, eq=False)
class RefusalRun:
    """One error that one connection was answered again and again."""

    client: Client
    api_key: int
    topic: str | None
    stream: int | None
    reason: str
    rule: str | None
    layout_epoch: int | None
    layouts_offset: int | None
    began_ms: int
    times: int = 1
    evidence: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the first time."""

    @property
    def kind(self) -> Kind:
        """What it will be."""
        return Kind.REFUSE

    @property
    def is_plain(self) -> bool:
        """Whether it holds numbers and names only, so that it can be written down later, and is small."""
        return not self.evidence

    def end(self) -> None:
        """Ends it; the next refusal begins another one."""
        self.client.refusals.pop((self.api_key, self.topic, self.stream, self.reason), None)

    def decision(self) -> Decision:
        """Returns what it stands for, once it has ended."""
        return self.client.decision(
            Kind.REFUSE,
            api_key=self.api_key,
            topic=self.topic,
            stream=self.stream,
            reason=self.reason,
            rule=self.rule,
            layout_epoch=self.layout_epoch,
            layouts_offset=self.layouts_offset,
            batches=self.times,
            evidence=self.evidence,
        )


Run: TypeAlias = WriteRun | ReadRun | RefusalRun


class Client:
    """A client's connection, as decisions name it.

    Args:
        number: Among those of the worker.
        client_id: As its requests say; set by the first one.
        principal: As whom it logged in to Kordon.
    """

    __slots__ = ("client_id", "held", "number", "principal", "reads", "recorded", "refusals", "writes")

    def __init__(self, number: int, client_id: str | None = None, principal: str | None = None) -> None:
        self.number = number
        self.client_id = client_id
        self.principal = principal
        self.recorded = False
        """Whether a decision names it: the end of other connections is nobody's concern."""
        self.writes: dict[WriteKey, WriteRun] = {}
        self.reads: dict[ReadKey, ReadRun] = {}
        self.refusals: dict[RefusalKey, RefusalRun] = {}
        self.held: dict[ReadKey, float] = {}
        """What a reader of physical partitions is not given yet, each with since when, in seconds."""

    def decision(self, kind: Kind, **fields: Any) -> Decision:
        """Returns a decision about this connection; the fields are those of `Decision`."""
        self.recorded = True
        return Decision(kind=kind, connection=self.number, client_id=self.client_id, principal=self.principal, **fields)
