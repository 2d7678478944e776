"""A proxy's membership in the proxies' own Kafka group.

    joining ──JoinGroup, SyncGroup──> belonging ─┬─REBALANCE_IN_PROGRESS──────> joining, under the same member id
                                                 ├─ILLEGAL_GENERATION──> lost ─> joining, under the same member id
                                                 └─UNKNOWN_MEMBER_ID───> lost ─> joining, as a new member

The group's generations are the memberships that the controller works with, its leader is the controller. Protocol type
`kordon` keeps it apart from consumers' groups; no offsets but those of the lease are in it.
"""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

import structlog

from kordon.codecs.error_codes import Code
from kordon.codecs.shown_text import cut
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.group import GROUP, About, GroupCoordinator, GroupMember, GroupRefused, Joined
from kordon.proxy.member.lease import LEASE_SECONDS, Lease, Renewer
from kordon.proxy.ordering.presence import sealed
from kordon.proxy.own_topics.layouts_topic import LAYOUTS_TOPIC
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.runtime.tasks import Tasks

log = structlog.get_logger(__name__)
told = client_log(__name__)

SESSION_MS: Final = 10_000
HEARTBEAT_SECONDS: Final = 1.0
_LEAVE_SECONDS: Final = 2.0
_FIRST_RETRY_SECONDS: Final = 0.2
_LAST_RETRY_SECONDS: Final = 3.0
_MOST_SHOWN: Final = 5
_ALIENS_CURE: Final = "let no other principal read this group at the brokers: docs/security.md#kordons-own-topics"
_STILL_A_MEMBER: Final = frozenset({Code.REBALANCE_IN_PROGRESS})


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of the group."""

    number: int
    member_id: str
    """The member id of this proxy."""
    leader_id: str
    members: tuple[GroupMember, ...]
    """The members that are proxies."""
    aliens: int = 0
    """The number of members that are not proxies. Only the leader knows it."""

    @property
    def leads(self) -> bool:
        """Whether this proxy is the leader, and so the controller."""
        return self.member_id == self.leader_id

    @property
    def longest_lease_seconds(self) -> float:
        """The most seconds for which a missing member may serve, if members are told different times."""
        return max((member.lease_ms for member in self.members), default=0) / 1000


def new_incarnation() -> str:
    """Returns a name for a worker from its start to its end."""
    return uuid.uuid4().hex


class MembershipEvents(Protocol):
    """Hears what becomes of a membership."""

    def on_generation(self, generation: Generation) -> None:
        """This proxy has joined a generation."""
        ...

    def on_renewed(self, sent: float) -> None:
        """The lease was renewed by what was sent at a time on the clock of leases."""
        ...

    def on_lost(self) -> None:
        """The group continues without this proxy."""
        ...


class Membership:
    """Joins the group, and joins again, until it is told to stop.

    Args:
        about: What the other proxies are told about this one.
        position: Returns the offset up to which this proxy has read the layouts.
        session_ms: The milliseconds without heartbeats after which a member is removed. Brokers take 6000 and more by
            default.
        topic: The topic of the layouts. It has to exist.

    Attributes:
        lease: The lease by which this proxy serves managed topics.
        word: The word that proves that the message of its end is from this proxy. It is secret until then.
    """

    def __init__(
        self,
        brokers: Brokers,
        about: About,
        position: Callable[[], int],
        *,
        group: str = GROUP,
        session_ms: int = SESSION_MS,
        lease_seconds: float = LEASE_SECONDS,
        topic: str = LAYOUTS_TOPIC,
    ) -> None:
        self.lease = Lease(lease_seconds, self._on_renewed)
        self._events: MembershipEvents | None = None
        self.word = secrets.token_hex(16)
        self._about = replace(about, lease_ms=round(lease_seconds * 1000), seal=sealed(self.word))
        self._session_ms = session_ms
        self._leaving = GroupCoordinator(brokers, "leaving the group", group)
        self._coordinator = GroupCoordinator(brokers, "group", group)
        committing = GroupCoordinator(brokers, "lease", group)
        self._renewer = Renewer(self.lease, committing, about.incarnation, position, topic)
        self._tasks = Tasks()

    @property
    def incarnation(self) -> str:
        """The name of this worker since its start."""
        return self._about.incarnation

    @property
    def is_known(self) -> bool:
        """Whether the coordinator may count this proxy among the members, be it that no generation has it yet."""
        return bool(self._coordinator.member_id)

    async def confirm(self) -> bool:
        """Tells whether the generation that was told last is still the present one, proven by a replicated commit.

        Returns:
            False is also the answer while the coordinator does not answer.
        """
        try:
            return await self._renewer.confirm()
        except UpstreamUnavailable:
            return False

    async def run(self, events: MembershipEvents) -> None:
        """Belongs to the group until `stop`, and tells `events` of it; waits for brokers that are away."""
        self._events = events
        both = (
            self._tasks.keep(partial(self._belong, events), name="belong to the proxies' group"),
            self._tasks.keep(self._renewer.run, name="renew the lease"),
        )
        try:
            await asyncio.wait(both)
        finally:
            await self._tasks.stop()
            self._coordinator.close()
            self._renewer.close()

    async def stop(self) -> None:
        """Leaves the group; the lease that is left runs out by itself."""
        await self._tasks.stop()
        # `run` closes its own connections by now
        self._leaving.member_id, self._coordinator.member_id = self._coordinator.member_id, ""
        if self._leaving.member_id:
            with suppress(UpstreamUnavailable, TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await self._leaving.leave()
        self._leaving.close()

    async def _belong(self, events: MembershipEvents) -> None:
        wait = _FIRST_RETRY_SECONDS
        while True:
            try:
                joined = await self._join(events)
                wait = _FIRST_RETRY_SECONDS
                await self._beat(joined)
            except GroupRefused as refusal:
                if refusal.code in _STILL_A_MEMBER:
                    continue
                self._lose(refusal)
                events.on_lost()
            except UpstreamUnavailable as error:
                log.warning("group_unreachable", error=str(error), retry_seconds=wait)
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LAST_RETRY_SECONDS)

    async def _join(self, events: MembershipEvents) -> Joined:
        joined = await self._coordinator.join(self._about, self._session_ms)
        members = await self._coordinator.sync(joined)
        self._renewer.joined(joined)
        generation = Generation(joined.generation, joined.member_id, joined.leader_id, members, len(joined.aliens))
        if joined.aliens:
            shown = [cut(each) for each in joined.aliens[:_MOST_SHOWN]]
            told.error("alien_member", members=shown, count=len(joined.aliens), cure=_ALIENS_CURE)
        log.info("group_joined", generation=generation.number, members=len(members), leads=generation.leads)
        if len({member.lease_ms for member in members}) > 1:
            cure = "set ordering.lease_ms to the same on all proxies"
            log.warning("leases_differ", lease_ms={member.host: member.lease_ms for member in members}, cure=cure)
        events.on_generation(generation)
        return joined

    async def _beat(self, joined: Joined) -> None:
        """Says each second that this proxy is there, until the coordinator says that the generation ends."""
        deadline = loop_time() + self._session_ms / 1000
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                await self._coordinator.beat(joined)
                deadline = loop_time() + self._session_ms / 1000
            except UpstreamUnavailable:
                if loop_time() > deadline:
                    raise

    def _lose(self, refusal: GroupRefused) -> None:
        log.warning("group_lost", error=str(refusal))
        if refusal.code == Code.UNKNOWN_MEMBER_ID:  # else the group would wait for the member that it still knows
            self._coordinator.member_id = ""
        self._renewer.joined(None)

    def _on_renewed(self, sent: float) -> None:
        if self._events is not None:
            self._events.on_renewed(sent)


def loop_time() -> float:
    """Returns the event loop's seconds."""
    return asyncio.get_running_loop().time()
