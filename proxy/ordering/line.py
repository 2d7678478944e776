"""What clients want written to one stream: one first-in, first-out line (LATE-BINDING, OPENER-ALONE).

A write is bound to physical partition, identity and sequence when it is sent, not when it comes. A write that must wait
for its identity is parked with all that follow of the same identity, and those of others overtake it. Writes without a
producer id get one of the line's own; a failure among these costs an epoch, and what was sent behind it goes again.
Where the broker has judged a batch before it would have appended it, that costs its own client only: its sequences are
free, and what was sent behind it takes them.

Clients of the dialect choose physical partitions by their number, and say by which: that, too, is judged when a write
is sent, behind the image, which knows whether the write is there already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.images import Image, WhyNotWritten
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.writers import MOST_REMEMBERED, Pause, WhyUnfit, Writers

NO_PRODUCER: Final = -1
"""The producer id of batches without idempotence."""
_SEQUENCES: Final = 1 << 31
_LAST_EPOCH: Final = (1 << 15) - 1
_MOST_ATTEMPTS: Final = 5
"""A write of the line's own identity is sent no more often than that."""


class Binding(NamedTuple):
    """Under what a write is sent."""

    partition: int
    """The physical partition."""
    move: int
    """As `Stay` has it."""
    client_id: int
    """The producer id as the client knows it, or the line's own."""
    producer_id: int
    """As it stands in the log."""
    epoch: int
    sequence: int
    opens: bool
    """Whether it is the first of its identity in this home."""


@dataclass(slots=True, eq=False)
class Write:
    """One batch for one stream."""

    producer_id: int
    """-1 without idempotence."""
    producer_epoch: int
    base_sequence: int
    records: int
    """How many sequence numbers it takes."""
    size: int
    """Bytes."""
    acks: int
    """1 or -1."""
    since: float
    """When it came, in seconds."""
    payload: Any = None
    """Whatever whoever sends it needs."""
    undeleted_partition_count: int | None = None
    """By which its client chose the physical partition, or -1 (`layout.NO_COUNT`); None where it sees virtual ones."""
    layout_epoch: int = -1
    """Of the layout by which it did; -1: it does not say. Another layout may have the same count again."""
    sent_epoch: int | None = None
    """Of the layout in force when it was sent, where its client tells a number of partitions."""
    abandoned: bool = False
    """Its client has gone: it is not sent any more."""
    asked: bool = False
    attempts: int = 0
    bound: Binding | None = None
    """Of its last sending."""


class Result(Enum):
    """What the broker said of a write."""

    WRITTEN = "written"
    REJECTED = "rejected"
    """An error of the batch itself: it is not in the log, and will not be."""
    REFUSED = "refused"
    """Another error for whoever sent the batch: it may be in the log."""
    SEQUENCE = "sequence"
    """An error of the identity: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID."""
    LOST = "lost"
    """There will be no answer."""


class Refuse(NamedTuple):
    """This write does not go into the log."""

    write: Write
    why: WhyNotWritten | WhyUnfit


