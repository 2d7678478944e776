"""Members of the group, who do records out of order, and each key's in order; and one who may not."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from typing import TYPE_CHECKING, Final

from kordon.client.cooperative.first_offsets import FirstOffsets
from kordon.codecs.ranges import Ranges
from kordon.proxy.ordering.claims import NO_OFFSET, Done, PlaceKey, Told
from kordon.testing.claims.promises import key_of
from kordon.testing.claims.proxies import Answer, Commit, FetchOffsets, Refusal, Request

if TYPE_CHECKING:
    from kordon.testing.claims.run import World

_PATIENCE_SECONDS: Final = 3.0
_IN_HAND: Final = 12
_AT_ONCE: Final = 4
_PAUSE_SECONDS: Final = 0.3

Waiting = Generator[float, None, Answer | None]


class Member:
    """Has the partition in one generation; it goes on with its work when it has lost it, and nobody believes it.

    Args:
        share: The keys that it has.
    """

    def __init__(self, world: World, generation: int, share: Collection[int]) -> None:
        self.is_stopped = False
        self._world = world
        self._generation = generation
        self._share = share
        self._wish = world.promises.wish
        self._place = world.data.place
        self._first: FirstOffsets[PlaceKey] = FirstOffsets()
        self._incarnation = 0
        self.done = Done()
        """What is done, as far as it knows."""
        self._position = 0
        self._in_hand: dict[int, int] = {}
        """By offset, the records that are not done, by number."""
        self._gaps: list[int] = []
        """Offsets that are done, and such that no record has."""
        self.sent = Done()
        """What was named in commits."""
        self._acknowledged = Done()

    @property
    def is_up_to_date(self) -> bool:
        """Whether all that there is is done and acknowledged."""
        return self.done.stable == self._world.data.end and self._acknowledged == self.done

    def live(self) -> Iterator[float]:
        """Does its work until it is fenced; each `yield` says how long it waits."""
        while not self.is_stopped:
            yield from self._begin()
            while not self.is_stopped:
                yield self._world.rng.uniform(0, _PAUSE_SECONDS)
                self._work()
                if self._world.rng.random() < 0.4:
                    answer = yield from self._commit()
                    if answer is Refusal.TOO_OLD:
                        break

    def _begin(self) -> Iterator[float]:
        """Asks where the group stands, and commits where it begins if it has stood nowhere."""
        world = self._world
        while not self.is_stopped:
            acknowledged, wish = set(world.promises.acknowledged), world.promises.wish
            told = yield from self._ask(FetchOffsets(self, self._place))
            if not isinstance(told, Told):
                continue
            if self._wish == world.promises.wish:
                world.promises.on_told(told, acknowledged, wish)
            self._incarnation, self.done = told
            self.sent = self._acknowledged = Done()
            self._in_hand.clear()
            self._gaps.clear()
            has_begun = told.done.stable != NO_OFFSET
            if not has_begun:
                self.done = Done(self._first.of(self._place, world.first_offset()))
            self._position = self.done.stable
            if has_begun or (yield from self.say_where_it_begins()):
                return

    def say_where_it_begins(self) -> Generator[float, None, bool]:
        """Commits where it begins, before it asks for any record; returns whether that is so."""
        answer: Answer | None = None
        while not isinstance(answer, Told) and not self.is_stopped:
            answer = yield from self._commit()
            if answer is Refusal.TOO_OLD:
                return False
        return True

    def _work(self) -> None:
        """Takes records, and does some of them: of each key the first."""
        data, rng = self._world.data, self._world.rng
        if self._place != data.place:
            return
        if self._wish == self._world.promises.wish:
            self._world.promises.on_begun(self._position)
        while self._position < data.end and len(self._in_hand) < _IN_HAND:
            number = data.records[self._position]
            if number is None:
                self._gaps.append(self._position)
            elif key_of(number) in self._share and not self.done.has(self._position):
                self._in_hand[self._position] = number
            self._position += 1
        for _ in range(rng.randint(0, _AT_ONCE)):
            first: dict[int, int] = {}
            for offset in sorted(self._in_hand):
                first.setdefault(key_of(self._in_hand[offset]), offset)
            if first:
                offset = rng.choice(sorted(first.values()))
                self._world.promises.on_done(self._in_hand.pop(offset), self._wish)
                self._gaps.append(offset)
        self.done = self.done.joined(Done(NO_OFFSET, Ranges((each, each + 1) for each in self._gaps)))
        self._gaps.clear()

    def named(self) -> Done:
        """Returns what a commit names: all that is done, since earlier ones may not have been taken."""
        return self.done

    def _commit(self) -> Waiting:
        named, wish = self.named(), self._wish
        self.sent = self.done
        answer = yield from self._ask(Commit(self, self._generation, self._place, self._incarnation, named))
        if isinstance(answer, Told):
            self._acknowledged = self._acknowledged.joined(named).joined(answer.done)
            self.done = self.done.joined(answer.done)
            if self._place == self._world.data.place:
                self._world.promises.on_acknowledged(named, wish, self._incarnation)
        if answer is Refusal.FENCED:
            self.is_stopped = True
        return answer

    def _ask(self, request: Request) -> Waiting:
        """Asks some proxy; None: there is no answer in time."""
        came = self._world.send(request)
        until = self._world.now + _PATIENCE_SECONDS * self._world.rng.choice([1, 1, 10])
        while not came and self._world.now < until:
            yield 0.1
        return came[0] if came else None


def intrude(world: World) -> Iterator[float]:
    """Sends commits that the coordinator does not take, of work that nobody has done."""
    while not world.is_calm:
        yield world.rng.uniform(0, 20)
        place = world.data.place
        incarnation = world.log_reader().claims.of(place).incarnation
        done = Done(world.rng.randint(0, world.data.end + 1))
        world.send(Commit(object(), world.coordinator.generation, place, incarnation, done))
