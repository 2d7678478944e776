"""Plays one seed: members come and go, workers sleep and die, an operator resets the group, the log is compacted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from unittest.mock import patch

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering import claims
from kordon.proxy.ordering.share.acquiring import Terms
from kordon.proxy.ordering.share.opening import Opening
from kordon.testing.share.members import Member
from kordon.testing.share.promises import LOCK_SECONDS, MOST_TRIES, Promises
from kordon.testing.share.workers import Answer, Request, Reset, Worker
from kordon.testing.share.world import Data, Entry, Log
from kordon.testing.timeline import Timeline

_SECONDS: Final = 50.0
"""For which things go wrong."""
_CALM_SECONDS: Final = 900.0
"""In which everything is done."""
_WORKERS: Final = 3
_MEMBERS: Final = 3
_MARGIN_SECONDS: Final = 2.0
"""By which workers keep a lock longer than they say: its answer is on its way for a while."""
_RENEW_AFTER_CLAIMS: Final = 4
"""In place of 32."""


class World(Timeline):
    """All that there is in a run.

    Args:
        harsh: Whether the topic is resized and made anew, the group deleted without Kordon, and the log loses records.
    """

    def __init__(self, seed: int, *, harsh: bool = False) -> None:
        super().__init__(seed)
        self._is_harsh = harsh
        self._loses = harsh and self.rng.random() < 0.5
        self.is_calm = False
        self.data = Data(self.rng)
        self.log = Log(self.rng)
        self.log.openings.append(Opening(frozenset()))
        self.has_group = True
        """Whether the coordinator knows the group."""
        self.dropped = 0.0
        """How often what a member makes of records comes nowhere: in a resize other nodes come to lead."""
        self.promises = Promises(self.data, self)
        archives = self.rng.random() < 0.8
        self.terms = Terms(LOCK_SECONDS + _MARGIN_SECONDS, MOST_TRIES, most_in_hand=8, archives=archives)
        self._begins_at_end = self.rng.random() < 0.5
        self._members: list[Member] = []
        self._workers = [Worker(self) for _ in range(_WORKERS)]
        self._is_closed = False

    def first_offset(self) -> int:
        """Returns where a group begins (share.auto.offset.reset)."""
        return self.data.end if self._begins_at_end else 0

    def send(self, request: Request) -> list[Answer]:
        """Has some worker serve a request; its answer comes into the list."""
        came: list[Answer] = []
        worker = self.rng.choice(self._workers)
        serving, life = worker.serve(request), worker.life

        def go_on() -> None:
            if worker.life != life:
                return
            if worker.asleep_until > self.now:
                self.at(worker.asleep_until - self.now, go_on)
                return
            try:
                seconds = next(serving)
            except StopIteration as end:
                answer: Answer = end.value
                self.at(self.rng.uniform(0, 0.02), lambda: came.append(answer))
                return
            self.at(seconds, go_on)

        self.at(self.rng.uniform(0, 0.02), go_on)
        return came

    def gone(self, member: Member) -> None:
        """A member's process has ended; another one is started for it, unless the group is closed."""
        self._members.remove(member)
        if not self._is_closed:
            self._join()

    def play(self) -> list[str]:
        """Returns which promises were broken."""
        self.data.append(self.rng.randint(1, 8))
        for _ in range(_MEMBERS):
            self._join()
        for life in (self._writes(), self._go_wrong(), self._operate(), self._follow()):
            self.live_on(life)
        self._until(_SECONDS)
        self.is_calm = True
        while not self.promises.broken and not self._is_done and self.now < _SECONDS + _CALM_SECONDS:
            self._until(self.now + 1)
        if not self.promises.broken and not self._is_done and self.terms.archives:
            self.promises.broken.append("stuck: in calm not everything is done")
        return self.promises.broken

    @property
    def _is_done(self) -> bool:
        stable = max(each.reader.of(self.data.life).done.stable for each in self._workers)
        return stable == self.data.end and not self.promises.left

    def _until(self, end: float) -> None:
        self.until(end, lambda: self.promises.broken)

    def _join(self) -> None:
        member = Member(self)
        self._members.append(member)
        self.live_on(member.live())

    def _writes(self) -> Iterator[float]:
        while not self.is_calm:
            yield self.rng.uniform(0, 3)
            self.data.append(self.rng.randint(1, 8))

    def _operate(self) -> Iterator[float]:
        """Has the group closed and reset, now and then."""
        while True:
            yield self.rng.expovariate(1 / 25)
            if self.is_calm:
                return
            self._is_closed = True
            for member in self._members:
                member.is_stopped = True
            while self._members:
                yield 0.5
            if self.rng.random() < 0.7:
                yield from self._reset(self.rng.choice([0, self.data.end, self.rng.randint(0, self.data.end)]))
            elif self._is_harsh and self.rng.random() < 0.4:  # the group is deleted without Kordon, and made anew
                self.has_group = False
                self.promises.on_deleted()
                yield self.rng.uniform(0, 2)
            elif self._is_harsh:
                self._make_topic_anew()
            self._is_closed, self.has_group = False, True
            for _ in range(_MEMBERS):
                self._join()

    def _reset(self, offset: int) -> Iterator[float]:
        """Resets the group, until it is told that it was."""
        while True:
            came = self.send(Reset(self.data.life, offset))
            until = self.now + 3
            while not came and self.now < until:
                yield 0.1
            if came and came[0].code is Code.NONE:
                return

    def _make_topic_anew(self) -> None:
        self.data.make_anew()
        self.promises = Promises(self.data, self)
        self.data.append(self.rng.randint(1, 8))

    def on_written(self, life: int, entries: Sequence[Entry]) -> None:
        """Something was written to the log of the group and a topic."""
        for _, said in entries:
            if life == self.data.life:
                self.promises.on_written(said)

    def _lose(self) -> None:
        self.log.lose(whole=self.rng.random() < 0.3)
        left = [entry[1] for entry in self.log.entries if entry is not None and entry[0] == self.data.life]
        taken_out = {key for key, said in left if said is None}
        self.promises.on_loss([said for key, said in left if said is not None and key not in taken_out])

    def _resize(self) -> Iterator[float]:
        """Cuts the partition: workers read on at different times, and members drop what they were to say."""
        self.dropped = 0.5
        for worker in self._workers:
            worker.frozen = self.now + self.rng.uniform(0, 8), self.data.end
        yield 8.0
        self.dropped = 0.0

    def _go_wrong(self) -> Iterator[float]:
        """Workers die and sleep, members die, the topic is resized, and the log is compacted, or lost."""
        while not self.is_calm:
            yield self.rng.expovariate(1 / 1.5)
            worker, what = self.rng.choice(self._workers), self.rng.random()
            if what < 0.25:
                worker.die()
            elif what < 0.5:
                worker.asleep_until = self.now + self.rng.choice([1, 5, 20])
            elif what < 0.7 and self._members:
                self.rng.choice(self._members).is_stopped = True
            elif what < 0.75 and self._is_harsh:
                self.live_on(self._resize())
            elif what < 0.8 and self._loses:
                self._lose()
            else:
                self.log.compact()

    def _follow(self) -> Iterator[float]:
        while True:
            for worker in self._workers:
                if worker.asleep_until <= self.now and self.rng.random() < 0.7:
                    worker.follow()
            yield self.rng.uniform(0, 1)


def play(seed: int, *, harsh: bool = False) -> list[str]:
    """Returns which promises a seed breaks."""
    with patch.object(claims, "RENEW_AFTER_CLAIMS", _RENEW_AFTER_CLAIMS):
        return World(seed, harsh=harsh).play()
