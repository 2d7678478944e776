"""Where share groups stand in managed topics, for those APIs that tell it or change it.

The group's coordinator is asked first, with faces in place of topics. It knows whether there is such a group, whether
it has members, and what the client may do; it does not know where the group stands. That the log of locks says, and
what the coordinator has accepted is written there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from kordon.codecs.bodies import DescribeShareGroupOffsetsResponsePartition
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import response
from kordon.codecs.row import Row
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.core.waiting import Answer
from kordon.proxy.handlers.api_handler import ApiHandler, Handled, HeldRequest, ServedRequest
from kordon.proxy.handlers.list_offsets import ListOffsets, OffsetWish
from kordon.proxy.ordering.claims import NO_OFFSET, Done, PlaceKey
from kordon.proxy.ordering.lookups import LATEST
from kordon.proxy.ordering.share.window import ShareWindow
from kordon.proxy.own_topics.compacted_topic import OwnTopicUnfit
from kordon.proxy.own_topics.share_groups import ShareGroups
from kordon.proxy.own_topics.share_log import ShareLog
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics, face_of, topic_of_face

log = client_log(__name__)

_TRIES: Final = 3
"""Two who have a group begin again at the same time cannot both have it."""
UNAVAILABLE: Final = Code.COORDINATOR_NOT_AVAILABLE


class ShareOffsets:
    """The offsets of all share groups, as one worker knows them.

    Args:
        offsets: Say where partitions end.
    """

    def __init__(self, groups: ShareGroups, offsets: ListOffsets) -> None:
        self._groups = groups
        self._offsets = offsets

    async def opened(self, group_id: str) -> ShareLog | None:
        """Returns the log of a group when all of it is read; None: that is not possible now."""
        try:
            found = await self._groups.of_group(group_id)
            await found.read_to_end()
        except (OwnTopicUnfit, UpstreamUnavailable) as error:
            log.warning("share_group_unavailable", group=group_id, error=str(error))
            return None
        return found

    async def tell(
        self,
        known: ShareLog,
        group_id: str,
        topic: ManagedTopic,
        rows: Sequence[DescribeShareGroupOffsetsResponsePartition],
    ) -> None:
        """Puts into rows of a topic where a group stands, and how many records it has still to do."""
        open_ = [row for row in rows if not row.error_code]
        found = await self._offsets.find([OffsetWish(topic.name, row.partition_index, LATEST) for row in open_])
        for row, end in zip(open_, found, strict=True):
            place = PlaceKey(group_id, topic.face_id, row.partition_index)
            done = known.state_of(place).done
            row.start_offset, row.lag = done.stable, -1
            if done.stable >= 0 and not end.error:
                row.lag = max(0, _left(done, end.offset, known.partition(place).window))

    async def begin(self, known: ShareLog, place: PlaceKey, offset: int = NO_OFFSET) -> Code:
        """Resets a group to an offset, or to the one that its config names when it reads again."""
        try:
            for _ in range(_TRIES):
                if await known.partition(place).begin(offset):
                    return Code.NONE
                await known.read_to_end()
        except UpstreamUnavailable as error:
            log.warning("share_group_not_reset", group=place.group_id, error=str(error))
        return UNAVAILABLE

    async def forget(self, group_id: str, topic_id: UUID | None = None) -> Code:
        """Forgets where a group stands in a topic, or in all."""
        known = await self.opened(group_id)
        if known is None:
            return UNAVAILABLE
        places = [each.place for each in known.of_group(group_id) if topic_id in (None, each.place.topic_id)]
        codes = [await self.begin(known, place) for place in places]
        return next((code for code in codes if code), Code.NONE)


def _left(done: Done, end: int, window: ShareWindow) -> int:
    """Returns how many offsets are not done; of those that were looked at, only where there is a record."""
    if window.begin <= done.stable <= window.end <= end:
        return end - window.end + sum(not done.has(each.offset) for each in window.left)
    return end - done.stable - sum(stop - begin for begin, stop in done.ranges)


class ShareOffsetsApi(ApiHandler):
    """A handler that has the broker answer first, and continues with what that accepts."""

    def __init__(self, offsets: ShareOffsets) -> None:
        self.offsets = offsets

    def decide(self, held: HeldRequest) -> Handled:
        """Has the broker asked what it understands."""
        value: Any = held.read()
        if not self.translate(value, held.topics):
            return None
        return _AfterBroker(self, held, held.read(), held.build(value))

    @abstractmethod
    def translate(self, value: Any, topics: ManagedTopics) -> bool:
        """Puts faces in place of topics; returns whether the request may concern a managed topic."""
        ...

    @abstractmethod
    async def go_on(self, asked: Any, told: Any, topics: ManagedTopics) -> None:
        """Does what the broker has accepted, and changes its answer in place; `asked` is the client's request."""
        ...


class _AfterBroker(ServedRequest):
    def __init__(self, handler: ShareOffsetsApi, held: HeldRequest, asked: Any, rest: bytes) -> None:
        self.rest = rest
        self._handler = handler
        self._held = held
        self._asked = asked

    async def answer(self, part: Awaitable[Row] | None) -> Answer:
        """Answers when what the broker has accepted is done."""
        assert part is not None, "the broker is asked always"
        told = await part
        await self._handler.go_on(self._asked, told, self._held.topics)
        return partial(response(self._handler.key).build_last, self._held.version, told)


def with_faces(rows: Iterable[Any], topics: ManagedTopics) -> bool:
    """Puts faces in place of topics in rows of a request; returns whether there were any."""
    found = False
    for row in rows:
        topic = topics.named(row.topic_name)
        if topic is not None:
            row.topic_name = face_of(topic.name)
            found = True
    return found


def with_topic(row: Any, topics: ManagedTopics) -> ManagedTopic | None:
    """Puts a managed topic in place of its face in a row of a response, and returns it; None: it is another topic."""
    name = topic_of_face(row.topic_name)
    topic = topics.named(name) if name is not None else None
    if topic is not None:
        row.topic_name = topic.name
    return topic
