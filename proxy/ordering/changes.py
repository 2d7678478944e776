"""A change of a topic's layout: how far it has come, and what the controller has done for it by others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.next_images import NextImages
from kordon.proxy.ordering.placements import Epoch, Placement
from kordon.proxy.ordering.records import AnnouncementRecord, FenceRecord, Value
from kordon.proxy.ordering.transactions.older_transactions import OlderTransactions

REMEMBERED_MS: Final = 7 * 24 * 60 * 60 * 1000
"""For how long brokers remember a silent producer, where it is not known: the longest default that Kafka has had
(transactional.id.expiration.ms, by which it went before producer.id.expiration.ms)."""


class Stage(Enum):
    """How far a procedure has come."""

    PREPARING = "preparing"
    WAITING = "waiting for leases"
    ANNOUNCING = "writing the announcement"
    TELLING = "waiting until all know of it"
    OLDER = "waiting for older transactions"
    OPENING = "writing the fence"
    WRITING_AHEAD = "writing images ahead"
    CONFIRMING = "asking who serves"
    FENCING = "waiting for acknowledgements"
    CUTTING = "reading cuts"
    COMMITTING = "writing the layout"
    CANCELLING = "cancelling"
    PAUSING = "waiting for another attempt"


@dataclass(frozen=True, slots=True)
class OlderOpen:
    """A transaction that its coordinator has open, and that a change may wait for (OLDER-FIRST)."""

    transactional_id: str
    producer_id: int
    partitions: frozenset[int]
    """The partitions of the topic whose marker is still to come."""
    state: str
    """As Kafka names it."""
    ends_ms: int
    """When its coordinator ends it at the latest, in milliseconds since 1970."""


@dataclass
class Change:
    """A procedure under way."""

    topic: str
    target: int
    """undeleted_partition_count to come to."""
    stage: Stage = Stage.PREPARING
    since: float = 0.0
    """When the stage began."""
    begun: float = 0.0
    """When its first attempt began; 0: none has."""
    fence: FenceRecord | None = None
    acknowledged: set[str] = field(default_factory=set[str])
    missed: frozenset[str] = frozenset()
    """Who did not acknowledge the last attempt."""
    attempts: int = 0
    placement: Placement = Placement.LINEAR
    shortened: dict[int, int] = field(default_factory=dict[int, int])
    """Physical partitions whose log has got shorter, by the offset from which on all was lost (BEYOND-LOSS)."""
    renewed: frozenset[int] = frozenset()
    """Physical partitions that begin another segment, in which the janitor writes first (KIP-253 9)."""
    told: dict[int, int] = field(default_factory=dict[int, int])
    """The offset up to which readers may have been told of each of these, as acknowledging proxies say."""
    expected: Mapping[int, int] | None = None
    """Where partitions must end, because somebody said that nobody writes to them; None: anywhere (TAKEOVER-WAITS)."""
    problem: str = ""
    """Why it is given up."""
    has_many: bool = False
    """Whether its partitions have so many producers that images are written ahead."""
    ahead: NextImages | None = None
    """The images that are written ahead."""
    is_ahead: bool = False
    """Whether they are, but for what is being written just now."""
    reason: str = ""
    """Why the last attempt failed, where others will most likely fail for it as well."""
    failures: int = 0
    """How many in a row have failed for that reason."""
    remembered_ms: int = REMEMBERED_MS
    """For how long brokers remember a producer that is silent."""
    code: int | None = None
    """Kafka's error code for `problem`, where the cluster has refused."""
    announced: AnnouncementRecord | None = None
    """What was announced of it; None: nothing has to be, or has been yet (DOUBLE-ADD)."""
    told_to: set[str] = field(default_factory=set[str])
    """Who has acknowledged the announcement."""
    is_confirmed: bool = False
    """Whether the members that were known are all that joined before the announcement was durable."""
    is_writing: bool = False
    """Whether the announcement, or what belongs to it, is being written."""
    is_asking: bool = False
    """Whether leaders and coordinators are being asked who is open."""
    asked: float = 0.0
    """When they were asked last, or had answered."""
    took: float = 0.0
    """How many seconds the last answer took."""
    older: OlderTransactions | None = None
    """Tells which transactions are waited for; None: the log ends are not known yet (OLDER-FIRST)."""
    left: frozenset[tuple[int, int]] = frozenset()
    """What is waited for, as partitions and producer ids."""
    waited: tuple[OlderOpen, ...] = ()
    """The same as coordinators tell it."""
    doubted: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    """What was open at a leader in the last look, and no coordinator knew, since when."""
    waited_out: str = ""
    """The announcement for which no older transaction is open any more."""

    def enter(self, stage: Stage, now: float) -> list[Command]:
        """Begins a stage; returns no commands, for those who have none to add."""
        self.stage, self.since = stage, now
        self.begun = self.begun or now
        return []

    def following(self, layout: Layout) -> Epoch:
        """Returns the epoch that it would begin behind a layout.

        Of a topic with transactions that is the mending of a log that got shorter, if there is one. Readers wait for
        that, and it must not wait for transactions.
        """
        if layout.has_transactions and self.shortened:
            return layout.next_epoch(layout.u, self.placement, dict(self.shortened), self.renewed)
        return layout.next_epoch(self.target, self.placement, dict(self.shortened), self.renewed)

    def blame(self, reason: str, most: int) -> None:
        """Counts for what reason attempts fail in a row, and gives the change up when one has come so often."""
        self.failures = self.failures + 1 if reason and reason == self.reason else int(bool(reason))
        self.reason = reason
        if self.failures >= most:
            self.problem = f"given up after {most} attempts: {reason}"


