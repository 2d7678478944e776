"""Plays one seed: members come and go, an operator resets them, proxies sleep and die, the log is compacted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from unittest.mock import patch

from kordon.proxy.ordering import claims
from kordon.proxy.ordering.claims import NO_OFFSET
from kordon.testing.claims.members import Member, intrude
from kordon.testing.claims.promises import KEYS, Promises
from kordon.testing.claims.proxies import Answer, Proxy, Request, Serving
from kordon.testing.claims.world import Coordinator, Data, Log, Primary, Reader
from kordon.testing.timeline import Timeline

_SECONDS: Final = 50.0
"""For which things go wrong."""
_CALM_SECONDS: Final = 200.0
"""In which everything is done."""
_PROXIES: Final = 3
_RENEW_AFTER_CLAIMS: Final = 3
"""In place of 32."""
_AT_A_TIME: Final = 8
"""Records that are written at once."""


class World(Timeline):
    """All that there is in a run.

    Args:
        loses: Whether the log of claims loses records.
    """

    def __init__(self, seed: int, *, loses: bool = False) -> None:
        super().__init__(seed)
        self.is_calm = False
        self.data = Data(self.rng)
        self.coordinator = Coordinator()
        self.log = Log(self.rng)
        self.promises = Promises(self.data)
        self.members: list[Member] = []
        self._begins_at_end = self.rng.random() < 0.5
        """In that case no two members have the partition: where each begins would be decided twice."""
        self._loses = loses
        self._proxies = [Proxy(self) for _ in range(_PROXIES)]

    def first_offset(self) -> int:
        """Returns where a group without commits begins (auto.offset.reset)."""
        return self.data.end if self._begins_at_end else 0

    def log_reader(self) -> Reader:
        """Returns what some proxy knows of the log."""
        return self.rng.choice(self._proxies).reader

    def send(self, request: Request) -> list[Answer]:
        """Has some proxy serve a request; its answer comes into the list."""
        came: list[Answer] = []
        proxy = self.rng.choice(self._proxies)
        serving, life = proxy.serve(request), proxy.life
        self.at(self.rng.uniform(0, 0.02), lambda: self._go_on(proxy, life, serving, came))
        return came

    def _go_on(self, proxy: Proxy, life: int, serving: Serving, came: list[Answer]) -> None:
        if proxy.life != life:
            return
        if proxy.asleep_until > self.now:
            self.at(proxy.asleep_until - self.now, lambda: self._go_on(proxy, life, serving, came))
            return
        try:
            seconds = next(serving)
        except StopIteration as end:
            came.append(end.value)
            return
        self.at(seconds, lambda: self._go_on(proxy, life, serving, came))

    def play(self) -> list[str]:
        """Returns which promises were broken."""
        self._write()
        self._rebalance()
        for going_wrong in (self._writes(), self._go_wrong(), self._operate(), intrude(self)):
            self.live_on(going_wrong)
        self.at(0, self._follow)
        self._until(_SECONDS)
        self.is_calm = True
        if not self.promises.broken:
            self._rebalance()
        while not self.promises.broken and not self._is_done and self.now < _SECONDS + _CALM_SECONDS:
            self._until(self.now + 1)
        if not self.promises.broken and not self._is_done:
            self.promises.broken.append("stuck: what is done in calm is not all acknowledged")
        return self.promises.broken

    @property
    def _is_done(self) -> bool:
        return bool(self.members) and all(each.is_up_to_date for each in self.members)

    def _until(self, end: float) -> None:
        self.until(end, lambda: self.promises.broken)

    def _write(self) -> None:
        self.promises.on_written(self.data.append(self.rng.randint(1, _AT_A_TIME)))

    def _writes(self) -> Iterator[float]:
        while not self.is_calm:
            yield self.rng.uniform(0, 4)
            self._write()

    def _rebalance(self) -> None:
        """Gives the partition to others; those that had it may not know that yet."""
        self._leave()
        self.coordinator.generation += 1
        shared = not self._begins_at_end and self.rng.random() < 0.5
        shares = [range(KEYS)] if not shared else [range(1), range(1, KEYS)]
        self.members = [Member(self, self.coordinator.generation, share) for share in shares]
        self.coordinator.owners = tuple(self.members)
        for member in self.members:
            self.live_on(member.live())

    def _leave(self) -> None:
        """Empties the group."""
        for member in self.members:
            member.is_stopped = self.rng.random() < 0.5
        self.members, self.coordinator.owners = [], ()

    def _operate(self) -> Iterator[float]:
        """Has the partition given away, and the group reset, deleted, or its topic made anew."""
        while not self.is_calm:
            yield self.rng.expovariate(1 / 5)
            if self.is_calm:
                return
            if self.rng.random() < 0.6:
                self._rebalance()
                continue
            self._leave()
            yield self.rng.uniform(0, 2)
            if self.is_calm:
                return
            what = self.rng.random()
            if what < 0.5:
                self._reset(self.rng.choice([0, self.data.end, self.rng.randint(0, self.data.end)]))
            elif what < 0.7:
                self.promises.on_wish(NO_OFFSET)
                self.coordinator.primary = Primary()
            elif what < 0.8:
                self.data.make_anew()
                self.promises.on_wish(NO_OFFSET)
                self.coordinator.primary = Primary()
                self._write()
            yield self.rng.uniform(0, 2)
            self._rebalance()

    def _reset(self, offset: int) -> None:
        if self.coordinator.commit(None, -1, Primary(offset)):
            self.promises.on_wish(offset)

    def _go_wrong(self) -> Iterator[float]:
        """Proxies die and sleep, and the log is compacted."""
        while not self.is_calm:
            yield self.rng.expovariate(1 / 2)
            proxy, what = self.rng.choice(self._proxies), self.rng.random()
            if what < 0.4:
                proxy.die()
            elif what < 0.6:
                proxy.asleep_until = self.now + self.rng.choice([1, 5, 20])
            elif what < 0.7 or not self._loses:
                self.log.compact()
            else:
                self.log.cut()
                self.promises.on_loss()

    def _follow(self) -> None:
        for proxy in self._proxies:
            if proxy.asleep_until <= self.now and self.rng.random() < 0.7:
                proxy.follow()
        self.at(self.rng.uniform(0, 1), self._follow)


def play(seed: int, *, loses: bool = False) -> list[str]:
    """Returns which promises a seed breaks."""
    with patch.object(claims, "RENEW_AFTER_CLAIMS", _RENEW_AFTER_CLAIMS):
        return World(seed, loses=loses).play()
