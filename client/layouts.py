"""What Metadata tells a dialect client of the managed topics: their layouts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from kordon.codecs.bodies import MetadataResponseTopic
from kordon.proxy.ordering.hashing import homes, parent

_NO_ID: Final = UUID(int=0)
_BELIEVED_DENIALS: Final = 5
"""Answers without a layout after which a topic counts as let go. Until then writes continue, to the same partitions."""


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """The layout of a managed topic as a client needs it; names are KIP-253's."""

    topic: str
    topic_id: UUID
    """All zero where the Metadata version has none."""
    initial_partition_count: int
    """N, the partitions that the topic began with."""
    undeleted_partition_count: int
    """U, the partitions that are written to: 0 to U - 1. Those above are retired, and read until they are empty."""
    virtual_partition_count: int
    """V, by which keys are hashed, forever the same."""
    layout_epoch: int
    """The number of changes."""
    enable_ordered_delivery: bool = True
    """Whether consumers wait for what a key was in earlier."""
    homes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The physical partition of each virtual one."""

    def __post_init__(self) -> None:
        counts = (self.initial_partition_count, self.undeleted_partition_count, self.virtual_partition_count)
        object.__setattr__(self, "homes", homes(*counts))

    def home(self, place: int) -> int:
        """Returns the partition that a record goes to.

        Args:
            place: The virtual partition of its key, or `~q` of a record that was sent to partition q as such. Where q
                is retired such a record goes where the keys of q have gone.
        """
        if place >= 0:
            return self.homes[place]
        partition = ~place
        while partition >= self.undeleted_partition_count:
            partition = parent(partition, self.initial_partition_count)
        return partition


@dataclass(slots=True)
class Layouts:
    """The newest layout that is known of each managed topic."""

    _layouts: dict[str, TopicLayout] = field(default_factory=dict[str, TopicLayout])
    _denied: dict[str, int] = field(default_factory=dict[str, int])
    """The number of answers in a row that did not know a topic's layout."""

    def get(self, topic: str) -> TopicLayout | None:
        """Returns the layout of a topic; None if it is not managed, or not known."""
        return self._layouts.get(topic)

    def update(self, topics: Iterable[MetadataResponseTopic]) -> None:
        """Takes in the topics of a MetadataResponse: those without error, managed or not.

        A proxy that is behind the others does not take back what was known.
        """
        for row in topics:
            if row.error_code == 0 and row.name is not None:
                self._take(row.name, row.get("topic_id", _NO_ID), _layout_of(row, row.name))

    def forget_all(self) -> None:
        """What answers now knows no layouts, so no topic is managed."""
        self._layouts.clear()

    def _take(self, topic: str, topic_id: UUID, layout: TopicLayout | None) -> None:
        known = self._layouts.get(topic)
        if layout is None:
            self._deny(topic, topic_id)
            return
        self._denied.pop(topic, None)
        if known is None or known.topic_id != layout.topic_id or known.layout_epoch < layout.layout_epoch:
            self._layouts[topic] = layout

    def _deny(self, topic: str, topic_id: UUID) -> None:
        """Forgets the layout of a topic that is not managed any more.

        A proxy that has not heard yet that a topic's takeover is over answers without a layout, too. So that is
        believed at once of a topic that was made again, else of several answers in a row.
        """
        known = self._layouts.get(topic)
        self._denied[topic] = self._denied.get(topic, 0) + 1
        if known is None or known.topic_id != topic_id or self._denied[topic] >= _BELIEVED_DENIALS:
            self._layouts.pop(topic, None)
            self._denied.pop(topic, None)


def _layout_of(row: MetadataResponseTopic, name: str) -> TopicLayout | None:
    """Returns the layout in a topic's row of a MetadataResponse; None if the topic is not managed."""
    if row.undeleted_partition_count < 0:
        return None
    return TopicLayout(
        topic=name,
        topic_id=row.get("topic_id", _NO_ID),
        initial_partition_count=row.initial_partition_count,
        undeleted_partition_count=row.undeleted_partition_count,
        virtual_partition_count=row.virtual_partition_count,
        layout_epoch=row.layout_epoch,
        enable_ordered_delivery=row.enable_ordered_delivery,
    )
