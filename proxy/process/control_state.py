"""The control of managed topics as one worker sees it at one moment: a value for people to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kordon.proxy.member.membership import Generation
from kordon.proxy.ordering.changes import Change
from kordon.proxy.ordering.records import FenceRecord, FindingRecord
from kordon.proxy.ordering.wishes import Wish
from kordon.proxy.runtime.clock import clock

if TYPE_CHECKING:
    from kordon.proxy.member.keeper import Keeper


@dataclass(frozen=True, kw_only=True)
class ControlState:
    """What decides whether managed topics are served here, and what is under way.

    Attributes:
        incarnation: Of this worker since its start.
        generation: The proxies' group as this worker has joined it; None before it has.
        lease_seconds_left: For how long managed topics may be served if nobody confirms this worker any more; 0: not.
        serves: Whether they are served now: the lease lives (LIVE-LEASE), and the layouts were read after joining
            (READ-BEFORE-SERVE).
        position: Up to where the layouts topic has been read.
        fences: The fences that stand, by topic.
        wishes: What is wished and has not come to an end, by the wish's id.
        changes: The controller's procedures by topic; None where this worker is not the controller.
        now: Seconds on the clock of leases, by which `changes` count.
        findings: What was found wrong last, by topic.
        alone_from: On the controller, from when on nobody serves but the members; changes wait for it.
        lost: Why the layouts cannot be followed any more; empty: they can.
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
    findings: Mapping[str, FindingRecord] = field(default_factory=dict[str, FindingRecord])
    lost: str = ""
    alone_from: float = 0.0

    @property
    def leads(self) -> bool:
        """Whether this worker is the controller by the generation that it knows."""
        return self.generation is not None and self.generation.leads

    @property
    def members(self) -> Mapping[str, str]:
        """The hosts of the generation's members, by incarnation."""
        return {each.incarnation: each.host for each in self.generation.members} if self.generation else {}


def state_of(keeper: Keeper) -> ControlState:
    """Takes a look at a worker's control."""
    now = clock()
    controller = keeper.leading.controller if keeper.leading is not None else None
    return ControlState(
        incarnation=keeper.member.incarnation,
        generation=keeper.generation,
        lease_seconds_left=max(keeper.member.lease_expires - now, 0.0),
        serves=keeper.may_serve(),
        position=keeper.position,
        fences=dict(keeper.member.fences),
        wishes=dict(keeper.wishes),
        changes=dict(controller.changes) if controller is not None else None,
        now=now,
        findings={**keeper.findings.by_topic, **keeper.findings.unserved},
        lost=keeper.lost,
        alone_from=controller.alone_from if controller is not None else 0.0,
    )
