"""The writes of one stream, first in, first out, and what they are bound to when they are sent.

A write is bound to a physical partition, an identity and a sequence when it is sent, not when it comes (LATE-BINDING).
A write that must wait for its identity is parked with all that follow of the same identity, and writes of other
identities overtake it (OPENER-ALONE). Writes without a producer id are sent under an identity of the stream's own
(`lent_identity.py`).

Clients of the dialect choose physical partitions by their number, and say by which number. That is judged when a write
is sent, behind the image, which knows whether the write is in the log already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.images import Image, WhyNotWritten
from kordon.proxy.ordering.lent_identity import SEQUENCES, LentIdentity
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.write_result import Result
from kordon.proxy.ordering.writers import MOST_REMEMBERED, Pause, WhyUnfit, Writers

NO_PRODUCER: Final = -1
"""The producer id of batches without idempotence."""


class Binding(NamedTuple):
    """The place and the identity that a write is sent to and under."""

    partition: int
    """The physical partition."""
    move: int
    """The `Stay.move` of the home there."""
    client_id: int
    """The producer id that the client knows, or the stream's own."""
    producer_id: int
    """The producer id that stands in the log."""
    epoch: int
    sequence: int
    opens: bool
    """Whether it is the first of its identity in this home."""


@dataclass(slots=True, eq=False)
class Write:
    """One batch for one stream."""

    producer_id: int
    """The producer id; -1: the producer is not idempotent."""
    producer_epoch: int
    base_sequence: int
    records: int
    """How many sequence numbers it takes."""
    size: int
    """The size in bytes."""
    acks: int
    """The acks of the request, 1 or -1."""
    since: float
    """When it came, in seconds of the loop's clock."""
    undeleted_partition_count: int | None = None
    """The number of partitions by which its client chose the physical one, or -1 (`layout.NO_COUNT`); None where the
    client sees virtual partitions."""
    layout_epoch: int = -1
    """The epoch of the layout by which it did, as another layout may have the same count; -1: it does not say."""
    sent_epoch: int | None = None
    """The epoch of the layout in force when it was sent, where its client tells a number of partitions."""
    abandoned: bool = False
    """Whether its client has gone, so that it is not sent any more."""
    asked: bool = False
    attempts: int = 0
    bound: Binding | None = None
    """What it was bound to when it was sent last."""


_Write = TypeVar("_Write", bound=Write)


class Refuse(NamedTuple, Generic[_Write]):
    """A write that does not go into the log."""

    write: _Write
    why: WhyNotWritten | WhyUnfit


