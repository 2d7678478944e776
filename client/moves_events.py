"""The events that `moves.py` takes in, and the commands that it gives."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from aiokafka.structs import TopicPartition

from kordon.proxy.ordering.gate import Gate


@dataclass(frozen=True, slots=True)
class TopicGate:
    """What holds a managed topic's partitions."""

    gate: Gate
    """The gate of all segments of the topic."""
    gone: frozenset[int] = frozenset()
    """Retired partitions that Metadata no longer shows: they are empty, and nobody can own them."""


@dataclass(frozen=True, slots=True)
class MemberPositions:
    """The positions of a member in a partition."""

    delivered: int
    """The next offset to be fetched."""
    handled: int
    """The next offset after what the application has come back from; at most `delivered`."""
    high_watermark: int = -1
    """The high watermark of the last answer; -1: there is none yet."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The member got partitions, in a new generation."""

    now: float
    """Seconds of a clock that does not go back; so in all events."""
    partitions: Collection[TopicPartition]
    topics: Mapping[str, TopicGate]
    """Those of managed topics with ordered delivery; of others keys do not move."""
    goes_on: bool = False
    """Whether it is the same member under a newer layout, or with others beside: so it is with one that reads alone."""


@dataclass(frozen=True, slots=True)
class Stood:
    """The member's positions now, without partitions that have none yet."""

    now: float
    places: Mapping[TopicPartition, MemberPositions]


@dataclass(frozen=True, slots=True)
class Answered:
    """The report under way was answered."""

    now: float
    positions: Mapping[TopicPartition, int]
    """What is known of partitions that were asked for."""
    needed: Collection[TopicPartition]
    """Partitions of the member that others ask for."""


@dataclass(frozen=True, slots=True)
class ReportFailed:
    """The report under way failed, or nobody knows."""

    now: float


@dataclass(frozen=True, slots=True)
class CallReturned:
    """The application came back from the call under way."""

    now: float


@dataclass(frozen=True, slots=True)
class CallFailed:
    """The call under way failed, or took too long."""

    now: float


@dataclass(frozen=True, slots=True)
class Leaving:
    """The partitions are about to be given up: nothing more is delivered."""

    now: float


@dataclass(frozen=True, slots=True)
class Left:
    """The partitions were given up."""

    now: float


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed (`KeyMoves.next_tick`)."""

    now: float


Event: TypeAlias = Assigned | Stood | Answered | ReportFailed | CallReturned | CallFailed | Leaving | Left | Ticked


@dataclass(frozen=True, slots=True)
class CallMaybeRevoked:
    """Call `on_partition_key_maybe_revoked`; answered by `CallReturned` or `CallFailed`."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CallAssigned:
    """Call `on_partition_key_assigned`; answered likewise."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A row of ConsumerGroupPosition's request."""

    partition: TopicPartition
    needed: bool = False
    """Its position is asked for."""
    position: int = -1
    """The member's own; -1: it says nothing."""


@dataclass(frozen=True, slots=True)
class SendReport:
    """Send ConsumerGroupPosition; answered by `Answered` or `ReportFailed`."""

    rows: tuple[ReportRow, ...]
    """All partitions that the member owns, and all that it asks for."""
    sequence: int = 0
    """Rises with each report that says something else than the last one, and after one that failed."""


@dataclass(frozen=True, slots=True)
class Resume:
    """These partitions may be fetched, which they might not before."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Withhold:
    """What was fetched of these partitions and not delivered yet may not be delivered."""

    partitions: tuple[TopicPartition, ...]


Command: TypeAlias = CallMaybeRevoked | CallAssigned | SendReport | Resume | Withhold