@dataclass(frozen=True)
class Producers:
    """What was read of a sealed or opened partition when nothing could land there any more (STILL-CUT).

    Attributes:
        end: The next offset.
        written: By tagged producer id: epoch and last sequence.
    """

    end: int
    written: Mapping[int, tuple[int, int]]
    in_transaction: bool = False
    """Whether a producer has a transaction open."""
    leader_epoch: int = -1
    """In which it was read."""
    read_ms: int = 0
    """When it was read, in milliseconds since 1970."""


@dataclass(frozen=True)
class Prepare:
    """Make sure that a topic has so many partitions and all of them leaders; answer with `Prepared`."""

    topic: str
    partitions: int


@dataclass(frozen=True)
class WriteAhead:
    """Have images written down that hold all but what is being written just now; answer with `on_ahead`.

    What is durable of them is told by `on_written_ahead`.
    """

    topic: str
    partitions: frozenset[int]
    """Sealed or opened by what follows."""
    images: NextImages
    """Where they were written for an attempt before, only what was written since is read."""


@dataclass(frozen=True)
class ConfirmMembers:
    """Ask the group whether the generation that this proxy leads is still the present one.

    Answer with `on_confirmed` if it is; if it is not, `on_members` tells the next one. Asked after a fence is durable:
    whoever joins from then on reads the fence before it serves, whoever joined before is known (FENCE-BARRIER).
    """

    topic: str
    announcement: str = ""
    """Asked after this announcement is durable; empty: after the fence is."""


@dataclass(frozen=True)
class AskEnds:
    """Ask leaders where the logs end of partitions that something leaves; answer with `on_ends`."""

    topic: str
    announcement: str
    partitions: frozenset[int]


@dataclass(frozen=True)
class AskOpen:
    """Ask leaders, and then coordinators, which transactions are open; answer with `on_open`."""

    topic: str
    announcement: str
    ends: Mapping[int, int]
    """By partition; what began below is older than the announcement."""
    producer_ids: frozenset[int]
    """The producer ids of the transactions that are already waited for."""


@dataclass(frozen=True)
class ReadCuts:
    """Read end and producers of these partitions until they stand still; answer with `Cuts`."""

    topic: str
    fence: str
    partitions: frozenset[int]
    ahead: NextImages | None = None
    """The images that were written ahead: only those are asked for who have written since."""


@dataclass(frozen=True)
class Commit:
    """Write these in one transaction; answer with `Committed` or `NotCommitted`. None is a tombstone."""

    topic: str
    records: tuple[tuple[str, Value | None], ...]


@dataclass(frozen=True)
class Mended:
    """A log that got shorter is mended, and the change continues."""

    topic: str


@dataclass(frozen=True)
class Finished:
    """A wish has come true."""

    topic: str


@dataclass(frozen=True)
class Abandoned:
    """A wish cannot come true."""

    topic: str
    problem: str
    code: int | None = None
    """Kafka's error code where it was the cluster that refused; None: the wish does not fit what was found."""


Command = Prepare | AskEnds | AskOpen | WriteAhead | ConfirmMembers | ReadCuts | Commit | Mended | Finished | Abandoned
