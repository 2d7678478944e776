"""The managed topics that a worker knows, with all that serving them asks for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final
from uuid import UUID

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.images import Image, rows_of
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import TopicRecord
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.takeover import Takeover
from kordon.proxy.ordering.transactions.adds import Announcement
from kordon.proxy.topics.source_topics import SourceTopics

OWN_PREFIX = "__kordon."
"""Faces and Kordon's own topics begin with it; clients do not see them."""
OWN_NAMES: Final = frozenset(
    {"decisions", "findings", "groups", "individual_commits", "layouts", "producers", "share_groups", "source_topics"}
)
"""Topics whose faces would be topics of Kordon or of its auditor."""
NOT_MANAGED: Final = "it is not managed any more"
"""Why a topic that was let go is not served by whoever holds on to it."""
NOT_READ: Final = -1
"""In place of an offset of a layout that stands nowhere: of tests and plays."""


def is_own(name: str | None) -> bool:
    """Whether a topic is a face or one of Kordon's own, which clients do not see."""
    return name is not None and name.startswith(OWN_PREFIX)


def face_of(topic: str) -> str:
    """Returns the name of a topic's face."""
    return OWN_PREFIX + topic


def topic_of_face(name: str) -> str | None:
    """Returns whose face a topic is; None: it is none.

    >>> topic_of_face("__kordon.orders")
    'orders'
    >>> topic_of_face("__kordon.layouts")
    """
    topic = name.removeprefix(OWN_PREFIX)
    return topic if is_own(name) and topic not in OWN_NAMES else None


class Why(StrEnum):
    """What writes of a stream wait for, and how that ends."""

    FENCE = "fence"
    """The stream's partition is sealed until the next layout (FENCE-BARRIER)."""
    LEASE = "lease"
    """This worker's lease has ended (LIVE-LEASE)."""
    UNBORN = "unborn"
    """The stream lives nowhere yet."""
    LEADER = "leader"
    """Nobody is known to lead its partition."""
    CONNECTION = "connection"
    """Its leader is not connected."""


@dataclass(frozen=True)
class Fence:
    """The pause in which a layout changes, as one worker keeps it.

    Attributes:
        id: Of the attempt, as its record names it.
        sealed: Physical partitions that are not written to until the next layout is adopted.
        high_watermarks: Of each, what readers may see of it until then (FROZEN-READS).
        shown: Until the high watermarks are known, what readers may see of each: what they had seen when they were
            asked for, and what has been answered; None: nobody has asked yet, and reading continues.
        is_frozen: Whether what is shown does not change any more until it ends: it can be acknowledged.
        is_late: Whether it stood while this worker did not serve. Nobody has waited for this worker then, so a cut may
            have been read, and what stands behind it is nobody's to see: nothing is shown until it ends.
    """

    id: str
    sealed: frozenset[int]
    high_watermarks: Mapping[int, int] = field(default_factory=dict[int, int])
    shown: Mapping[int, int] | None = None
    is_frozen: bool = False
    is_late: bool = False

    def freezing(self, shown: Mapping[int, int]) -> Fence:
        """Returns it as it shows readers so much, by partition, and nothing of others that it has not shown before."""
        return replace(self, shown=_highest(self.shown or {}, shown))

    def frozen(self, ends: Mapping[int, int], landed: Mapping[int, int], *, has_served: bool) -> Fence:
        """Returns it with all that is shown of its partitions until it ends.

        Args:
            ends: By partition, the high watermark that its leader has told.
            landed: By partition, the offset behind what clients were told to be written while it was asked for: it
                stands before the cut, and a client that is told of an end below it would take it for lost.
            has_served: Whether this worker has served all the while: else the cut may stand before those ends.
        """
        known = _highest(self.shown or {}, ends)
        marks = {q: max(mark, landed.get(q, 0)) for q, mark in known.items()}
        return replace(self, high_watermarks=marks, is_frozen=True, is_late=self.is_late or not has_served)

    def limit(self, partition: int) -> int | None:
        """Returns the offset from which on nothing of a physical partition is shown (FROZEN-READS); None: of none."""
        if partition not in self.sealed:
            return None
        if self.is_late:
            return 0
        if partition in self.high_watermarks:
            return self.high_watermarks[partition]
        return None if self.shown is None else self.shown.get(partition, 0)

    def may_tell_end(self, partition: int) -> bool:
        """Whether the end of a physical partition may be told of which no reader of this worker need know."""
        return partition not in self.sealed or (partition in self.high_watermarks and not self.is_late)


