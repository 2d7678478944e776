"""What a proxy does around the product's decisions: it asks the coordinator, reads and writes the log, and dies.

A request is a generator. Each `yield` says how long it waits, in seconds, and is where its proxy may die or stop.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias

from kordon.proxy.ordering import claims
from kordon.proxy.ordering.claims import (
    NO_INCARNATION,
    NO_OFFSET,
    Begun,
    Done,
    Place,
    PlaceKey,
    Said,
    Seen,
    Start,
    Told,
)
from kordon.testing.claims.world import Primary, Reader

if TYPE_CHECKING:
    from kordon.testing.claims.run import World

MOST_RANGES: Final = 6
"""In place of 10,000."""
_LOOKS: Final = 3
"""At what the coordinator knows, before a client is told to ask again."""
_STALLS: Final = 0.04
_NAMES: Final = count(1)


class Refusal(Enum):
    """Why a request is refused."""

    FENCED = auto()
    """The coordinator does not take it."""
    TOO_OLD = auto()
    FULL = auto()
    BUSY = auto()


@dataclass(frozen=True)
class Commit:
    """An OffsetCommit with ranges."""

    member: object
    generation: int
    place: PlaceKey
    incarnation: int
    done: Done


@dataclass(frozen=True)
class FetchOffsets:
    """An OffsetFetch with ranges."""

    member: object
    place: PlaceKey


Request: TypeAlias = Commit | FetchOffsets
Answer: TypeAlias = Told | Refusal
Serving: TypeAlias = Generator[float, None, Answer]


class Proxy:
    """One process of Kordon."""

    def __init__(self, world: World) -> None:
        self.reader = Reader(world.log)
        self.life = 0
        """How often it has died."""
        self.asleep_until = 0.0
        self._world = world
        self._numbers = count()

    def die(self) -> None:
        """Forgets everything, and begins anew."""
        self.life += 1
        self.reader = Reader(self._world.log)

    def follow(self) -> None:
        """Reads what stands in the log."""
        self.reader.read(self._world.log.end)

    def serve(self, request: Request) -> Serving:
        """Serves a request."""
        cuts = self._world.log.cuts
        serving = self.commit(request) if isinstance(request, Commit) else self.fetch_offsets(request)
        answer = yield from serving
        return Refusal.BUSY if self.has_lost(cuts) else answer

    def has_lost(self, cuts: int) -> bool:
        """Whether the log has lost records meanwhile, so that nothing that was made of it counts."""
        return cuts != self._world.log.cuts

    def commit(self, asked: Commit) -> Serving:
        """Serves an OffsetCommit."""
        place = self._place(asked.place)
        if not self.is_of(asked, place):
            yield from self.read_to_end()
            place = self._place(asked.place)
            if not self.is_of(asked, place):
                return Refusal.TOO_OLD
        offset = claims.to_push(place, asked.done.stable)
        yield from self._travel()
        if not self._accepts(asked, offset):
            return Refusal.FENCED
        yield from self._travel()
        place = self._place(asked.place)
        if not self.is_of(asked, place):
            return Refusal.TOO_OLD
        done, left = claims.fitting(place.done, asked.done, MOST_RANGES)
        said = place.to_write(self.claimed(asked, place), done)
        if said is not None:
            yield from self.write(asked.place, said, self.reader.position)
        place = self._place(asked.place)
        if not self.is_of(asked, place):
            return Refusal.TOO_OLD
        return Refusal.FULL if left else Told(place.incarnation, place.done)

    def is_of(self, asked: Commit, place: Place) -> bool:
        """Whether a commit belongs to the newest incarnation."""
        return asked.incarnation == place.incarnation != NO_INCARNATION

    def claimed(self, asked: Commit, place: Place) -> int:
        """Returns the incarnation of a claim: the one that its member was told."""
        return asked.incarnation

    def _accepts(self, asked: Commit, offset: int) -> bool:
        world = self._world
        is_of_topic, is_first = asked.place == world.data.place, world.coordinator.primary.offset == NO_OFFSET
        if not world.coordinator.commit(asked.member, asked.generation, Primary(offset, asked.incarnation)):
            return False
        if is_of_topic:
            if is_first:
                world.promises.on_begun(offset)
            world.promises.on_push(offset)
        return True

    def fetch_offsets(self, asked: FetchOffsets) -> Serving:
        """Serves an OffsetFetch."""
        begun: Begun | None = None
        for _ in range(_LOOKS):
            yield from self.read_to_end()
            seen = self.seen(asked.place)
            yield from self._travel()
            primary, pushes = self._world.coordinator.primary, self._world.coordinator.pushes
            yield from self._travel()
            start = claims.found_start(self.seen_late(asked.place, seen), *primary, next(_NAMES), begun)
            if start is None:
                break
            yield from self.write(asked.place, start, None, pushes)
            begun = Begun(*primary, start.name)
            if not self.asks_again(start, self._place(asked.place)):
                break
        else:
            return Refusal.BUSY
        yield from self.read_to_end()
        place = self._place(asked.place)
        return claims.told(place, *primary) if place.incarnation != NO_INCARNATION else Refusal.BUSY

    def asks_again(self, start: Start, place: Place) -> bool:
        """Whether the coordinator is asked again when a start was read back.

        If another start came first, what that says may be older. If it counts, a member may have committed meanwhile.
        """
        return True

    def seen(self, place: PlaceKey) -> Seen:
        """Returns what counts as known when the coordinator is asked."""
        return self._place(place).seen()

    def seen_late(self, place: PlaceKey, seen: Seen) -> Seen:
        """Returns what counts as known when the coordinator has answered: what was known when it was asked."""
        return seen

    def write(self, place: PlaceKey, said: Said, read_to: int | None, pushes: int = -1) -> Generator[float, None, None]:
        """Appends a record and reads it back; takes out what it outlives.

        Args:
            read_to: How far the log had been read when it was made; None: it ends all that stands before it.
            pushes: Of the coordinator when it was asked.
        """
        key = f"{id(self)}-{self.life}-{next(self._numbers)}"
        yield from self._travel()
        offset = self._world.log.append(place, [(key, said)])
        if isinstance(said, Start) and pushes not in (-1, self._world.coordinator.pushes):
            self._world.promises.on_forestalled(said.ends)
        yield from self._travel()
        self.reader.read(offset + 1)
        if isinstance(said, Start):
            gone = self._place(place).outlived(key, self.bound(offset, read_to))
            yield from self.take_out(place, gone)

    def bound(self, offset: int, read_to: int | None) -> int:
        """Returns before which offset a start outlives what stands in the log."""
        return offset if read_to is None else read_to

    def take_out(self, place: PlaceKey, keys: list[str]) -> Generator[float, None, None]:
        """Takes records out, all in one batch."""
        if keys:
            yield from self._travel()
            self._world.log.append(place, [(key, None) for key in keys])

    def read_to_end(self) -> Generator[float, None, None]:
        """Reads all that stood in the log when it was asked for its end."""
        end = self._world.log.end
        yield from self._travel()
        self.reader.read(end)

    def _place(self, key: PlaceKey) -> Place:
        return self.reader.claims.of(key)

    def _travel(self) -> Generator[float, None, None]:
        rng = self._world.rng
        yield rng.uniform(0, 20) if not self._world.is_calm and rng.random() < _STALLS else rng.uniform(0, 0.02)
