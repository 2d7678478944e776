"""Members of the group, as Java's share consumer is, and worse: they stop, die, and answer late."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import count
from typing import TYPE_CHECKING, Final

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.share.acknowledging import AcknowledgementBatch, ShareAcknowledgeType
from kordon.testing.share.workers import Answer, Fetch

if TYPE_CHECKING:
    from kordon.testing.share.run import World

_PATIENCE_SECONDS: Final = (3.0, 3.0, 30.0)
_PAUSE_SECONDS: Final = 0.4
_IDLE_SECONDS: Final = 1.5
_MOST: Final = 6
_NAMES: Final = count(1)


class Member:
    """A consumer process; each request goes to some worker, since each connection may lead to another."""

    def __init__(self, world: World) -> None:
        self.name = f"member-{next(_NAMES)}"
        """Of its share session."""
        self.is_stopped = False
        self._world = world
        self._life = world.data.life
        self._in_hand: dict[int, int] = {}
        """Offsets, and the incarnation in which each was given."""
        self._slow = world.rng.choice([0.1, 0.4, 0.8])
        """How often it is not yet done with a record."""

    def live(self) -> Iterator[float]:
        """Works until it dies or is to stop; each `yield` says how long it waits."""
        world = self._world
        while not self.is_stopped:
            yield world.rng.uniform(0, _PAUSE_SECONDS)
            if self._life != world.data.life:
                self._life = world.data.life
                self._begin_session()
            if not world.is_calm and world.rng.random() < 0.05:
                yield world.rng.choice([2.0, 8.0, 20.0])  # it is stopped, or slow, with records in hand
            said = self._handle()
            if said is None:
                break
            yield from self._ask(said)
        world.promises.on_gone(self.name)
        world.gone(self)

    def _handle(self) -> dict[int, ShareAcknowledgeType] | None:
        """Makes up its mind about some records; None: one of them has killed it."""
        world, said = self._world, dict[int, ShareAcknowledgeType]()
        for offset, incarnation in sorted(self._in_hand.items()):
            record, chance = world.data.records[offset], world.rng.random()
            if record is not None and record.is_poison and chance < 0.7:
                return None
            if world.rng.random() < self._slow:
                if chance < 0.2:
                    said[offset] = ShareAcknowledgeType.RENEW
                continue
            said[offset] = kind = (
                ShareAcknowledgeType.ACCEPT
                if chance < 0.8
                else ShareAcknowledgeType.REJECT
                if chance < 0.85
                else ShareAcknowledgeType.RELEASE
            )
            world.promises.on_handled(self.name, offset, incarnation, is_done=kind is not ShareAcknowledgeType.RELEASE)
        return said

    def _ask(self, said: dict[int, ShareAcknowledgeType]) -> Iterator[float]:
        """Acknowledges, and asks for more; drops what was to be said to a node that leads no more, as Java does."""
        world, began, life = self._world, self._world.now, self._life
        if world.dropped and world.rng.random() < world.dropped:
            for offset in said:
                del self._in_hand[offset]
            said = {}
        batches = [AcknowledgementBatch(offset, offset, (kind,)) for offset, kind in sorted(said.items())]
        most = world.rng.randint(1, _MOST)
        answer = yield from self._answer(Fetch(life, self.name, most, batches))
        if life != world.data.life:
            return
        if began < world.promises.lost_at:
            answer = None
        self._acknowledged(said, answer, began)
        if answer is None:
            self._begin_session()
            return
        if not answer.given:
            yield world.rng.uniform(0, _IDLE_SECONDS)
            return
        for each in answer.given:
            world.promises.on_given(self.name, each, answer.incarnation)
            self._in_hand[each.offset] = answer.incarnation

    def _acknowledged(self, said: dict[int, ShareAcknowledgeType], answer: Answer | None, began: float) -> None:
        for offset, kind in said.items():
            incarnation = self._in_hand[offset] if kind is ShareAcknowledgeType.RENEW else self._in_hand.pop(offset)
            if answer is None or answer.code is not Code.NONE:
                continue
            if kind is ShareAcknowledgeType.RENEW:
                self._world.promises.on_renewed(self.name, offset, began)
            elif kind is not ShareAcknowledgeType.RELEASE:
                self._world.promises.on_acknowledged(offset, incarnation)

    def _begin_session(self) -> None:
        """Begins a share session, in which nothing can be said of what it was given in the one before."""
        self.name = f"{self.name.partition('/')[0]}/{next(_NAMES)}"
        self._in_hand.clear()

    def _answer(self, request: Fetch) -> Generator[float, None, Answer | None]:
        """Asks some worker; None: there is no answer in time."""
        came = self._world.send(request)
        until = self._world.now + self._world.rng.choice(_PATIENCE_SECONDS)
        while not came and self._world.now < until:
            yield 0.1
        return came[0] if came else None
