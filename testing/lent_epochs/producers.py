"""Instances of one transactional producer, one after the other and side by side, and what they are promised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kordon.proxy.ordering.lent_epochs import ProducerIdentity, Refusal

if TYPE_CHECKING:
    from kordon.testing.lent_epochs.proxies import Answer
    from kordon.testing.lent_epochs.run import World

_PATIENCE_SECONDS: Final = (0.03, 1.0, 5.0, 20.0)
"""After which a client closes its connection and asks somebody else."""
_BEAT_SECONDS: Final = 2.0
"""Instances often do something at the same time."""
_REST_SECONDS: Final = 120.0
"""Longer than the log keeps all records."""


@dataclass
class Request:
    """An InitProducerId request, until it is answered or given up."""

    instance: Instance
    given: ProducerIdentity | None
    sent: float
    offset: int
    """The end of the log when it was sent."""
    answer: Answer | None = None
    is_given_up: bool = False


@dataclass(eq=False)
class Instance:
    """One instance, which lives until it is told that it is fenced."""

    world: World
    number: int
    first: ProducerIdentity | None = None
    """What it was given first."""
    identity: ProducerIdentity | None = None
    granted: Request | None = None
    """The request that was answered with its identity."""
    is_fenced: bool = False
    is_stopped: bool = False
    """Whether it asks for nothing more, without knowing that it is fenced."""
    answers: dict[ProducerIdentity, set[ProducerIdentity]] = field(
        default_factory=dict[ProducerIdentity, set[ProducerIdentity]]
    )

    def live(self) -> Iterator[float]:
        """Takes its first epoch, and further ones; each `yield` says how long it waits."""
        rng = self.world.rng
        yield from self._ask(None)
        while not self.is_fenced and not self.is_stopped:
            rests = rng.random() < 0.03
            yield _REST_SECONDS if rests else rng.choice([rng.uniform(0, 4), -self.world.now % _BEAT_SECONDS])
            self.world.promises.on_work(self)
            if self.identity is not None and self.world.coordinator.begin(self.identity) and rng.random() < 0.5:
                yield rng.uniform(0, 1)
                self.world.coordinator.end(self.identity)
            if rng.random() < 0.6:
                yield from self._ask(self.identity)

    def _ask(self, given: ProducerIdentity | None) -> Iterator[float]:
        while True:
            request = Request(self, given, self.world.now, self.world.log.end)
            self.world.send(request)
            patience = self.world.rng.choice(_PATIENCE_SECONDS)
            while request.answer is None and self.world.now < request.sent + patience:
                yield 0.01
            request.is_given_up = request.answer is None
            if request.answer is Refusal.BUSY:
                yield self.world.rng.uniform(0.05, 0.5)
            elif request.answer is not None:
                return


class Promises:
    """Holds answers against what producers are promised; the first broken promise is kept in words."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.broken: list[str] = []
        self._bypassed: ProducerIdentity | None = None
        self._was_bypassed = False
        self._bypassed_offset = 0

    def on_bypass(self, identity: ProducerIdentity | None) -> None:
        """An instance asks without Kordon; None: the broker has to end a transaction first."""
        self._bypassed = identity
        self._was_bypassed = True
        self._bypassed_offset = max(0, self._world.log.end - 1)

    def on_work(self, instance: Instance) -> None:
        """An instance uses what it was given."""
        if instance.granted is not None and not self._is_usable(instance, instance.granted):
            self.broken.append(
                f"fenced-at-work: the broker fences instance {instance.number}, and nobody else has come"
            )

    def on_forgotten(self) -> None:
        """The broker has forgotten all; so whoever asks next gets an id, as with any broker."""
        self._bypassed = None

    def on_answer(self, request: Request, answer: Answer) -> None:
        """A request is answered, whether or not its client still waits for that."""
        if answer is Refusal.BUSY:
            return
        if isinstance(answer, Refusal):
            self._is_fenced(request)
        else:
            self._is_granted(request, answer)

    def _is_fenced(self, request: Request) -> None:
        instance = request.instance
        if request.given is None:
            self.broken.append("fenced-instance: a new instance is fenced")
        elif request.is_given_up or request.given != instance.identity:
            return
        elif not self._has_rival(instance.granted) and not self._was_bypassed:
            self.broken.append(f"fenced-alone: instance {instance.number} is fenced, and nobody else has come")
        instance.is_fenced = True

    def _is_granted(self, request: Request, answer: ProducerIdentity) -> None:
        instance = request.instance
        if self._bypassed is not None and answer > self._bypassed and self._is_beyond(request, answer, self._bypassed):
            self._bypassed = None
        if request.given is not None and (newer := self._newer_than(request, answer)):
            self.broken.append(
                f"zombie: instance {instance.number} gets {answer}, and {newer} had come before it asked"
            )
        if request.given is not None and not self._has_rival(instance.granted):
            same = instance.answers.setdefault(request.given, set())
            same.add(answer)
            if len(same) > 1:
                self.broken.append(f"another-answer: {request.given} is answered {same}")
        if request.is_given_up:
            return
        instance.identity, instance.granted = answer, request
        instance.first = instance.first or answer
        if not self._is_usable(instance, request):
            self.broken.append(f"unusable: instance {instance.number} is given {answer}, which the broker fences")

    def _is_beyond(self, request: Request, answer: ProducerIdentity, bypassed: ProducerIdentity) -> bool:
        """Whether who came round Kordon is promised nothing: they met, the id has changed, or a proxy had died."""
        is_doubtful = any(record.doubtful for _, record in self._world.log.records[self._bypassed_offset :])
        have_met = request.given is None or request.sent < self._world.bypassed_at
        return is_doubtful or have_met or answer.producer_id != bypassed.producer_id

    def _is_usable(self, instance: Instance, granted: Request) -> bool:
        """Whether the broker takes an instance for the current one, unless somebody else has come."""
        current = self._world.coordinator.current
        return current in (None, instance.identity) or self._was_bypassed or self._has_rival(granted)

    def _newer_than(self, request: Request, answer: ProducerIdentity) -> str:
        """Returns who had come before a request was sent, after its instance."""
        instance = request.instance
        if instance.first is None:
            return ""
        for other, told_at in self._world.first_told.items():
            if other.first is not None and other.first > instance.first and told_at < request.sent:
                return f"instance {other.number}"
        bypassed = self._bypassed
        is_fenced = (
            bypassed is not None and instance.first < bypassed < answer and self._world.bypassed_at < request.sent
        )
        return "an instance round Kordon" if is_fenced else ""

    def _has_rival(self, granted: Request | None) -> bool:
        """Whether another new instance, or a late request of the same, has been taken up in the log since a request."""
        assert granted is not None
        claims = (record.claim for _, record in self._world.log.records[granted.offset :])
        asked = (self._world.by_token[claim.token] for claim in claims if claim is not None)
        return any(each.given is None and each is not granted for each in asked)
