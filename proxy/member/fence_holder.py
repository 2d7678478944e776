"""What a worker does when a record of the layouts asks it to: adopts a layout, holds what a fence seals.

Adopt        ──> serves the topic under a layout
Hold         ──> admits no more writes ──> nothing is under way any more ──> Acknowledge
Release      ──> continues as before the fence
Forget       ──> serves the topic no more
Announce     ──> adds coming homes to transactions, and acknowledges at once (DOUBLE-ADD)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import structlog

from kordon.proxy.controller.fence_times import FenceTimes, Phase
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord
from kordon.proxy.member.leadership import Leadership
from kordon.proxy.member.member_notes import MemberNotes
from kordon.proxy.member.served import ServedParts
from kordon.proxy.ordering.images import ImageParts
from kordon.proxy.ordering.member import Acknowledge, Adopt, Command, Expect, Forget, Hold, Member, Release
from kordon.proxy.ordering.records import AckRecord, AnnouncementRecord, FenceRecord, TopicRecord, dump
from kordon.proxy.ordering.takeover import outdates_views
from kordon.proxy.ordering.transactions.adds import Announcement
from kordon.proxy.own_topics.layouts_log import LayoutsLog
from kordon.proxy.own_topics.layouts_writer import Offsets, Records
from kordon.proxy.runtime.clock import clock
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic, ManagedTopics

log = structlog.get_logger(__name__)


class FenceHolder:
    """Performs a member's commands on the topics that its worker serves.

    Args:
        member: The member, which gives the commands. It is told when what a fence seals is held.
        leadership: The leadership, which hears the acknowledgement of a fence that this worker's controller has raised.
        tasks: The tasks that run what clients wait for. Whoever made them ends them.
    """

    def __init__(
        self,
        topics: ManagedTopics,
        member: Member,
        layouts: LayoutsLog,
        served: ServedParts,
        *,
        leadership: Leadership,
        notes: MemberNotes,
        times: FenceTimes,
        tasks: Tasks,
    ) -> None:
        self._topics = topics
        self._member = member
        self._layouts = layouts
        self._writers, self._readers, self._passed = served
        self._leadership = leadership
        self._notes = notes
        self._times = times
        self._tasks = tasks
        self._renewing: dict[str, asyncio.Task[None]] = {}  # by topic, clients that are told of its new view
        self._is_starting = True

    def perform(self, command: Command, offset: int) -> None:
        """Does what a record of the layouts topic asks for, which stands at an offset."""
        match command:
            case Adopt(record, images):
                self._times.end(Phase.HOLD, record.layout.topic)
                self._adopt(record, images, offset)
            case Forget(topic):
                self._notes.forgot(topic, offset)
                self._remove(topic)
                self._renewing.pop(topic, None)
            case Hold():
                self._raise(command, offset)
            case Release(topic):
                self._release(topic, offset)
            case Acknowledge(ack):
                self._notes.acknowledged(ack, offset)
                self._acknowledge(ack)
            case Expect(record):
                self._announce(record)

    def on_known(self) -> None:
        """Logs how many topics and layout epochs there are at the start; of each later layout there is a line."""
        if self._is_starting and len(self._topics):
            epochs = sum(len(topic.layout.epochs) for topic in self._topics)
            log.info("layouts_read", topics=len(self._topics), epochs=epochs)
        self._is_starting = False

    def take_layout(self, records: Records, offsets: Offsets) -> None:
        """Continues under a layout that this worker's controller has written, with offsets of its records by key."""
        for key, command in self._member.on_own_layout(records):
            self.perform(command, offsets[key])

    def _adopt(self, record: TopicRecord, images: Mapping[int, ImageParts], offset: int) -> None:
        layout = record.layout
        topic, fence = self._topics.served(layout.topic), self._member.fences.get(layout.topic)
        standing = fence.id if fence is not None else None
        if topic is not None and self._topics.named(layout.topic) is topic and topic.goes_on_as(record, standing):
            if topic.layouts_offset < offset:  # it was written down again as it was
                self._notes.adopted(record.layout, offset)
                topic.written_again(offset)
            return
        self._notes.adopted(layout, offset)  # before anything is decided by it
        is_new_view = topic is not None and outdates_views(topic.layout, layout)
        if topic is None or topic.face_id != record.face_id:
            topic = ManagedTopic(layout, record.face_id, images, offset, record.takeover)
        else:
            topic.adopt(layout, images, offset, record.takeover)
        if (announced := self._member.announcements.get(layout.topic)) is not None:
            topic.announce(_announcement(announced))
        self._topics.add(topic)
        self._readers.invalidate(layout.topic)
        if not self._is_starting:
            log.info("layout_adopted", topic=layout.topic, epoch=layout.epoch, partitions=layout.u)
        if is_new_view:
            renewal = self._passed().renew_views(layout.topic)
            self._renewing[layout.topic] = self._tasks.start(renewal, name=f"renew views of {layout.topic}")

    def _remove(self, topic: str) -> None:
        self._topics.remove(topic)
        self._readers.invalidate(topic)
        self._times.forget(topic)

    def _release(self, topic: str, offset: int) -> None:
        self._notes.released(topic, offset)
        self._times.end(Phase.HOLD, topic)
        managed = self._topics.served(topic)
        if managed is None:
            return
        managed.cancel_fence()
        if not managed.layout.is_managed:
            self._remove(topic)

    def _raise(self, hold: Hold, offset: int) -> None:
        fence = hold.fence
        managed = self._topics.named(fence.topic) or self._coming(fence, offset)
        self._notes.held(fence, None if managed is None else managed.layout.epoch, offset)
        if managed is not None:
            self._stand(managed, fence)
        reading = self._member.reading
        self._tasks.start(self._hold(hold, managed, offset, reading=reading), name=f"hold {fence.topic}")
        if managed is not None and fence.sealed:
            self._times.begin(Phase.HOLD, fence.topic)
            self._times.begin(Phase.DRAIN, fence.topic)
            self._tasks.start(self._writers.expect(fence.topic, hold.opened), name=f"expect {fence.topic}")

    def _stand(self, managed: ManagedTopic, record: FenceRecord) -> None:
        """Raises a fence at once, as a layout right behind it ends it; or finds it standing as all is read again."""
        is_late, standing = not self._member.may_serve(clock()), _standing(managed, record)
        if standing is None:
            managed.raise_fence(Fence(record.id, record.sealed, is_late=is_late))
        elif is_late and not standing.is_frozen:
            managed.narrow_fence(replace(standing, is_late=True))

    def _coming(self, fence: FenceRecord, offset: int) -> ManagedTopic | None:
        """Takes in a topic with data that is about to be managed: its writes are held here from now on."""
        if fence.taking_over is None:
            return None
        coming = self._topics.served(fence.topic)
        if coming is not None and _standing(coming, fence) is not None:
            return coming
        topic = ManagedTopic(fence.taking_over.layout, fence.taking_over.face_id, layouts_offset=offset)
        self._topics.begin(topic)
        return topic

    async def _hold(self, hold: Hold, topic: ManagedTopic | None, offset: int, *, reading: int) -> None:
        """Says that nothing is written or read on at a fence's partitions, once nothing is under way any more."""
        fence = hold.fence
        if fence.taking_over is not None:
            await self._passed().settle()
        if (renewing := self._renewing.get(fence.topic)) is not None:
            await asyncio.wait({renewing})  # whoever wished the topic managed waits until clients have the new view
        if topic is not None:
            standing = _standing(topic, fence)
            if standing is not None and not standing.is_frozen:
                landed, ends = await asyncio.gather(
                    self._writers.drain(fence.topic, hold.drained),
                    self._readers.freeze(fence.topic, fence.sealed),
                )
                standing = _standing(topic, fence)
                if standing is not None and not standing.is_frozen:
                    has_served = self._member.has_served_since(reading, clock())
                    topic.narrow_fence(standing.frozen(ends, landed, has_served=has_served))
            if standing is None:
                return  # ended meanwhile
            self._times.end(Phase.DRAIN, fence.topic)
        shortened = frozenset(fence.following.shortened or ())
        told = self._readers.told(fence.topic, shortened) if shortened else None
        for command in self._member.on_held(fence.id, told):
            self.perform(command, offset)

    def _announce(self, record: AnnouncementRecord) -> None:
        """What was planned before is planned again before its client is told, so nothing is waited for here."""
        if (topic := self._topics.named(record.topic)) is not None:
            topic.announce(_announcement(record))
        if record.coming:
            self._acknowledge(AckRecord(record.id, self._member.incarnation))

    def _acknowledge(self, ack: AckRecord) -> None:
        if not self._leadership.hears(ack):  # who is to know is not here
            self._tasks.start(self._append(f"ack/{ack.fence}/{ack.incarnation}", dump(ack)), name="acknowledge")

    async def _append(self, key: str, value: bytes) -> None:
        try:
            await self._layouts.append([NewRecord(key, value)])
        except UpstreamUnavailable as error:
            log.warning("acknowledgement_unwritten", key=key, error=str(error))  # the fence is cancelled, in time


def _announcement(record: AnnouncementRecord) -> Announcement:
    return Announcement(record.number, record.coming)


def _standing(topic: ManagedTopic, record: FenceRecord) -> Fence | None:
    """Returns a fence as it stands here: what it shows readers is acknowledged, and stays when all is read again."""
    fence = topic.fence
    return fence if fence is not None and (fence.id, fence.sealed) == (record.id, record.sealed) else None
