"""What one worker may do with managed topics: by its lease, by what it has read, and by the fences it keeps.

It does no I/O: the shell tells what happened and asks before each write. The clock is CLOCK_BOOTTIME, which continues
while a machine sleeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kordon.proxy.ordering.images import ImageParts, ImageRecord
from kordon.proxy.ordering.records import AckRecord, AnnouncementRecord, FenceRecord, TopicRecord, Value, image_place
from kordon.proxy.ordering.soundness import why_impossible


@dataclass(frozen=True)
class Hold:
    """Write no more to what the fence names, let what is under way end, freeze reading; then call `on_held`.

    Attributes:
        fence: The record of the fence.
        opened: The physical partitions on which a segment begins behind it.
    """

    fence: FenceRecord
    opened: frozenset[int] = frozenset()

    @property
    def drained(self) -> frozenset[int]:
        """Where all that was sent has to be answered first.

        Where a segment begins without one that ends, only Kordon itself may have written (KIP-253 9).
        """
        return self.fence.sealed | self.opened


@dataclass(frozen=True)
class Release:
    """A fence was cancelled: continue under the layout in force."""

    topic: str


@dataclass(frozen=True)
class Adopt:
    """Go on under this layout."""

    record: TopicRecord
    images: Mapping[int, ImageParts]


@dataclass(frozen=True)
class Forget:
    """A topic is no longer managed."""

    topic: str


@dataclass(frozen=True)
class Acknowledge:
    """Append this to the layouts topic."""

    ack: AckRecord


@dataclass(frozen=True)
class Expect:
    """Have AddPartitionsToTxn mean the coming homes too, and acknowledge that something is to come (DOUBLE-ADD)."""

    record: AnnouncementRecord


Command = Hold | Release | Adopt | Forget | Acknowledge | Expect


class Member:
    """One worker's part in the proxies' group.

    Args:
        incarnation: The incarnation of this process, which is never used again.
    """

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.lease_expires = 0.0
        self._caught_up = False
        self.reading = 0
        """The number of the reading of the layouts that counts; raised when nothing is served until it ends."""
        self._fences: dict[str, FenceRecord] = {}
        self._held: set[str] = set()
        self.announcements: dict[str, AnnouncementRecord] = {}
        """What is to come of topics with transactions, or that nothing is, by topic."""
        self._topics: dict[str, TopicRecord] = {}
        self._images: dict[str, dict[int, dict[int, ImageRecord]]] = {}  # by topic, stream and part

    @property
    def topics(self) -> Mapping[str, TopicRecord]:
        """The layouts in force, as far as this worker has read."""
        return self._topics

    @property
    def fences(self) -> Mapping[str, FenceRecord]:
        """The fences that stand, by topic."""
        return self._fences

    def images(self, topic: str) -> Mapping[int, ImageParts]:
        """Returns the images of a topic, by stream, with the parts that were written ahead of a layout to come."""
        return {stream: ImageParts(parts) for stream, parts in self._images.get(topic, {}).items()}

    def may_serve(self, now: float) -> bool:
        """Whether managed topics may be served: the lease lives, and the layouts were read after joining.

        These are LIVE-LEASE and READ-BEFORE-SERVE.
        """
        return self._caught_up and now < self.lease_expires

    def has_served_since(self, reading: int, now: float) -> bool:
        """Whether managed topics could be served all the while since a reading of the layouts was the last one."""
        return reading == self.reading and self.may_serve(now)

    def on_renewed(self, sent: float, lease_seconds: float, now: float) -> int | None:
        """A commit under the present generation was accepted; the lease counts from when it was *sent* (LIVE-LEASE).

        Returns:
            As `on_joined` does, if nothing was served: where the lease had ended, nobody has waited for this worker,
            and what it knows may be old (READ-BEFORE-SERVE). None: it continues.
        """
        reading = None if self.may_serve(now) else self.on_joined()
        self.lease_expires = max(self.lease_expires, sent + lease_seconds)
        return reading

    def on_joined(self) -> int:
        """What was read before may be old: nothing is served until the layouts are read to an end taken from now on.

        Returns:
            The number of that reading, for `on_caught_up`.
        """
        self._caught_up = False
        self.reading += 1
        return self.reading

    def on_caught_up(self, reading: int) -> bool:
        """The layouts were read to the end of a reading; returns whether it is the one that counts."""
        self._caught_up = self._caught_up or reading == self.reading
        return reading == self.reading

    def forget(self) -> None:
        """All that was read is read again; until it has been, nothing is served."""
        self.on_joined()
        for each in (self._fences, self._held, self._topics, self._images, self.announcements):
            each.clear()

    def standing(self) -> list[tuple[str, Command]]:
        """Returns what the records amount to that were read since `forget`, by the key of the record that says so."""
        adopted = [(f"topic/{name}", self._adopt(name, record)) for name, record in self._topics.items()]
        announced = [(f"announcement/{name}", Expect(each)) for name, each in self.announcements.items()]
        fenced = [(f"fence/{name}", self._hold(name, fence)) for name, fence in self._fences.items()]
        return [*adopted, *announced, *fenced]

    def on_record(self, key: str, value: Value | None) -> list[Command]:
        """Takes in a record of the layouts topic; None is a tombstone.

        Raises:
            ValueError: The record contradicts what is known, and nothing of it is taken in.
        """
        kind, _, rest = key.partition("/")
        match kind, value:
            case "image", ImageRecord() | None:
                if (place := image_place(key)) is not None:  # or else it takes away what never could be read
                    topic, stream, part = place
                    parts = self._images.setdefault(topic, {}).setdefault(stream, {})
                    if value is None:
                        parts.pop(part, None)
                    else:
                        parts[part] = value
            case "topic", TopicRecord():
                self._topics[rest] = value
                self._end_fence(rest)
                return [self._adopt(rest, value)]
            case "topic", None:
                self._topics.pop(rest, None)
                self._images.pop(rest, None)
                self._end_fence(rest)
                return [Forget(rest)]
            case "fence", FenceRecord() | None:
                return self._on_fence(rest, value)
            case "announcement", AnnouncementRecord():
                self.announcements[rest] = value
                return [Expect(value)]
            case "announcement", None:
                self.announcements.pop(rest, None)
            case _:
                pass
        return []

    def on_held(self, fence: str, told: Mapping[int, int] | None = None) -> list[Command]:
        """Nothing that was sent to a fence's partitions is unanswered any more.

        Where a log has got shorter, readers may have been told of it up to the offset in `told` (BEYOND-LOSS).
        """
        standing = next((each for each in self._fences.values() if each.id == fence), None)
        if standing is None or fence in self._held:
            return []
        self._held.add(fence)
        return [Acknowledge(AckRecord(fence, self.incarnation, told or None))]

    def on_own_layout(self, records: Sequence[tuple[str, Value | None]]) -> list[tuple[str, Command]]:
        """Goes on under a layout that this worker's controller has written, before it comes back as all others read it.

        It is durable, and while its fence stands here nothing behind it has been read; to read it then changes nothing.

        Returns:
            What to do, by the key of the record that says so; nothing if the layout has been read already, and perhaps
            another fence, which it must not end.
        """
        (written,) = (value for _, value in records if isinstance(value, TopicRecord))
        fence = self._fences.get(written.layout.topic)
        if fence is None or fence.following != written.layout.epochs[-1]:
            return []
        return [(key, command) for key, value in records for command in self.on_record(key, value)]

    def _on_fence(self, topic: str, fence: FenceRecord | None) -> list[Command]:
        if fence is None:
            stood = topic in self._fences
            self._end_fence(topic)
            return [Release(topic)] if stood else []
        known = self._topics.get(topic)
        if known is not None and (problem := why_impossible(known.layout, fence.following)):
            raise ValueError(problem)
        self._fences[topic] = fence
        return [self._hold(topic, fence)]

    def _hold(self, topic: str, fence: FenceRecord) -> Hold:
        record = self._topics.get(topic, fence.taking_over)
        if record is None or not fence.sealed:
            return Hold(fence)
        return Hold(fence, record.layout.change_to(fence.following).opened)

    def _adopt(self, topic: str, record: TopicRecord) -> Adopt:
        epoch = record.layout.epoch
        return Adopt(record, {stream: image.in_force(epoch) for stream, image in self.images(topic).items()})

    def _end_fence(self, topic: str) -> None:
        fence = self._fences.pop(topic, None)
        if fence is not None:
            self._held.discard(fence.id)