class WriteSequencer(Generic[_Write]):
    """Says which write of a stream is sent next, and under what.

    Args:
        moved: Called when the first write is bound to another home than those before, with that former home, as
            partition and move, and with the new one.
    """

    def __init__(self, stream: Stream, moved: Callable[[tuple[int, int], Stay], None] | None = None) -> None:
        self.stream = stream
        self._moved = moved
        self.in_flight = 0
        """Writes that are sent and not answered."""
        self._waiting: deque[_Write] = deque()
        self._parked: dict[int, deque[_Write]] = {}
        """The writes that wait for their identity, by the producer id that the client knows."""
        self._writers = Writers()
        self._home: tuple[int, int] | None = None
        self._own: LentIdentity[_Write] | None = None
        self.spent_id: int | None = None
        """The producer id whose epochs are used up here, so that another one is needed."""
        self._to_ask: set[int] = set()
        self._asked: set[int] = set()

    @property
    def ready(self) -> bool:
        """Whether something waits for nothing but its turn."""
        return bool(self._waiting)

    @property
    def waits(self) -> bool:
        """Whether something waits, for whatever it is."""
        return bool(self._waiting or self._parked)

    @property
    def waits_for_answer(self) -> bool:
        """Whether something waits for its identity; if not, nothing is missing and there is no question."""
        return bool(self._parked)

    @property
    def needs_id(self) -> bool:
        """Whether a producer id is missing (`identify`)."""
        return self._own is None and NO_PRODUCER in self._parked

    @property
    def has_question(self) -> bool:
        """Whether the broker is to be asked which identities have begun (`begin_question`)."""
        return bool(self._to_ask)

    @property
    def oldest(self) -> float | None:
        """Since when the oldest write waits; None if none does."""
        times = [writes[0].since for writes in (self._waiting, *self._parked.values()) if writes]
        return min(times, default=None)

    def add(self, write: _Write) -> None:
        """Puts a write at the end."""
        self._waiting.append(write)

    def next(
        self, home: Stay, image: Image, fits: Callable[[_Write], bool], undeleted_partition_count: int | None = None
    ) -> _Write | Refuse[_Write] | None:
        """Takes out what is next.

        Args:
            home: Where the stream lives now; with an end if it is a retired partition, to which nothing is written.
            image: The image of the stream's last move.
            fits: Returns whether a write may be sent with others; called before the write is taken out.
            undeleted_partition_count: The count in force; None where no write tells one.

        Returns:
            The write that goes to the broker now, bound, or the write that does not; None: nothing can be sent now.
        """
        if (home.partition, home.move) != self._home:
            self._arrive(home)
        while self._waiting:
            write = self._waiting[0]
            if not write.abandoned and write.producer_id not in self._parked:
                if not fits(write):
                    return None
                step = self._bind(write, home, image, undeleted_partition_count)
                if step is not None:
                    self._waiting.popleft()
                    return step
            self._waiting.popleft()
            if not write.abandoned:
                self._parked.setdefault(write.producer_id, deque()).append(write)
        return None

    def answered(self, write: _Write, result: Result) -> bool:
        """Takes in what became of a write that was sent.

        Returns:
            Whether the client is to be told; False: it is sent again.
        """
        bound = write.bound
        assert bound is not None, "it was sent"
        self.in_flight -= 1
        if self._home == (bound.partition, bound.move):
            if result is Result.WRITTEN:
                self._writers.opened(bound.client_id)
            elif bound.opens:
                self._writers.failed(bound.client_id)
            if bound.opens:
                self._unpark(write.producer_id)
        if write.producer_id != NO_PRODUCER:
            return True
        own = self._own
        assert own is not None, "it was sent under it"
        is_sent_again = own.answered(write, bound.sequence, result)
        if own.can_be_renewed:
            self._renew(own)
        return not is_sent_again

    def identify(self, producer_id: int) -> None:
        """Gives the stream a producer id of its own, which nobody has used in this stream."""
        self._own = LentIdentity(producer_id)
        self._unpark(NO_PRODUCER)

    def begin_question(self) -> None:
        """Notes that the broker is asked now which identities have begun in the present home."""
        self._asked |= self._to_ask
        self._to_ask = set()
        for producer_id in self._asked:
            for write in self._parked.get(producer_id, ()):
                write.asked = True

    def learn(self, partition: int, move: int, begun: Collection[int]) -> None:
        """Takes in the broker's answer.

        Args:
            partition: The physical partition that the answer is about.
            move: The `Stay.move` of the home that it is about.
            begun: The producer ids that have begun there, as clients know them.
        """
        if self._home != (partition, move):
            return
        asked, self._asked = self._asked, set()
        self._writers.learn(begun if len(begun) <= MOST_REMEMBERED else asked.intersection(begun))
        for producer_id in asked:
            self._unpark(producer_id)

    def give_up_question(self) -> list[_Write]:
        """Returns, and forgets, what cannot be judged because the broker could not be asked."""
        asked, self._asked = self._asked, set()
        return [write for producer_id in asked for write in self._parked.pop(producer_id, ())]

    def give_up(self) -> list[_Write]:
        """Returns, and forgets, all that is not under way."""
        left = [write for writes in self._parked.values() for write in writes]
        if self._own is not None:
            left += self._own.again
            self._own.again = []
        left += self._waiting
        self._waiting.clear()
        self._parked.clear()
        self._to_ask.clear()
        self._asked.clear()
        return left

    def withdraw(self, is_out: Callable[[_Write], bool]) -> list[_Write]:
        """Returns, and forgets, some of what is not under way, and what is behind it of the same producer.

        Args:
            is_out: Returns whether a write is among them.
        """
        out: list[_Write] = []
        producers: set[int] = set()

        def stays(write: _Write) -> bool:
            if write.producer_id in producers or is_out(write):
                producers.add(write.producer_id)
                out.append(write)
                return False
            return True

        self._parked = {key: left for key, each in self._parked.items() if (left := deque(filter(stays, each)))}
        self._waiting = deque(filter(stays, self._waiting))
        return out

    def _arrive(self, home: Stay) -> None:
        """Forgets what was known of the home before."""
        if self._home is not None and self._moved is not None:
            self._moved(self._home, home)
        self._home = (home.partition, home.move)
        self._writers.move()
        self._to_ask.clear()
        self._asked.clear()
        if self._own is not None and self._own.sequence:
            self._own.is_broken = True  # another epoch begins at 0 everywhere, whatever the image has of this one
            if self._own.can_be_renewed:
                self._renew(self._own)
        for producer_id in list(self._parked):
            self._unpark(producer_id)
        for write in self._waiting:
            write.asked = False

    def _bind(self, write: _Write, home: Stay, image: Image, count: int | None) -> _Write | Refuse[_Write] | None:
        """Judges a write; None: it is to be parked."""
        is_outdated = _is_outdated(write, home, count)
        client_id, epoch, base = write.producer_id, write.producer_epoch, write.base_sequence
        own = self._own
        if client_id == NO_PRODUCER:
            if is_outdated:
                return Refuse(write, WhyUnfit.OUTDATED)
            if own is None or own.rests:
                return None
            client_id, epoch, base = own.producer_id, own.epoch, own.sequence
        last = (base + write.records - 1) % SEQUENCES
        verdict = self._writers.judge(image, client_id, epoch, base, last, asked=write.asked, is_outdated=is_outdated)
        if isinstance(verdict, Pause):
            if verdict is Pause.QUESTION:
                self._to_ask.add(write.producer_id)
            return None
        if not isinstance(verdict, int):
            return Refuse(write, verdict)
        if write.producer_id == NO_PRODUCER and own is not None:
            own.sent(write.records)
        self.in_flight += 1
        opens = self._writers.sent(client_id)
        producer_id = tag(self.stream, home.move, client_id)
        write.bound = Binding(home.partition, home.move, client_id, producer_id, epoch, verdict, opens)
        return write

    def _renew(self, own: LentIdentity[_Write]) -> None:
        """Continues behind a failure, of which nothing is under way any more (LENT-IDENTITY)."""
        parked = self._parked.setdefault(NO_PRODUCER, deque())
        parked.extendleft(reversed(own.again))
        self._own = own.renewed()
        if self._own is None:
            self.spent_id = own.producer_id
        if self._own is not None or not parked:
            self._unpark(NO_PRODUCER)

    def _unpark(self, producer_id: int) -> None:
        """Puts what was parked back to the front: it is older than all that waits."""
        self._waiting.extendleft(reversed(self._parked.pop(producer_id, ())))


def _is_outdated(write: Write, home: Stay, count: int | None) -> bool:
    """Whether a physical partition was chosen for a write by which it would not be chosen now (COUNT-FENCE).

    The count alone does not say it: from 4 to 5 and back to 4, and what the client was told under 5 would not be true.
    """
    if write.undeleted_partition_count is None:
        return False
    is_sealed_since = home.end is not None or -1 < write.layout_epoch < home.move
    return is_sealed_since or write.undeleted_partition_count != count
