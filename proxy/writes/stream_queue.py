"""The writes of one stream that wait to be sent, and what they wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.under_way import Partition
from kordon.proxy.ordering.write_sequencer import WriteSequencer
from kordon.proxy.topics.managed_topics import ManagedTopic, Why
from kordon.proxy.writes.client_writes import ClientWrite


class WriterId(NamedTuple):
    """The name of one of a worker's connections that carry writes."""

    node_id: int
    """The broker's."""
    number: int
    """Tells the connections to one broker apart."""


@dataclass(slots=True, eq=False)
class StreamQueue:
    """The writes of one stream, and how they leave."""

    topic: ManagedTopic
    stream: Stream
    sequencer: WriteSequencer[ClientWrite]
    wake: Callable[[StreamQueue], None]
    """Lets the queue go on, because something that it waited for may have come; `go_on` calls it."""
    writer: WriterId | None = None
    """The connection that carried the last write."""
    has_turn: bool = False
    """Whether that connection takes the next write as soon as it can."""
    held_since: float | None = None
    """Since when nothing may be sent, in seconds of the loop's clock."""
    held_for: Why | None = None
    """What was waited for when that began."""
    is_refusing: bool = False
    """Whether too much waited, or for too long: new writes are refused until the queue goes on (SHORT-FENCE)."""

    def home(self, *, may_serve: bool) -> Stay | Why:
        """Returns where the stream is written to now, or why it is not.

        Args:
            may_serve: Whether this worker's lease lives.
        """
        return self.topic.open_home(self.stream, may_serve=may_serve)

    def may_go_by(self, writer: WriterId) -> bool:
        """Returns whether nothing is under way on another connection: what is comes first (NO-OVERTAKING)."""
        return self.writer == writer or not self.sequencer.in_flight

    def go_on(self) -> None:
        """Sends what can be sent now, or asks for what is missing."""
        self.wake(self)


class Sent(NamedTuple):
    """A write that was sent, with its queue."""

    queue: StreamQueue
    write: ClientWrite

    @property
    def place(self) -> Partition:
        """The physical partition that it was sent to."""
        assert self.write.bound is not None
        return self.queue.topic.name, self.write.bound.partition
