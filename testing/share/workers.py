"""What a worker does around the product's decisions: it reads and writes the log, sleeps, and dies.

A request is a generator. Each `yield` says how long it waits, in seconds, and is where its worker may die or stop.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.claims import NO_OFFSET, Done, Start
from kordon.proxy.ordering.share.acknowledging import AcknowledgementBatch, JudgedAcknowledgements, acknowledge, stands
from kordon.proxy.ordering.share.acquiring import GivenRecord, Wish, acquire, given
from kordon.proxy.ordering.share.state import Said
from kordon.proxy.ordering.share.window import ShareWindow
from kordon.testing.share.world import Reader

if TYPE_CHECKING:
    from kordon.testing.share.run import World

_AHEAD: Final = 14
"""Offsets that a worker looks ahead."""
_SEND_WITHIN_SECONDS: Final = 1.0
_STALLS: Final = 0.12
_NAMES: Final = count(1)


@dataclass(frozen=True)
class Fetch:
    """A ShareFetch, with acknowledgements of what its member was given before."""

    member: str
    most: int
    batches: Sequence[AcknowledgementBatch] = ()


@dataclass(frozen=True)
class Reset:
    """An AlterShareGroupOffsets that the coordinator has taken: the group is empty."""

    offset: int


@dataclass(frozen=True)
class Answer:
    """What a client is told."""

    code: Code = Code.NONE
    """Of the acknowledgements."""
    given: Sequence[GivenRecord] = ()
    incarnation: int = 0
    """Of what is given; no client is told that."""


Request: TypeAlias = Fetch | Reset
Serving: TypeAlias = Generator[float, None, Answer]
Writing: TypeAlias = Generator[float, None, list[str]]


@dataclass
class Worker:
    """One worker of Kordon."""

    world: World
    reader: Reader = field(init=False)
    window: ShareWindow = field(init=False)
    life: int = 0
    """How often it has died."""
    asleep_until: float = 0.0
    _of: int = 0
    """The incarnation whose records are in the window."""
    _numbers: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.reader = Reader(self.world.log)
        self.window = ShareWindow(0)

    def die(self) -> None:
        """Forgets everything, and begins anew."""
        self.life += 1
        self.reader = Reader(self.world.log)
        self.window, self._of = ShareWindow(0), 0

    def follow(self) -> None:
        """Reads what stands in the log."""
        self.reader.read(self.world.log.end, self.world.now)

    def serve(self, request: Request) -> Serving:
        """Serves a request."""
        if isinstance(request, Reset):
            return (yield from self.begin(request.offset))
        code = (yield from self.acknowledge(request)) if request.batches else Code.NONE
        if not self.reader.state.incarnation:
            yield from self.begin(self.world.first_offset())
        return (yield from self.give(request, code))

    def begin(self, offset: int) -> Serving:
        """Has the group begin at an offset."""
        start = Start(next(_NAMES), self.reader.state.incarnation, Done(offset))
        yield from self.write([start])
        return Answer(Code.NONE if self.reader.state.incarnation == start.name else Code.COORDINATOR_NOT_AVAILABLE)

    def acknowledge(self, asked: Fetch) -> Generator[float, None, Code]:
        """Writes what a member makes of records, and reads it back."""
        state, world = self.reader.state, self.world
        judged = acknowledge(state, self.window, asked.member, asked.batches, may_renew=True)
        if not self.is_sure(judged):
            yield from self.read_to_end()
            judged = acknowledge(state, self.window, asked.member, asked.batches, may_renew=True)
        if judged.code is not Code.NONE:
            return judged.code
        done = Done(NO_OFFSET)
        for each in judged.outcomes:
            done = done.joined(Done(NO_OFFSET, each.done))
        renewal = state.place.to_write(state.incarnation, done)
        read_to = self.reader.position
        starts = [renewal] if isinstance(renewal, Start) else []
        keys = yield from self.write([*judged.outcomes, *judged.renewals, *starts])
        state = self.reader.state
        is_told = stands(state, judged, keys)
        gone = state.outlived(world.now - world.terms.lock_seconds)
        gone += state.place.outlived(keys[-1], read_to) if starts else ()
        if gone and world.rng.random() < 0.7:
            yield from self.append([(key, None) for key in gone])
        return Code.NONE if is_told else Code.INVALID_RECORD_STATE

    def is_sure(self, judged: JudgedAcknowledgements) -> bool:
        """Whether what it has judged stands, whatever it has not read yet."""
        return judged.is_sure

    def read_to_end(self) -> Generator[float, None, None]:
        """Reads all that stood in the log when it was asked for its end."""
        end = self.world.log.end
        yield from self._travel()
        self.reader.read(end, self.world.now)

    def give(self, asked: Fetch, code: Code) -> Serving:
        """Locks records for a member, and gives it what was read back."""
        self.look_ahead()
        state, world = self.reader.state, self.world
        wanted = acquire(state, self.window, world.terms, Wish(asked.member, asked.most), world.now)
        if not wanted.locks and not wanted.outcomes:
            return Answer(code)
        began = world.now
        keys = yield from self.write([*wanted.outcomes, *wanted.locks])
        locks = keys[len(wanted.outcomes) :]
        found = given(self.reader.state, self.window, locks)
        return Answer(code, found if self.is_in_time(world.now - began) else (), self.reader.state.incarnation)

    def is_in_time(self, seconds: float) -> bool:
        """Whether records may be given away so long after their locks were made: the locks run."""
        return seconds <= _SEND_WITHIN_SECONDS

    def look_ahead(self) -> None:
        """Looks at the records ahead of what is done, as far as it may."""
        state, data = self.reader.state, self.world.data
        begin = self.first_ahead()
        if self._of != state.incarnation or self.window.begin > begin or self.window.end < begin:
            self.window, self._of = ShareWindow(begin), state.incarnation
        self.window.drop_before(begin)
        end = min(data.end, max(self.window.end, begin + _AHEAD))
        self.window.look(end, data.ahead(self.window.end, end))

    def first_ahead(self) -> int:
        """Returns the first offset that it has to look at."""
        return max(0, self.reader.state.done.stable)

    def write(self, said: Sequence[Said]) -> Writing:
        """Writes records, and reads them back; returns their keys."""
        if not said:
            return []
        entries = [(f"{id(self)}-{self.life}-{next(self._numbers)}", each) for each in said]
        yield from self.append(entries)
        return [key for key, _ in entries]

    def append(self, entries: Sequence[tuple[str, Said | None]]) -> Generator[float, None, None]:
        """Writes a batch, and reads it back."""
        yield from self._travel()
        offset = self.world.log.append(list(entries))
        for _, said in entries:
            self.world.promises.on_written(said)
        yield from self._travel()
        self.reader.read(offset + 1, self.world.now)

    def _travel(self) -> Generator[float, None, None]:
        rng = self.world.rng
        stalls = not self.world.is_calm and rng.random() < _STALLS
        yield rng.uniform(0, rng.choice([6, 20])) if stalls else rng.uniform(0, 0.02)
