"""The control of managed topics as one worker sees it at one moment: a value for people to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from kordon.proxy.member.membership import Generation
from kordon.proxy.ordering.changes import Change
from kordon.proxy.ordering.records import BehindRecord, FenceRecord, FindingRecord
from kordon.proxy.ordering.wishes import Wish
from kordon.proxy.runtime.clock import clock

if TYPE_CHECKING:
    from kordon.proxy.member.layout_member import LayoutMember


@dataclass(frozen=True, kw_only=True)
class ControlState:
    """The facts that decide whether managed topics are served here, and what is under way.

    Attributes:
        incarnation: The name of this worker since its start.
        generation: The generation of the proxies' group that this worker has joined; None: it has joined none yet.
        lease_seconds_left: The seconds for which managed topics may be served if the lease is not renewed; 0: they may
            not.
        serves: Whether managed topics are served now: the lease lives (LIVE-LEASE), and the layouts were read after
            joining (READ-BEFORE-SERVE).
        position: The offset up to which the layouts topic has been read.
        fences: The fences that stand, by topic.
        wishes: The open wishes, by their ids.
        changes: The controller's procedures by topic; None where this worker is not the controller.
        now: The present time in seconds of the clock of leases, by which `changes` count.
        findings: The findings about topics, by topic and in the order in which they were made.
        alone_from: On the controller, the time from which on only members serve. Changes wait for it.
        wished_since: On the controller, the time since which a wish for a topic is open, by topic.
        awaited: The most seconds for which each missing proxy may still serve, by its host. An empty host stands for
            proxies that this worker has never known.
        behind: The distance of groups from the cuts of takeovers, by topic.
        lost: The reason why the layouts can no longer be followed; empty: they can.
    """

    incarnation: str
    generation: Generation | None
    lease_seconds_left: float
    serves: bool
    position: int
    fences: Mapping[str, FenceRecord]
    wishes: Mapping[str, Wish]
    changes: Mapping[str, Change] | None
    now: float
    findings: Sequence[FindingRecord] = ()
    lost: str = ""
    alone_from: float = 0.0
    wished_since: Mapping[str, float] = field(default_factory=dict[str, float])
    awaited: Mapping[str, float] = field(default_factory=dict[str, float])
    behind: Mapping[str, BehindRecord] = field(default_factory=dict[str, BehindRecord])

    @property
    def leads(self) -> bool:
        """Whether this worker is the controller by the generation that it knows."""
        return self.generation is not None and self.generation.leads

    @property
    def members(self) -> Mapping[str, str]:
        """The hosts of the generation's members, by incarnation."""
        return {each.incarnation: each.host for each in self.generation.members} if self.generation else {}

    @property
    def missing_lease_seconds(self) -> float:
        """The seconds for which a missing proxy may still serve; 0: unknown, as after this one has joined."""
        left = self.alone_from - self.now
        return left if 0 < left < inf else 0.0


def state_of(layout_member: LayoutMember) -> ControlState:
    """Takes a look at a worker's control."""
    now = clock()
    role, member = layout_member.leadership.role, layout_member.state.member
    controller = role.controller if role is not None else None
    return ControlState(
        incarnation=member.incarnation,
        generation=layout_member.lease.generation,
        lease_seconds_left=max(member.lease_expires - now, 0.0),
        serves=layout_member.may_serve(),
        position=layout_member.position,
        fences=dict(member.fences),
        wishes=dict(layout_member.state.wishes),
        changes=dict(controller.changes) if controller is not None else None,
        now=now,
        findings=layout_member.findings.standing(),
        lost=layout_member.lost,
        alone_from=controller.alone_from if controller is not None else 0.0,
        wished_since=dict(role.wished_since) if role is not None and controller is not None else {},
        awaited=layout_member.state.presence.awaited(now),
        behind=dict(layout_member.state.behind),
    )
