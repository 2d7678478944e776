"""What a worker does around the product's decisions: it reads and writes the log, sleeps, and dies.

A request is a generator. Each `yield` says how long it waits, in seconds, and is where its worker may die or stop.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.claims import NO_INCARNATION, NO_OFFSET, Done, Start
from kordon.proxy.ordering.share.acknowledging import AcknowledgementBatch, JudgedAcknowledgements, acknowledge, stands
from kordon.proxy.ordering.share.acquiring import GivenRecord, Wish, acquire, given
from kordon.proxy.ordering.share.opening import Opening
from kordon.proxy.ordering.share.state import Said
from kordon.proxy.ordering.share.window import ShareWindow
from kordon.testing.share.world import Entry, Reader

if TYPE_CHECKING:
    from kordon.testing.share.run import World

_AHEAD: Final = 14
"""Offsets that a worker looks ahead."""
_SEND_WITHIN_SECONDS: Final = 1.0
_STALLS: Final = 0.12
_NAMES: Final = count(1)
GROUP: Final = "sharers"


@dataclass(frozen=True)
class Fetch:
    """A ShareFetch, with acknowledgements of what its member was given before."""

    life: int
    """Of the topic that is meant."""
    member: str
    most: int
    batches: Sequence[AcknowledgementBatch] = ()


@dataclass(frozen=True)
class Reset:
    """An AlterShareGroupOffsets that the coordinator has taken: the group is empty."""

    life: int
    offset: int


@dataclass(frozen=True)
class Answer:
    """What a client is told."""

    code: Code = Code.NONE
    """Of the acknowledgements."""
    given: Sequence[GivenRecord] = ()
    incarnation: int = 0
    """Of what is given; no client is told that."""


class LostLogError(Exception):
    """The log is another one than was read."""


Request: TypeAlias = Fetch | Reset
Serving: TypeAlias = Generator[float, None, Answer]
Writing: TypeAlias = Generator[float, None, list[str]]


@dataclass
class Worker:
    """One worker of Kordon."""

    world: World
    reader: Reader = field(init=False)
    life: int = 0
    """How often it has died."""
    asleep_until: float = 0.0
    frozen: tuple[float, int] = (0.0, 0)
    """Until when it reads no record from an offset on, which is where a resize cuts the partition."""
    _windows: dict[int, tuple[int, ShareWindow]] = field(default_factory=dict[int, tuple[int, ShareWindow]])
    """By life of the topic, the incarnation that was looked ahead in, and the records."""
    _numbers: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.reader = Reader(self.world.log)

    def die(self) -> None:
        """Forgets everything, and begins anew."""
        self.life += 1
        self.reader = Reader(self.world.log)
        self._windows = {}

    def follow(self) -> None:
        """Reads what stands in the log."""
        self.reader.read(self.world.log.end, self.world.now)

    def serve(self, request: Request) -> Serving:
        """Serves a request."""
        if request.life != self.world.data.life:
            return Answer(Code.UNKNOWN_TOPIC_ID)
        life = self.reader.life
        serving = self.reset(request) if isinstance(request, Reset) else self.share(request)
        try:
            if not self.reader.openings.is_open:
                yield from self.open()
            answer = yield from serving
        except LostLogError:
            self.follow()
            return Answer(Code.COORDINATOR_NOT_AVAILABLE)
        return Answer(Code.COORDINATOR_NOT_AVAILABLE) if self.has_begun_anew(life) else answer

    def has_begun_anew(self, life: int) -> bool:
        """Whether the log was found to have lost records meanwhile, so that nothing that was made of it counts."""
        return life != self.reader.life

    def open(self) -> Generator[float, None, None]:
        """Reads the log to its end, and writes the opening that it lacks."""
        yield from self.read_to_end()
        if not self.reader.openings.is_open:
            older = frozenset([GROUP]) if self.world.has_group else frozenset[str]()
            yield from self._travel()
            self.world.log.openings.append(Opening(older))
            yield from self.read_to_end()

    def reset(self, asked: Reset) -> Serving:
        """Has the group begin at an offset, whatever it has done."""
        start = Start(next(_NAMES), self.reader.of(asked.life).incarnation, Done(asked.offset))
        self.world.promises.on_wish(start.name)
        yield from self.write(asked.life, [start])
        is_so = self.reader.of(asked.life).incarnation == start.name
        return Answer(Code.NONE if is_so else Code.COORDINATOR_NOT_AVAILABLE)

    def share(self, asked: Fetch) -> Serving:
        """Serves a ShareFetch."""
        code = (yield from self.acknowledge(asked)) if asked.batches else Code.NONE
        if not self.reader.of(asked.life).incarnation:
            if not self.may_begin():
                raise LostLogError
            is_older = self.reader.openings.begins_at_earliest(GROUP)
            begin = Start(next(_NAMES), NO_INCARNATION, Done(0 if is_older else self.world.first_offset()))
            yield from self.write(asked.life, [begin])
        return (yield from self.give(asked, code))

    def may_begin(self) -> bool:
        """Whether a group may begin: the log has an opening, also if it was lost since the request came."""
        return self.reader.openings.is_open

    def acknowledge(self, asked: Fetch) -> Generator[float, None, Code]:
        """Writes what a member makes of records, and reads it back."""
        world, window = self.world, self.window(asked.life)
        state = self.reader.of(asked.life)
        judged = acknowledge(state, window, asked.member, asked.batches, may_renew=True)
        if not self.is_sure(judged):
            yield from self.read_to_end()
            state = self.reader.of(asked.life)
            judged = acknowledge(state, window, asked.member, asked.batches, may_renew=True)
        if judged.code is not Code.NONE:
            return judged.code
        done = Done(NO_OFFSET)
        for each in judged.outcomes:
            done = done.joined(Done(NO_OFFSET, each.done))
        renewal = state.place.to_write(state.incarnation, done)
        read_to = self.reader.position
        starts = [renewal] if isinstance(renewal, Start) else []
        keys = yield from self.write(asked.life, [*judged.outcomes, *judged.renewals, *starts])
        state = self.reader.of(asked.life)
        is_told = stands(state, judged, keys)
        gone = state.outlived(world.now - world.terms.lock_seconds)
        gone += state.place.outlived(keys[-1], read_to) if starts else ()
        if gone and world.rng.random() < 0.7:
            yield from self.append(asked.life, [(key, None) for key in gone])
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
        window = self.look_ahead(asked.life)
        state, world = self.reader.of(asked.life), self.world
        wanted = acquire(state, window, world.terms, Wish(asked.member, asked.most), world.now)
        if not wanted.locks and not wanted.outcomes:
            return Answer(code)
        began = world.now
        keys = yield from self.write(asked.life, [*wanted.outcomes, *wanted.locks])
        locks = keys[len(wanted.outcomes) :]
        state = self.reader.of(asked.life)
        found = given(state, window, locks)
        if not self.is_in_time(world.now - began):
            state.void(asked.member, [each.offset for each in found])
            return Answer(code, (), state.incarnation)
        return Answer(code, found, state.incarnation)

    def is_in_time(self, seconds: float) -> bool:
        """Whether records may be given away so long after their locks were made: the locks run."""
        return seconds <= _SEND_WITHIN_SECONDS

    def window(self, life: int) -> ShareWindow:
        """Returns what it has looked at."""
        return self._windows.setdefault(life, (NO_INCARNATION, ShareWindow(0)))[1]

    def look_ahead(self, life: int) -> ShareWindow:
        """Looks at the records ahead of what is done, as far as it may; returns all that it has looked at."""
        data, begin, now = self.world.data, self.first_ahead(life), self.reader.of(life).incarnation
        of, window = self._windows.get(life, (NO_INCARNATION, ShareWindow(0)))
        if of != now or window.begin > begin or window.end < begin:
            window = ShareWindow(begin)
        self._windows[life] = now, window
        window.drop_before(begin)
        until, cut = self.frozen
        seen = min(data.end, cut) if self.world.now < until else data.end
        end = max(window.end, min(seen, begin + _AHEAD))
        window.look(end, data.ahead(window.end, end))
        return window

    def first_ahead(self, life: int) -> int:
        """Returns the first offset that it has to look at."""
        return max(0, self.reader.of(life).done.stable)

    def write(self, life: int, said: Sequence[Said]) -> Writing:
        """Writes records, and reads them back; returns their keys."""
        if not said:
            return []
        entries = [(self._key(), each) for each in said]
        yield from self.append(life, entries)
        return [key for key, _ in entries]

    def _key(self) -> str:
        return f"{id(self)}-{self.life}-{next(self._numbers)}"

    def append(self, life: int, entries: Sequence[Entry]) -> Generator[float, None, None]:
        """Writes a batch, and reads it back."""
        topic = self.reader.topic
        yield from self._travel()
        if topic != self.world.log.topics:
            raise LostLogError
        offset = self.world.log.append(life, list(entries))
        self.world.on_written(life, entries)
        yield from self._travel()
        self.reader.read(offset + 1, self.world.now)

    def _travel(self) -> Generator[float, None, None]:
        rng = self.world.rng
        stalls = not self.world.is_calm and rng.random() < _STALLS
        yield rng.uniform(0, rng.choice([6, 20])) if stalls else rng.uniform(0, 0.02)