@dataclass(slots=True)
class _LentIdentity:
    """The identity of writes that came without one."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    in_flight: int = 0
    broken: bool = False
    """Its next write begins another epoch, once nothing of it is under way."""
    free: int | None = None
    """The sequence of a batch that was rejected: the next write takes it, once nothing that was sent behind is under
    way; none of that can have been appended."""
    again: list[Write] = field(default_factory=list[Write])
    """What was sent behind a failure, in its order."""

    @property
    def rests(self) -> bool:
        """Whether nothing is sent before all that is under way is answered."""
        return self.broken or self.free is not None


class Line:
    """The line of one stream.

    Args:
        stream: Whose.
        moved: Is told when the first write is bound to another home than those before, and which one that was, by
            partition and move.
    """

    def __init__(self, stream: Stream, moved: Callable[[tuple[int, int], Stay], None] | None = None) -> None:
        self.stream = stream
        self._moved = moved
        self.in_flight = 0
        """Writes that are sent and not answered."""
        self._waiting: deque[Write] = deque()
        self._parked: dict[int, deque[Write]] = {}
        """By the producer id of the client, what waits for its identity."""
        self._writers = Writers()
        self._home: tuple[int, int] | None = None
        self._own: _LentIdentity | None = None
        self.spent_id: int | None = None
        """The producer id whose epochs are used up here; another one is needed."""
        self._to_ask: set[int] = set()
        self._asked: set[int] = set()

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not (self._waiting or self._parked or self.in_flight)

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

    def add(self, write: Write) -> None:
        """Puts a write at the end."""
        self._waiting.append(write)

    def next(
        self, home: Stay, image: Image, fits: Callable[[Write], bool], undeleted_partition_count: int | None = None
    ) -> Write | Refuse | None:
        """Takes out what is next.

        Args:
            home: Where the stream lives now; with an end if it is a retired partition, to which nothing is written.
            image: Of its last move.
            fits: Whether a write may be sent with others; asked before it is taken out.
            undeleted_partition_count: In force; None where no write tells one.

        Returns:
            What goes to the broker now, as it is bound; None if nothing can be sent now.
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

    def answered(self, write: Write, result: Result) -> bool:
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
        return write.producer_id != NO_PRODUCER or self._own_answered(write, bound, result)

    def identify(self, producer_id: int) -> None:
        """Gives the line a producer id of its own, that nobody has used in this stream."""
        self._own = _LentIdentity(producer_id)
        self._unpark(NO_PRODUCER)

    def begin_question(self) -> None:
        """The broker is being asked from now on which identities have begun in the present home."""
        self._asked |= self._to_ask
        self._to_ask = set()
        for producer_id in self._asked:
            for write in self._parked.get(producer_id, ()):
                write.asked = True

    def learn(self, partition: int, move: int, begun: Collection[int]) -> None:
        """Takes in the broker's answer.

        Args:
            partition: Which physical partition it is about.
            move: Which stay there.
            begun: Producer ids as clients know them.
        """
        if self._home != (partition, move):
            return
        asked, self._asked = self._asked, set()
        self._writers.learn(begun if len(begun) <= MOST_REMEMBERED else asked.intersection(begun))
        for producer_id in asked:
            self._unpark(producer_id)

    def give_up_question(self) -> list[Write]:
        """The broker could not be asked; returns what cannot be judged, and forgets it."""
        asked, self._asked = self._asked, set()
        return [write for producer_id in asked for write in self._parked.pop(producer_id, ())]

    def give_up(self) -> list[Write]:
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

    def _arrive(self, home: Stay) -> None:
        """Forgets what was known of the home before."""
        if self._home is not None and self._moved is not None:
            self._moved(self._home, home)
        self._home = (home.partition, home.move)
        self._writers.move()
        self._to_ask.clear()
        self._asked.clear()
        if self._own is not None and self._own.sequence:
            self._own.broken = True  # another epoch begins at 0 everywhere, whatever the image has of this one
            self._renew(self._own)
        for producer_id in list(self._parked):
            self._unpark(producer_id)
        for write in self._waiting:
            write.asked = False

    def _bind(self, write: Write, home: Stay, image: Image, count: int | None) -> Write | Refuse | None:
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
        behind = base + write.records
        last = (behind - 1) % _SEQUENCES
        verdict = self._writers.judge(image, client_id, epoch, base, last, asked=write.asked, is_outdated=is_outdated)
        if isinstance(verdict, Pause):
            if verdict is Pause.QUESTION:
                self._to_ask.add(write.producer_id)
            return None
        if not isinstance(verdict, int):
            return Refuse(write, verdict)
        if write.producer_id == NO_PRODUCER and own is not None:
            own.sequence = behind % _SEQUENCES
            own.in_flight += 1
        self.in_flight += 1
        opens = self._writers.sent(client_id)
        producer_id = tag(self.stream, home.move, client_id)
        write.bound = Binding(home.partition, home.move, client_id, producer_id, epoch, verdict, opens)
        return write

    def _own_answered(self, write: Write, bound: Binding, result: Result) -> bool:
        own = self._own
        assert own is not None, "it was sent under it"
        own.in_flight -= 1
        if result is not Result.SEQUENCE or own.free is None:  # behind a rejected one it fails by no fault of its own
            write.attempts += 1
        again = result is Result.SEQUENCE and write.attempts < _MOST_ATTEMPTS and not write.abandoned
        if again:
            own.again.append(write)
        if result is Result.REJECTED:
            own.free = bound.sequence if own.free is None else own.free
        elif result is Result.WRITTEN:
            own.broken |= own.free is not None  # brokers that have forgotten an identity take what is behind a gap
        elif own.free is None or result is not Result.SEQUENCE:
            own.broken = True
        self._renew(own)
        return not again

    def _renew(self, own: _LentIdentity) -> None:
        """Goes on behind a failure, as soon as nothing of its epoch is under way: in another one where it is broken."""
        if not own.rests or own.in_flight:
            return
        parked = self._parked.setdefault(NO_PRODUCER, deque())
        parked.extendleft(reversed(own.again))
        if not own.broken and own.free is not None:
            own.sequence, own.free, own.again = own.free, None, []
        elif own.epoch < _LAST_EPOCH:
            self._own = _LentIdentity(own.producer_id, own.epoch + 1)
        else:
            self._own, self.spent_id = None, own.producer_id
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
