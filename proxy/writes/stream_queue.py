"""The writes of one stream that wait to be sent, and what they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kordon.codecs.error_codes import Code
from kordon.codecs.produce import WriteOutcome
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.repeats import Repeats
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.beliefs import Ground
from kordon.proxy.ordering.under_way import Partition
from kordon.proxy.ordering.write_result import Result
from kordon.proxy.ordering.write_sequencer import NO_PRODUCER, WriteSequencer
from kordon.proxy.topics.managed_topics import ManagedTopic, Why
from kordon.proxy.writes.client_writes import ClientWrite
from kordon.proxy.writes.write_outcomes import result_of


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
    """Lets the queue continue, because something that it waited for may have come; `go_on` calls it."""
    writer: WriterId | None = None
    """The connection that carried the last write."""
    has_turn: bool = False
    """Whether that connection takes the next write as soon as it can."""
    held_since: float | None = None
    """Since when nothing may be sent, in seconds of the loop's clock."""
    held_for: Why | None = None
    """What was waited for when that began."""
    is_refusing: bool = False
    """Whether too much waited, or for too long: new writes are refused until the queue continues (SHORT-FENCE)."""
    _repeats: Repeats = field(default_factory=Repeats)

    has_transactions: bool = False
    """Whether data of transactions have come."""
    ground: Ground | None = None
    """What all of them rest on that wait; None: that has to be looked at."""

    def home(self, *, may_serve: bool) -> Stay | Why:
        """Returns where the stream is written to now, or why it is not.

        Args:
            may_serve: Whether this worker's lease lives.
        """
        return self.topic.open_home(self.stream, may_serve=may_serve)

    def may_go_by(self, writer: WriterId) -> bool:
        """Returns whether nothing is under way on another connection: what is comes first (NO-OVERTAKING)."""
        return self.writer == writer or not self.sequencer.in_flight

    def in_turn(self, write: ClientWrite, answer: WriteOutcome) -> WriteOutcome:
        """Returns what a client is told: on a gap, to send again what is behind a batch that is to come again.

        Args:
            answer: The answer for this write alone.
        """
        who = write.producer_id, write.producer_epoch, write.base_sequence
        result = result_of(answer)
        if result is Result.WRITTEN:
            self._repeats.written(write.producer_id)
        elif write.producer_id != NO_PRODUCER:
            now = asyncio.get_running_loop().time()
            if result is Result.REFUSED:
                self._repeats.expect(*who, now)
            elif answer.error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER and self._repeats.is_behind(*who, now):
                return answer._replace(error_code=Code.NOT_LEADER_OR_FOLLOWER)
        return answer

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
