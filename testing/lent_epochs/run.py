"""Plays one seed: instances come and go, proxies sleep and die, the broker forgets, the log is compacted."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Final

from kordon.proxy.ordering.lent_epochs import ProducerIdentity
from kordon.testing.lent_epochs.broker import Coordinator, Log
from kordon.testing.lent_epochs.producers import Instance, Promises, Request
from kordon.testing.lent_epochs.proxies import Answer, Proxy, Serving
from kordon.testing.timeline import Timeline

_SECONDS: Final = 400.0
"""For which things go wrong."""
_CALM_SECONDS: Final = 200.0
"""In which all that was asked for is answered."""
_FOLLOW_SECONDS: Final = 5.0
"""Between two looks at the log where nobody asks for anything."""
_REFUSED: Final = 0.1
"""Part of the calls that are refused, where any are."""
_PROXIES: Final = 2
_INSTANCES: Final = 6


class World(Timeline):
    """All that there is in a run.

    Args:
        round_kordon: Whether an instance comes round Kordon; no proxy sleeps or dies then.
        refuses: Whether the broker refuses some calls without giving an epoch (NOT_COORDINATOR, a wrong timeout).
    """

    def __init__(self, seed: int, *, round_kordon: bool = False, refuses: bool = False) -> None:
        super().__init__(seed)
        self.coordinator = Coordinator(self.rng)
        self.log = Log()
        self.promises = Promises(self)
        self.first_told: dict[Instance, float] = {}
        """When each instance was given its first epoch."""
        self.by_token: dict[str, Request] = {}
        """Requests, by the tokens that proxies give them."""
        self.bypassed_at = float("inf")
        self._round_kordon = round_kordon
        self._refuses = refuses
        self._calls = count()
        self._proxies = [Proxy(self, self.rng) for _ in range(_PROXIES)]
        self._instances: list[Instance] = []
        self._under_way: list[Request] = []

    def call(self, seconds: float) -> list[ProducerIdentity | None]:
        """Has the broker take an InitProducerId in so many seconds; its answer comes into the list."""
        came: list[ProducerIdentity | None] = []
        self.at(seconds, lambda: came.append(self.coordinator.init()))
        return came

    def is_refused(self) -> bool:
        """Whether the broker refuses the next call."""
        return self._refuses and self.rng.random() < _REFUSED

    def send(self, request: Request) -> None:
        """Has some proxy serve a request."""
        proxy = self.rng.choice(self._proxies)
        serving = proxy.serve(request.given, lambda token: self.by_token.__setitem__(token, request))
        number = next(self._calls)
        proxy.requests.append(number)
        self._under_way.append(request)
        self.at(self.rng.uniform(0, 0.02), lambda: self._go_on(proxy, number, serving, request))

    def _go_on(self, proxy: Proxy, number: int, serving: Serving, request: Request) -> None:
        if number not in proxy.requests:
            return  # the proxy has died
        if proxy.asleep_until > self.now:
            self.at(proxy.asleep_until - self.now, lambda: self._go_on(proxy, number, serving, request))
            return
        try:
            seconds = next(serving)
        except StopIteration as end:
            proxy.requests.remove(number)
            self._answered(request, end.value)
            return
        self.at(seconds, lambda: self._go_on(proxy, number, serving, request))

    def _answered(self, request: Request, answer: Answer) -> None:
        self.promises.on_answer(request, answer)
        if not request.is_given_up:
            request.answer = answer
            if isinstance(answer, ProducerIdentity):
                self.first_told.setdefault(request.instance, self.now)

    def play(self) -> list[str]:
        """Returns which promises were broken."""
        for number in range(_INSTANCES):
            begins = 0.0 if number == 0 else self.rng.choice([self.rng.uniform(0, _SECONDS * 0.8), number * 2.0])
            self.at(begins, partial(self._start, Instance(self, number)))
        if self._round_kordon:
            self.at(self.rng.uniform(0, _SECONDS / 2), self._bypass)
        else:
            self.at(0, self._go_wrong)
        self.at(0, self._forget)
        self.at(0, self._follow)
        self._until(_SECONDS)
        for instance in self._instances:
            instance.is_stopped = True
        self._until(_SECONDS + _CALM_SECONDS)
        waiting = [each for each in self._instances if each.identity is None]
        if waiting:
            self.promises.broken.append(f"stuck: instance {waiting[0].number} has never got an epoch")
        return self.promises.broken

    def _until(self, end: float) -> None:
        self.until(end, lambda: self.promises.broken)

    def _start(self, instance: Instance) -> None:
        self._instances.append(instance)
        self.live_on(instance.live())

    def _go_wrong(self) -> None:
        if self.now > _SECONDS:
            return
        proxy = self.rng.choice(self._proxies)
        if proxy.asleep_until < self.now and self.rng.random() < (0.3 if proxy.requests else 0.01):
            if not proxy.requests or self.rng.random() < 0.3:
                proxy.die()
            else:
                proxy.asleep_until = self.now + self.rng.choice([1, 10, 20, 30])
        self.at(self.rng.expovariate(10), self._go_wrong)

    def _follow(self) -> None:
        for proxy in self._proxies:
            if proxy.asleep_until < self.now:
                proxy.follow()
        self.at(_FOLLOW_SECONDS, self._follow)

    def _forget(self) -> None:
        if self.rng.random() < 0.1 and self.coordinator.expire():
            self.promises.on_forgotten()
        if self.now < _SECONDS:
            self.at(self.rng.uniform(0, 60), self._forget)

    def _bypass(self) -> None:
        self.promises.on_bypass(None)
        given = self.coordinator.init()
        if given is None:
            self.at(0.02, self._bypass)
            return
        self.bypassed_at = self.now
        self.promises.on_bypass(given)


def play(seed: int, *, round_kordon: bool = False, refuses: bool = False) -> list[str]:
    """Returns which promises one seed breaks, in words."""
    return World(seed, round_kordon=round_kordon, refuses=refuses).play()
