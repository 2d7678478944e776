"""What somebody wants of a topic: written into `__kordon.layouts` by any proxy, fulfilled by the controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from kordon.proxy.ordering.share.policy import DEFAULT, ShareOrder, SharePoison, SharePolicy, is_default
from kordon.proxy.ordering.takeover import TRANSITION_MS


@dataclass(frozen=True, slots=True)
class Manage:
    """Let a topic be managed."""

    topic: str
    virtual_partitions: int
    quiesced: bool = False
    """Whoever asks says that nobody writes to it now; that is checked (TAKEOVER-WAITS)."""
    transition_ms: int = TRANSITION_MS
    """How long clients may have the old view of a topic with data; not waited for if it is quiesced."""
    ordered_delivery: bool = True
    """The value of enable.ordered.delivery."""
    janitor: bool = False
    """Take old values of keys out of partitions that they have left; compacted topics need it (KIP-253 9)."""
    share: Annotated[SharePolicy, Field(exclude_if=is_default)] = DEFAULT
    """What share groups are promised."""
    kind: Literal["manage", "manage delivering"] = "manage"
    """A kind of its own, so that a controller of a version without TAKEOVER-SHARES does not take it for the other."""

    @property
    def delivers(self) -> bool:
        """Whether nothing that is written during the takeover waits (TAKEOVER-SHARES)."""
        return self.kind == "manage delivering"


@dataclass(frozen=True, slots=True)
class Resize:
    """Let a managed topic have so many partitions (undeleted_partition_count)."""

    topic: str
    partitions: int
    kind: Literal["resize"] = "resize"


@dataclass(frozen=True, slots=True)
class Unmanage:
    """Let a topic be an ordinary one again, with the partitions it has."""

    topic: str
    kind: Literal["unmanage"] = "unmanage"


@dataclass(frozen=True, slots=True)
class OrderDelivery:
    """Set enable.ordered.delivery of a managed topic."""

    topic: str
    ordered: bool
    kind: Literal["order delivery"] = "order delivery"


@dataclass(frozen=True, slots=True)
class SetJanitor:
    """Have old values of keys taken out of partitions that they have left, or not (KIP-253 9)."""

    topic: str
    on: bool
    kind: Literal["set janitor"] = "set janitor"


@dataclass(frozen=True, slots=True)
class SetShare:
    """Set what share groups are promised of a managed topic; None: as it is."""

    topic: str
    order: ShareOrder | None = None
    poison: SharePoison | None = None
    kind: Literal["set share"] = "set share"

    def changed(self, policy: SharePolicy) -> SharePolicy:
        """Returns what is promised then."""
        return SharePolicy(self.order or policy.order, self.poison or policy.poison)


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """Do not wait for these groups while a topic is taken over (TAKEOVER-WAITS)."""

    topic: str
    groups: tuple[str, ...]
    kind: Literal["leave groups out"] = "leave groups out"


@dataclass(frozen=True, slots=True)
class RaiseFloors:
    """Let readers find nothing more below these offsets (DeleteRecords, OWN-FLOOR)."""

    topic: str
    floors: Mapping[int, int]
    """By virtual partition, virtual offsets."""
    kind: Literal["raise floors"] = "raise floors"


@dataclass(frozen=True, slots=True)
class Delete:
    """A managed topic is being deleted: its face and its layout go as well."""

    topic: str
    kind: Literal["delete"] = "delete"


@dataclass(frozen=True, slots=True)
class LookAgain:
    """A topic may have been deleted by somebody who went round Kordon: let its layout go if that is so (SAME-TOPIC)."""

    topic: str
    kind: Literal["look again"] = "look again"


@dataclass(frozen=True, slots=True)
class AllowTransactions:
    """Let a managed topic have transactions, for good."""

    topic: str
    kind: Literal["allow transactions"] = "allow transactions"


Wish = (
    Manage
    | Resize
    | Unmanage
    | OrderDelivery
    | SetJanitor
    | SetShare
    | LeaveOut
    | RaiseFloors
    | Delete
    | LookAgain
    | AllowTransactions
)