def _highest(some: Mapping[int, int], others: Mapping[int, int]) -> dict[int, int]:
    return {q: max(some.get(q, 0), others.get(q, 0)) for q in some.keys() | others.keys()}


class ManagedTopic:
    """One managed topic; `layout`, `images` and `fence` are replaced as a whole.

    Args:
        face_id: The topic id of its face, by which clients know it.
        images: By stream, of its last move; where there is none, it has not moved, or nobody is remembered.
        layouts_offset: Of the record of `__kordon.layouts` that says so; -1: none does.
    """

    def __init__(
        self,
        layout: Layout,
        face_id: UUID,
        images: Mapping[int, Image] | None = None,
        layouts_offset: int = NOT_READ,
        takeover: Takeover | None = None,
    ) -> None:
        self.name = layout.topic
        self.layout = layout
        self.face_id = face_id
        self.images: Mapping[int, Image] = images or {}
        self.layouts_offset = layouts_offset
        """Where the layout in force was read; of a topic that is coming, where its fence was. Rises."""
        self.fence: Fence | None = None
        self.takeover = takeover
        """What is left to do of its takeover, if it had data (TAKEOVER-WAITS)."""
        self.known_since_ms = round(time.time() * 1000)
        """Since when this worker has known it, by the wall clock."""
        self.unserved: str | None = None
        """Why nothing of it is written or read here; None: it is."""
        self.announcement = Announcement(0)
        """The change to come, if it has transactions and one is (DOUBLE-ADD)."""
        self._changed = asyncio.Event()

    @property
    def takes_transactions(self) -> bool:
        """Whether all proxies know that it has transactions, so that one may begin; its first announcement says so."""
        return self.layout.has_transactions and self.announcement.number > 0

    @property
    def is_let_go(self) -> bool:
        """Whether it is not managed here any more: no layout and no fence reaches this object from then on."""
        return self.unserved == NOT_MANAGED

    def is_sealed(self, partition: int) -> bool:
        """Whether a physical partition is not to be written to now."""
        return self.unserved is not None or (self.fence is not None and partition in self.fence.sealed)

    def open_home(self, stream: Stream, *, may_serve: bool) -> Stay | Why:
        """Returns where a stream is written to now, or why it is not (LIVE-LEASE, FENCE-BARRIER).

        `may_serve`: this worker's lease lives, and the layouts were read since it was joined.
        """
        home = self.layout.chain(stream).home
        if home is None:
            return Why.UNBORN
        if self.is_sealed(home.partition):
            return Why.FENCE
        return home if may_serve else Why.LEASE

    def limit(self, partition: int, *, may_serve: bool) -> int | None:
        """Returns the offset from which on nothing of a physical partition is shown now; None: all is.

        What stands behind a cut that this worker has not heard of is nobody's to see. A segment that is over is shown
        up to its end, whatever is said here (LIVE-LEASE, FROZEN-READS).
        """
        if not may_serve or self.unserved is not None:
            return 0
        return None if self.fence is None else self.fence.limit(partition)

    def goes_on_as(self, record: TopicRecord, standing: str | None = None) -> bool:
        """Whether this worker continues as a record says already, where a fence stands by the layouts, or none.

        Its own controller has written it, or all layouts were read again.
        """
        known = (self.layout, self.face_id, self.takeover)
        is_fenced = self.fence is not None and self.fence.id != standing
        return not is_fenced and known == (record.layout, record.face_id, record.takeover)

    @property
    def producers_carried(self) -> int:
        """How many producers its images tell of, by stream; who has written since a move may be counted for each."""
        return sum(map(rows_of, self.images.values()))

    async def wait_for_change(self) -> None:
        """Returns when another layout is adopted, or a fence begins or ends."""
        await self._changed.wait()

    def raise_fence(self, fence: Fence) -> None:
        """Stops writing to the fence's partitions."""
        self.fence = fence
        self._tell()

    def narrow_fence(self, fence: Fence) -> None:
        """Replaces the fence that stands by one that knows better how far readers see; nobody waits for that."""
        self.fence = fence

    def cancel_fence(self) -> None:
        """Continues under the layout in force."""
        self.fence = None
        self._tell()

    def announce(self, announcement: Announcement) -> None:
        """Has AddPartitionsToTxn mean the coming homes too, or those that it has now alone (DOUBLE-ADD)."""
        self.announcement = announcement
        self._tell()

    def serve(self, unserved: str | None) -> None:
        """Continues, or (for a reason) does not."""
        self.unserved = unserved
        self._tell()

    def written_again(self, layouts_offset: int) -> None:
        """Notes that the layout in force stands at a later offset of the layouts topic too."""
        self.layouts_offset = layouts_offset

    def adopt(
        self,
        layout: Layout,
        images: Mapping[int, Image],
        layouts_offset: int = NOT_READ,
        takeover: Takeover | None = None,
    ) -> None:
        """Continues under another layout, read at an offset of the layouts topic, with all that goes with it."""
        self.layout = layout
        self.layouts_offset = layouts_offset
        self.images = images
        self.takeover = takeover
        self.fence = None
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class ManagedTopics:
    """All managed topics of a cluster, by name and by the id that clients know.

    A topic with data that is just being taken over is *coming*: its writes and reads are held here already, while to
    everything else it is the ordinary topic that it is still (TAKEOVER-WAITS).

    A topic is *unserved* where records of it cannot be read: it is refused, be its layout known or not.

    Attributes:
        sources: The source topics, which are not managed, but refuse records and some commits.
    """

    def __init__(self) -> None:
        self.sources = SourceTopics()
        self._by_name: dict[str, ManagedTopic] = {}
        self._by_id: dict[UUID, ManagedTopic] = {}
        self._coming: dict[str, ManagedTopic] = {}
        self._unserved: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._by_name) + len(self._coming) + len(self._unserved)

    def __bool__(self) -> bool:
        return bool(self._by_name or self._coming or self._unserved)  # asked for each request

    @property
    def unserved(self) -> Mapping[str, str]:
        """Why topics are not served that are managed, or may be, by name."""
        return self._unserved

    def serve(self, name: str, unserved: str | None) -> None:
        """Has a topic served, or (for a reason) not."""
        if unserved is None:
            self._unserved.pop(name, None)
        else:
            self._unserved[name] = unserved
        if (topic := self.served(name)) is not None and topic.unserved != unserved:
            topic.serve(unserved)

    @property
    def partition_count(self) -> int:
        """How many virtual partitions all of them have that are managed."""
        return sum(topic.layout.v_count for topic in self)

    @property
    def are_coming(self) -> bool:
        """Whether any is coming."""
        return bool(self._coming)

    @property
    def names(self) -> frozenset[str]:
        """The names of all topics that are written and read here, with those that are coming."""
        return frozenset(self._by_name.keys() | self._coming.keys())

    def __iter__(self) -> Iterator[ManagedTopic]:
        return iter(self._by_name.values())

    def named(self, name: str) -> ManagedTopic | None:
        """Finds a topic by its name."""
        return self._by_name.get(name)

    def with_face_id(self, topic_id: UUID) -> ManagedTopic | None:
        """Finds a topic by the topic id that clients know."""
        topic = self._by_id.get(topic_id)
        return topic if topic is not None and topic.face_id == topic_id and topic.name not in self._coming else None

    def served(self, name: str) -> ManagedTopic | None:
        """Finds a topic that is written and read here, by its name."""
        return self._by_name.get(name) or self._coming.get(name)

    def served_by_id(self, topic_id: UUID) -> ManagedTopic | None:
        """Finds a topic that is written and read here, also by the id that it had before it was managed."""
        return self._by_id.get(topic_id)

    def is_held(self, name: str) -> bool:
        """Whether requests for a topic are answered here: it is served, or unserved, which its layout need not be."""
        return self.served(name) is not None or name in self._unserved

    def answers_for(self, topic: str | UUID) -> bool:
        """Whether requests that name a topic, by its name or id, are answered here."""
        return self.is_held(topic) if isinstance(topic, str) else topic in self._by_id

    def add(self, topic: ManagedTopic) -> None:
        """Takes a topic in."""
        self._take_in(topic, self._by_name)

    def begin(self, topic: ManagedTopic) -> None:
        """Takes in a topic that is coming."""
        self._take_in(topic, self._coming)

    def remove(self, name: str) -> None:
        """Lets a topic go, or one that was coming; nothing of it is written or shown from here on."""
        topic = self._by_name.pop(name, None) or self._coming.pop(name, None)
        if topic is not None:
            topic.serve(NOT_MANAGED)
            self._by_id.pop(topic.face_id, None)
            self._by_id.pop(topic.layout.topic_id, None)

    def _take_in(self, topic: ManagedTopic, named: dict[str, ManagedTopic]) -> None:
        self.remove(topic.name)
        topic.unserved = self._unserved.get(topic.name)
        named[topic.name] = topic
        self._by_id[topic.face_id] = self._by_id[topic.layout.topic_id] = topic
