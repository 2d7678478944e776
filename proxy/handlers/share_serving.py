"""Gives members of share groups records of managed topics, and takes what they make of them (KIP-932).

Decisions and writing are those of `own_topics/share_partition.py`. What is done here: the group's log is opened, its
config asked for, records are read ahead, and a request waits until there is something for it.

A worker that cannot do its part says NOT_LEADER_OR_FOLLOWER, which clients take for a moment's trouble.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kordon.codecs.bodies import FetchResponsePartition
from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.decisions.share_groups import Sharer, share_acknowledged, share_given
from kordon.proxy.handlers.list_offsets import ListOffsets, OffsetWish
from kordon.proxy.handlers.share_ahead import AheadRecords, AllAhead
from kordon.proxy.handlers.share_sessions import ShareSession, VirtualPartition
from kordon.proxy.kafka.share_group_configs import ShareGroupConfig, ShareGroupConfigs
from kordon.proxy.ordering.claims import PlaceKey
from kordon.proxy.ordering.lookups import EARLIEST, LATEST
from kordon.proxy.ordering.share.acknowledging import AcknowledgementBatch
from kordon.proxy.ordering.share.acquiring import GivenRecord, Terms, Wish
from kordon.proxy.own_topics.compacted_topic import OwnTopicUnfit
from kordon.proxy.own_topics.share_groups import ShareGroups
from kordon.proxy.own_topics.share_log import ShareLog
from kordon.proxy.own_topics.share_partition import Acquired, SharePartition
from kordon.proxy.reads.fetch_rows import READ_COMMITTED
from kordon.proxy.reads.share_reads import ShareReads
from kordon.proxy.runtime.clock import clock, now_ms
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics

log = client_log(__name__)

_SLICE_SECONDS: Final = 1.0
"""For which a request waits at once: locks that expire ring no bell."""
_OTHERS_SECONDS: Final = 0.1
"""For which it waits at most where the session has partitions that the broker has."""
_SPARE_SECONDS: Final = 0.25
"""Before records have to be on their way: what is not read by then holds up no other partition of the request."""
_PASSED_OFFSETS: Final = 10_000
"""Without a record: the log says of so many at once that they are done."""
_UNAVAILABLE: Final = Code.NOT_LEADER_OR_FOLLOWER


class ShareLimits(NamedTuple):
    """How much a request asks for, and how long it waits for that."""

    max_wait_ms: int
    max_records: int
    max_bytes: int

    def within(self, most_bytes: int | None) -> ShareLimits:
        """Returns the same for a client that takes so many bytes a second: its locks run while it waits (CLIENT-QUOTA).

        A client that got more would be kept waiting, and could not acknowledge meanwhile.
        """
        return self if most_bytes is None else self._replace(max_bytes=min(self.max_bytes, most_bytes))


@dataclass(slots=True)
class ServedPartition:
    """One partition of a request."""

    which: VirtualPartition
    topic: ManagedTopic
    partition: SharePartition
    ahead: AheadRecords
    error: int = Code.NONE
    message: str | None = None
    records: list[bytes] = field(default_factory=list[bytes])
    given: Sequence[GivenRecord] = ()
    send_before: float = 0.0
    """As `Acquired.send_before`, of what is given."""


class OpenedGroup(NamedTuple):
    """What is known of a group."""

    log: ShareLog
    config: ShareGroupConfig
    terms: Terms


class ShareServing:
    """What serves share groups in one worker.

    Args:
        reads: Read records ahead.
        offsets: Say where partitions begin and end.
        journal: Where it is recorded what members were given and have said.
    """

    def __init__(
        self,
        topics: ManagedTopics,
        groups: ShareGroups,
        configs: ShareGroupConfigs,
        reads: ShareReads,
        offsets: ListOffsets,
        *,
        journal: Journal,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._configs = configs
        self._reads = reads
        self._offsets = offsets
        self._journal = journal
        self._ahead = AllAhead()
        self._tasks = reads.tasks

    async def opened(self, session: ShareSession) -> OpenedGroup | Code:
        """Returns what is known of a session's group, or with which error its partitions are refused."""
        group_id = session.group_id
        try:
            opened, config = await asyncio.gather(self._groups.of_group(group_id), self._configs.of(group_id))
        except OwnTopicUnfit as error:
            log.warning("share_group_not_served", group=group_id, problem=str(error))
            return Code.UNKNOWN_SERVER_ERROR
        except UpstreamUnavailable as error:
            log.warning("share_group_unavailable", group=group_id, error=str(error))
            return _UNAVAILABLE
        lock_seconds = (session.lock_ms or config.lock_ms) / 1000
        terms = Terms(lock_seconds, config.most_tries, config.most_in_hand)
        return OpenedGroup(opened, config, terms)

    async def acknowledge(
        self,
        session: ShareSession,
        group: OpenedGroup,
        which: VirtualPartition,
        batches: Sequence[AcknowledgementBatch],
        *,
        may_renew: bool,
    ) -> Code:
        """Takes what a member makes of records of one partition."""
        partition = group.log.partition(_place(session, which))
        try:
            if may_renew and not group.config.may_renew:
                return Code.INVALID_REQUEST
            code = await partition.acknowledge(session.name, batches, group.terms, may_renew=may_renew)
        except UpstreamUnavailable as error:
            log.warning("acknowledgements_not_written", group=session.group_id, error=str(error))
            return _UNAVAILABLE
        topic = self._topics.served_by_id(which.topic_id)
        if self._journal.is_on and code is Code.NONE and topic is not None:
            self._journal.note(share_acknowledged(_sharer(session, partition, topic.name), batches))
        return code

    async def give(
        self, session: ShareSession, group: OpenedGroup, wanted: Iterable[VirtualPartition], limits: ShareLimits
    ) -> list[ServedPartition]:
        """Gives a member records as soon as there are some; returns partitions of which there is something to say."""
        begun = await asyncio.gather(*(self._begun(session, group, which) for which in wanted))
        served = [each for each in begun if each is not None]
        loop = asyncio.get_running_loop()
        seconds = limits.max_wait_ms / 1000
        deadline = loop.time() + (min(seconds, _OTHERS_SECONDS) if session.has_others else seconds)
        while True:
            rung = [each.partition.free.rung for each in served]
            if await self._acquired(session, group, served, limits) or any(each.error for each in served):
                break
            if rung != [each.partition.free.rung for each in served]:
                continue
            left = deadline - loop.time()
            if not await self._look(group, served, max(0.0, left)) and left <= 0:
                break
        return [each for each in served if each.error or each.given]

    def give_back(self, session: ShareSession) -> None:
        """Has what a member has in hand given to others: its session has ended."""
        held, session.held = session.held, set()
        if held:
            self._tasks.start(self._give_back(session, held), name="give back what a share session had")

    async def _give_back(self, session: ShareSession, held: Iterable[VirtualPartition]) -> None:
        group = await self.opened(session)
        if isinstance(group, Code):
            return
        for which in held:
            try:
                await group.log.partition(_place(session, which)).release(session.name, group.terms)
            except UpstreamUnavailable as error:
                log.warning("locks_not_released", group=session.group_id, error=str(error))

    async def _begun(
        self, session: ShareSession, group: OpenedGroup, which: VirtualPartition
    ) -> ServedPartition | None:
        """Returns a partition when it is known where the group stands in it; None: its topic is gone."""
        topic = self._topics.served_by_id(which.topic_id)
        if topic is None:
            return None
        place = _place(session, which)
        error, message = Code.NONE, None
        try:
            if group.log.state_of(place).done.stable < 0:
                error, message = await self._begin(group, place, topic.name, which.number)
        except UpstreamUnavailable as problem:
            error, message = _UNAVAILABLE, str(problem)
        partition = group.log.partition(place)
        ahead = self._ahead.of(partition)
        ahead.follow(topic.layout.share)
        return ServedPartition(which, topic, partition, ahead, error, message)

    async def _begin(self, group: OpenedGroup, place: PlaceKey, topic: str, number: int) -> tuple[Code, str | None]:
        """Has a group begin where its config says; returns why it does not."""
        if not await self._configs.is_there(place.group_id):
            return Code.UNKNOWN_SERVER_ERROR, f"there is no share group {place.group_id}"
        config = group.config
        is_older = not group.log.state_of(place).incarnation and group.log.opening.begins_at_earliest(place.group_id)
        time = EARLIEST if is_older else config.begins_at(now_ms())
        offset = await self._offset(topic, number, time, is_committed=config.is_committed)
        if offset is None:
            return _UNAVAILABLE, "it is not known now where the partition begins or ends"
        await group.log.partition(place).begin(offset)
        return Code.NONE, None

    async def _offset(self, topic: str, number: int, time: int, *, is_committed: bool = False) -> int | None:
        """Returns the offset of a time, or the partition's end if there is none; None: it is not known now."""
        fields = {"isolation_level": READ_COMMITTED if is_committed else 0}
        (found,) = await self._offsets.find([OffsetWish(topic, number, time)], fields)
        if not found.error and found.offset < 0 and time != LATEST:
            return await self._offset(topic, number, LATEST, is_committed=is_committed)
        return found.offset if not found.error and found.offset >= 0 else None

    async def _acquired(
        self, session: ShareSession, group: OpenedGroup, served: Sequence[ServedPartition], limits: ShareLimits
    ) -> bool:
        """Gives a member what is there; returns whether that is anything."""
        open_ = [each for each in served if not each.error and _has_something(each.partition)]
        if not open_:
            return False
        most, size = -(-limits.max_records // len(open_)), limits.max_bytes // len(open_)
        left, tries = limits.max_records, list[Awaitable[None]]()
        for each in open_:
            wish = Wish(session.name, min(most, left, each.ahead.fitting(size)))
            left -= wish.most
            if wish.most > 0:
                session.held.add(each.which)
                tries.append(self._acquire(session, group, each, wish))
        await asyncio.gather(*tries)
        for each in open_:
            if each.given:
                self._give_in_time(session, each)
        return any(each.given for each in open_)

    def _give_in_time(self, session: ShareSession, served: ServedPartition) -> None:
        """Takes back what was locked too long ago, be it that another partition has taken so long (KEY-IN-HAND)."""
        if clock() > served.send_before:
            served.partition.not_sent(session.name, served.given)
            served.records, served.given = [], ()
        elif self._journal.is_on:
            sharer = _sharer(session, served.partition, served.topic.name)
            self._journal.note(share_given(sharer, served.given))

    async def _acquire(self, session: ShareSession, group: OpenedGroup, served: ServedPartition, wish: Wish) -> None:
        try:
            terms = group.terms._replace(archives=served.topic.layout.share.archives)
            acquired = await served.partition.acquire(wish, terms)
        except UpstreamUnavailable as error:
            served.error, served.message = _UNAVAILABLE, str(error)
            return
        if acquired.records:
            served.partition.free.wake()
            await self._fill(session, group, served, acquired)

    async def _fill(
        self, session: ShareSession, group: OpenedGroup, served: ServedPartition, acquired: Acquired
    ) -> None:
        """Adds the bytes of records. What cannot be read is given again when its lock has expired."""
        pieces, left = served.ahead.pick({each.offset for each in acquired.records})
        where = (served.topic.name, served.which.number)
        try:
            while left:
                first = min(left)
                async with asyncio.timeout(acquired.send_before - _SPARE_SECONDS - clock()):
                    rows = await self._reads.read_ahead(
                        {where: first}, wait_ms=0, is_committed=group.config.is_committed
                    )
                more, still = self._reads.pick(rows[where], first, left)
                if still == left:
                    break
                pieces, left = [*pieces, *more], still
        except TimeoutError:
            served.partition.not_sent(session.name, [each for each in acquired.records if each.offset in left])
        served.records = sorted(pieces, key=_base_offset)
        served.given = [each for each in acquired.records if each.offset not in left]
        served.send_before = acquired.send_before

    async def _look(self, group: OpenedGroup, served: Sequence[ServedPartition], seconds: float) -> bool:
        """Reads on, and waits until there is something new; returns whether there may be."""
        by_place = {(each.topic.name, each.which.number): each for each in served}
        offsets = {place: at for place, each in by_place.items() if (at := each.ahead.look_from()) is not None}
        seconds = min(seconds, _SLICE_SECONDS)
        if not offsets:
            await self._heard(served, None, seconds)
            return seconds > 0
        ahead = self._reads.read_ahead(offsets, wait_ms=int(seconds * 1000), is_committed=group.config.is_committed)
        reading = self._tasks.start(ahead, name="read ahead for a share group")
        if await self._heard(served, reading, None):
            return True
        is_new = False
        for place, row in reading.result().items():
            is_new = await self._take_in(by_place[place], offsets[place], row) or is_new
        return is_new

    async def _heard(
        self, served: Sequence[ServedPartition], reading: asyncio.Task[object] | None, seconds: float | None
    ) -> bool:
        """Waits until something was read, or is free again; returns whether it is the latter, or time is over."""
        bells = [(each.partition.free, each.partition.free.wait()) for each in served]
        waits: list[asyncio.Future[Any]] = [each for _, each in bells]
        if reading is not None:
            waits.append(reading)
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            for bell, waiter in bells:
                if waiter.done():
                    bell.wake()  # for somebody else
            raise
        finally:
            for bell, waiter in bells:
                bell.leave(waiter)
            if reading is not None and not reading.done():
                reading.cancel()
        return reading is None or not reading.done()

    async def _take_in(self, served: ServedPartition, begin: int, row: FetchResponsePartition) -> bool:
        """Takes in what was read of a partition; returns whether there may be something new."""
        if row.error_code == Code.OFFSET_OUT_OF_RANGE:
            return await self._pass_over(served, begin)
        end = served.partition.window.end
        served.ahead.take_in(begin, row, self._reads)
        if served.ahead.error == Code.CORRUPT_MESSAGE:
            looked_to = served.partition.window.end
            served.message = f"a batch from offset {looked_to} on cannot be opened: reset the group past it"
        served.error = served.ahead.error
        return served.partition.window.end != end

    async def _pass_over(self, served: ServedPartition, begin: int) -> bool:
        """Moves a group over records that were deleted; returns whether it was moved."""
        start = await self._offset(served.topic.name, served.which.number, EARLIEST)
        if start is None or begin >= start:
            served.error = Code.UNKNOWN_SERVER_ERROR if start is not None else _UNAVAILABLE
            served.message = f"the partition ends before offset {begin}, where the group stands: reset the group"
            return False
        try:
            await served.partition.pass_over(start)
        except UpstreamUnavailable as error:
            served.error, served.message = _UNAVAILABLE, str(error)
        return True


def _has_something(partition: SharePartition) -> bool:
    """Whether there are records ahead, or very many offsets without one: who begins to read would look at all these."""
    window = partition.window
    return bool(len(window)) or window.end - window.begin >= _PASSED_OFFSETS


def _base_offset(batch: bytes) -> bytes:
    return batch[:8]


def _sharer(session: ShareSession, partition: SharePartition, topic: str) -> Sharer:
    incarnation = partition.state.incarnation
    return Sharer(session.client, session.member_id, session.name, partition.place, topic, incarnation)


def _place(session: ShareSession, which: VirtualPartition) -> PlaceKey:
    return PlaceKey(session.group_id, which.topic_id, which.number)
