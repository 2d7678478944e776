"""A worker's part in the control of managed topics: follows the layouts, holds a lease, keeps fences, leads if told to.

Until somebody wants a topic managed there is no layouts topic; then nothing of this runs but a look for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import structlog

from kordon.proxy.controller.fence_times import FenceTimes
from kordon.proxy.controller.forged_fences import FORGED_CURE, StandingFence
from kordon.proxy.controller.janitor import Tools
from kordon.proxy.controller.leading import Cleaning, Leading
from kordon.proxy.controller.takeovers import Takeovers
from kordon.proxy.controller.topic_janitor import Hands
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.journal import Journal, NoJournal
from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.kafka.own_log import LogLost
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.member.findings import Findings
from kordon.proxy.member.following import RETRY_SECONDS, Following
from kordon.proxy.member.member_minutes import MemberMinutes
from kordon.proxy.member.membership import Generation, Membership
from kordon.proxy.member.performing import Performing
from kordon.proxy.member.served import NothingPassed, PassedRequests, ServedReads, ServedWrites
from kordon.proxy.ordering.images import ImageParts
from kordon.proxy.ordering.leftovers import GONE, Leftovers
from kordon.proxy.ordering.member import Forget, Member
from kordon.proxy.ordering.presence import Presence
from kordon.proxy.ordering.records import (
    AckRecord,
    FenceRecord,
    FindingRecord,
    GoneRecord,
    JanitorRecord,
    OutcomeRecord,
    TopicRecord,
    Unreadable,
    Value,
    WishRecord,
    dump,
    load,
    topic_of,
)
from kordon.proxy.ordering.wishes import Resize, Wish
from kordon.proxy.own_topics.layouts_log import LayoutsLog
from kordon.proxy.own_topics.layouts_writer import Fenced, LayoutsWriter, Offsets, Records
from kordon.proxy.own_topics.wishing import WISH_SECONDS, Wishing
from kordon.proxy.runtime.clock import clock
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import ManagedTopics

log = structlog.get_logger(__name__)
told = client_log(__name__)
"""For events that anybody who can write to the layouts can cause."""

_LEAD_AGAIN_SECONDS: Final = 0.5
_LEAVE_SECONDS: Final = 3.0
"""How long a worker that ends tries to say so; if it cannot, others wait for its lease."""


class Forged(Exception):  # noqa: N818 - what a record is
    """Raised for a record that is not by whom it says; nothing comes of it."""


class Keeper:
    """Keeps a worker's managed topics current.

    Args:
        topics: What is kept.
        layouts: The layouts topic.
        membership: The proxies' group; tells `on_generation` and `on_lost` of this object.
        admin: Asks the cluster.
        writers: Write for clients.
        readers: Read for clients.
        make_writer: Makes a writer for the controller's role.
        admit: Sees that a topic can be managed as far as rights go.
        tools: For the janitors of compacted topics.
        journal: Where decisions are recorded; None: nowhere.
    """

    def __init__(
        self,
        *,
        topics: ManagedTopics,
        layouts: LayoutsLog,
        membership: Membership,
        admin: TopicsAdmin,
        writers: ServedWrites,
        readers: ServedReads,
        make_writer: Callable[[], LayoutsWriter],
        admit: Callable[[str], Awaitable[None]],
        tools: Tools,
        journal: Journal | None = None,
    ) -> None:
        self._admit = admit
        self._tools = tools
        self._journal = journal or NoJournal()
        self._minutes = MemberMinutes(self._journal)
        self._looked_to: dict[str, Mapping[int, int]] = {}
        """How far compacted topics were looked through, by topic and physical partition."""
        self.member = Member(membership.incarnation)
        self.leading: Leading | None = None
        """The controller's role, while it is this worker's."""
        self.passed: PassedRequests = NothingPassed()
        """The clients' connections."""
        self.times = FenceTimes()
        """How long fences last."""
        self.findings = Findings(topics, self.member, lambda: self.leading)
        self._topics = topics
        self._layouts = layouts
        self._membership = membership
        self._admin = admin
        self._writers = writers
        self._readers = readers
        self._make_writer = make_writer
        self._generation: Generation | None = None
        self._wishes: dict[str, Wish] = {}
        self._fences_read: dict[str, StandingFence] = {}
        self._presence = Presence()
        self._leftovers = Leftovers(
            {"outcome": 2 * WISH_SECONDS, "ack": 2 * WISH_SECONDS, GONE: 2 * membership.lease.seconds}
        )
        self._tasks = Tasks()
        self._lives = asyncio.Event()  # the lease
        self._catch_up_task: asyncio.Task[None] | None = None
        self._lead_task: asyncio.Task[None] | None = None
        self._following = Following(
            layouts, self._tasks, on_record=self.on_record, forget=self._forget, take_up=self._take_up
        )
        self.know = self._following.know
        """Returns when the layouts have been read to their end, or when there are none; it has to be started."""
        self._wishing = Wishing(layouts, admit)
        self.wish = self._wishing.wish
        """Wants something of the controller, and waits for what comes of it."""
        self._performing = Performing(
            topics=topics,
            member=self.member,
            layouts=layouts,
            writers=writers,
            readers=readers,
            passed=lambda: self.passed,
            leading=lambda: self.leading,
            minutes=self._minutes,
            times=self.times,
            tasks=self._tasks,
        )
        membership.on_generation = self.on_generation
        membership.on_lost = self.on_lost
        membership.lease.on_renewed = self._on_renewed

    def start(self) -> None:
        """Begins to follow the layouts, and to join the group as soon as there are any; until `leave`."""
        self._tasks.keep(self._follow, name="keep managed topics")
        self._tasks.keep(self._join, name="join the proxies' group")
        self._tasks.keep(self._watch_lease, name="watch the lease")

    async def leave(self, *, in_order: bool = True) -> None:
        """Ends; `in_order` if nothing of clients is under way to brokers, so that nobody waits for this lease."""
        await self._tasks.stop()  # nothing renews the lease from here on
        self.member.lease_expires = 0.0
        self.member.on_joined()
        self._minutes.lost(self._generation, self.position)
        if self._generation is None:
            return
        if in_order:
            await self._try_to_say_gone()
        await self._membership.stop()

    async def _try_to_say_gone(self) -> None:
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._say_gone()
        except (UpstreamUnavailable, LogLost, TimeoutError) as error:
            log.warning("left_unsaid", error=str(error) or "no answer in time", cost="others wait for a lease")

    async def _say_gone(self) -> None:
        """Tells the others that they need not wait for this worker's lease, once nothing that it sent can land."""
        for topic in filter(None, map(self._topics.served, self._topics.names)):
            await self._writers.drain(topic.name, frozenset(each.id.partition for each in topic.layout.segments))
        gone = GoneRecord(self.member.incarnation, self._membership.word)
        await self._layouts.append([NewRecord(f"gone/{gone.incarnation}", dump(gone))])

    async def _follow(self) -> None:
        await self._following.run()
        self.member.on_joined()  # nobody knows what holds: nothing is served any more
        self._stop_leading()
        await self._membership.stop()

    def _forget(self) -> None:
        """Forgets what was read; what is managed stays so, unserved, until all has been read again."""
        self.member.forget()
        self.findings.forget()
        for each in (self._leftovers, self._wishes, self._looked_to):
            each.clear()
        self._stop_leading()  # the controller begins from what the layouts say

    def _take_up(self, offsets: Mapping[str, int]) -> None:
        """Goes by what the layouts amount to that have been read again, where each key's last record has an offset."""
        for name in self._topics.names - self.member.topics.keys() - self.member.fences.keys():
            self._performing.perform(Forget(name), self.position)
        for key, command in self.member.standing():
            self._performing.perform(command, offsets[key])
        self.findings.judge_again()
        if self._generation is not None:
            self._catch_up(self.member.on_joined())
            self._lead_if_told(self._generation)

    @property
    def lost(self) -> str:
        """Why the layouts cannot be followed any more; only a restart helps. Empty: they can."""
        return self._following.lost

    @property
    def generation(self) -> Generation | None:
        """The proxies' group as it was joined last; None before."""
        return self._generation

    @property
    def wishes(self) -> Mapping[str, Wish]:
        """What is wished and has not come to an end, by the wish's id."""
        return self._wishes

    @property
    def position(self) -> int:
        """Up to where the layouts topic has been read."""
        return self._layouts.position

    def may_mark(self, topic: str, epoch: int, fence: str | None) -> bool:
        """Whether something of Kordon's own may be written to a topic now, wherever it is.

        Args:
            topic: Its name.
            epoch: Of the layout that must be in force.
            fence: The fence that may stand, as whoever holds it writes; None: none may.
        """
        record, standing = self.member.topics.get(topic), self.member.fences.get(topic)
        is_open = standing is None or standing.id == fence
        is_open = is_open and topic not in self._topics.unserved
        return self.may_serve() and is_open and record is not None and record.layout.epoch == epoch

    def may_serve(self) -> bool:
        """Whether managed topics are served now: the lease lives, the layouts are known."""
        return self.member.may_serve(clock())

    def on_generation(self, generation: Generation) -> None:
        """Joined a generation of the group."""
        self._generation = generation
        lease_seconds = max(generation.longest_lease_seconds, self._membership.lease.seconds)
        seals = {each.incarnation: each.seal for each in generation.members if each.seal}
        self._presence.joined(generation.number, self._members(), lease_seconds, clock(), seals)
        self._minutes.joined(generation, self.position)
        self._catch_up(self.member.on_joined())
        self._lead_if_told(generation)
        if self.leading is not None:
            self.leading.on_members()

    def _catch_up(self, reading: int) -> None:
        """Reads the layouts to their end as of now, which the member waits for (READ-BEFORE-SERVE)."""
        if self._catch_up_task is not None:
            self._catch_up_task.cancel()
        self._catch_up_task = self._tasks.keep(partial(self._read, reading), name="read the layouts to their end")

    def _lead_if_told(self, generation: Generation) -> None:
        if not generation.leads:
            self._stop_leading()
        elif self._lead_task is None:
            self._lead_task = self._tasks.keep(self._lead, name="lead")

    def _on_renewed(self, sent: float) -> None:
        if self.member.lease_expires <= clock():
            self._minutes.lost(self._generation, self.position)
        reading = self.member.on_renewed(sent, self._membership.lease.seconds, clock())
        self._minutes.alive(self._generation, self.position)
        self._lives.set()
        if reading is not None:
            self._catch_up(reading)

    def on_lost(self) -> None:
        """Not a member any more, for now; what was admitted under the lease stays admitted until it ends."""
        self._presence.lost()
        self._stop_leading()

    def _stop_leading(self) -> None:
        if self._lead_task is not None:
            self._lead_task.cancel()
            self._lead_task = None

    def on_record(self, record: Record) -> None:
        """Takes in a record of the layouts topic; one that cannot be read harms its own topic at most."""
        value = _read(record)
        if not isinstance(value, Unreadable):
            try:
                self._take(record, value)
            except Forged as error:
                self._on_forged(record.key, record.offset, str(error))
            except Exception as error:  # the outermost edge of a record: none may end the following of all others
                told.exception("layouts_record_failed", key=record.key, offset=record.offset)
                value = Unreadable(record.key, f"it cannot be applied: {error!r}", topic_of(record.key))
        if not isinstance(value, Unreadable):
            self._leftovers.on_record(record.key, clock(), is_tombstone=record.value is None)
        self.findings.on_record(record.key, value, record.offset)

    def _take(self, record: Record, value: Value | None) -> None:
        kind, _, rest = record.key.partition("/")
        match kind, value:
            case "wish", _:
                self._on_wish(rest, value.wish if isinstance(value, WishRecord) else None)
            case "outcome", OutcomeRecord():
                self._wishing.on_outcome(rest, value)
            case "ack", AckRecord(fence, incarnation, told):
                if self.leading is not None:
                    self.leading.on_ack(fence, incarnation, told, record.offset)
            case "outcome" | "ack", _:
                pass  # of others, or a tombstone: it is known by its age alone
            case "gone", GoneRecord() | None:
                self._on_gone(rest, value)
            case "janitor", _:
                self._looked_to[rest] = value.looked_to if isinstance(value, JanitorRecord) else {}
            case "finding", FindingRecord() | None:
                self.findings.on_finding(rest, value)
            case _:
                self._on_layout(record, value)

    def _on_gone(self, incarnation: str, gone: GoneRecord | None) -> None:
        if gone is None:
            self._presence.forgotten(incarnation)
            return
        if not self._presence.left(incarnation, gone.word):
            raise Forged(f"proxy {incarnation} has not said that it ends; its lease is waited for")
        if self.leading is not None:
            self.leading.on_members()

    def _on_layout(self, record: Record, value: Value | None) -> None:
        commands = self.member.on_record(record.key, value)
        if isinstance(value, FenceRecord):
            self._fences_read[value.topic] = StandingFence(record.offset, clock(), record.producer_id)
        if self._following.withholds(record):  # what it amounts to is taken up when all has been read again
            return
        for command in commands:
            self._performing.perform(command, record.offset)

    def _standing_fences(self) -> Mapping[str, StandingFence]:
        self._fences_read = {topic: each for topic, each in self._fences_read.items() if topic in self.member.fences}
        return self._fences_read

    def _on_forged(self, key: str, offset: int, error: str) -> None:
        told.error("forged_record", key=key, offset=offset, error=error, cure=FORGED_CURE)
        self.findings.count_forged(key)

    def _on_wish(self, wish_id: str, wish: Wish | None) -> None:
        if wish is None:
            self._wishes.pop(wish_id, None)
            return
        self._wishes[wish_id] = wish
        if isinstance(wish, Resize) and self.may_serve():
            self._tasks.start(self._get_ready(wish.topic), name=f"get ready to hold {wish.topic}")
        if self.leading is not None:
            self.leading.on_wish(wish_id, wish)

    def take_layout(self, records: Records, offsets: Offsets) -> None:
        """Takes in a layout that this worker's controller has written.

        Args:
            records: Of the change.
            offsets: Where they stand.
        """
        for key, command in self.member.on_own_layout(records):
            self._performing.perform(command, offsets[key])

    async def _get_ready(self, topic: str) -> None:
        """Dials, before clients wait for it, whom a fence asks: brokers may have closed what was idle for long."""
        await asyncio.gather(self._layouts.ready(), self._readers.ready(topic))

    async def _watch_lease(self) -> None:
        """Notes when the lease has ended; what is served is decided by the clock, not by this."""
        while True:
            await self._lives.wait()
            left = self.member.lease_expires - clock()
            if left > 0:
                await asyncio.sleep(left)
                continue
            self._lives.clear()
            self._minutes.lost(self._generation, self.position)

    async def _join(self) -> None:
        """Waits until there are layouts to keep; a cluster without managed topics gets no group."""
        while not self.lost:
            if await self._layouts_exist():
                await self._membership.run()
            await asyncio.sleep(RETRY_SECONDS)

    async def _layouts_exist(self) -> bool:
        try:
            return await self._layouts.exists()
        except UpstreamUnavailable:
            return False

    async def _read(self, reading: int) -> None:
        while not self.lost:
            if await self._following.reaches_end():
                if self.member.on_caught_up(reading) and self.may_serve():
                    self._writers.lease_renewed()
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _lead(self) -> None:
        while True:
            takeovers = Takeovers(self._admin, self._readers.nothing_between)
            hands = Hands(self._tools.pull, self._tools.writes, self.may_mark, self._tools.opener)
            self.leading = Leading(
                self._admin,
                self._make_writer(),
                self._members,
                self._membership.confirm,
                presence=self._presence,
                admit=self._admit,
                takeovers=takeovers,
                times=self.times,
                on_layout=self.take_layout,
                cleaning=Cleaning(hands, lambda: self._looked_to, self._tools.least_lag_ms),
                why_untouched=self.findings.unread.why_unserved,
                leftovers=self._leftovers,
                journal=self._journal,
                standing=self._standing_fences,
                on_forged=partial(self._on_forged, error="no controller has raised this fence; it is lifted"),
            )
            try:
                await self.leading.run(self._following.read_to_end, self.known, self._unfinished)
            except Fenced as error:
                # by the next one; or by a former one that woke late, then this one takes over again
                log.info("controller_fenced", error=str(error))
            except UpstreamUnavailable as error:
                log.warning("controller_interrupted", error=str(error))
            except Exception:  # the outermost edge of the role: whatever it is, somebody has to lead
                log.exception("controller_failed")
            finally:
                self.leading = None
            await asyncio.sleep(_LEAD_AGAIN_SECONDS)

    def _members(self) -> frozenset[str]:
        return frozenset(each.incarnation for each in self._generation.members) if self._generation else frozenset()

    def known(self) -> dict[str, tuple[TopicRecord, Mapping[int, ImageParts]]]:
        """Returns what the controller may go by: a topic of which records cannot be read is not touched."""
        known = self.member.topics.items()
        return {name: (record, self.member.images(name)) for name, record in known if name not in self.findings.unread}

    def _unfinished(self) -> tuple[Mapping[str, FenceRecord], Mapping[str, Wish]]:
        fences = {name: fence for name, fence in self.member.fences.items() if name not in self.findings.unread}
        return fences, self._wishes


def _read(record: Record) -> Value | Unreadable | None:
    """Reads a record; None: it is a tombstone, or can be passed over."""
    if record.fault:
        return Unreadable(record.key, record.fault, topic_of(record.key))
    return None if record.value is None else load(record.key, record.value)
