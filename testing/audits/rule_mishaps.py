"""Histories in which promises are broken at random, and decisions are missing: what rules must tell whatever the cuts.

Which finding each of them gives is for the tests of the rules one by one; here it counts that it is always the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kordon.testing.audits.rule_batches import batch, tagged
from kordon.testing.audits.rule_histories import LEADER, OTHER, History


class Mishaps(History):
    """One topic through a few changes, in which one step in six goes wrong."""

    def step(self, v: int) -> None:
        """Something that concerns a virtual partition, or a mishap."""
        if self.random.random() > 1 / 6:
            super().step(v)
            return
        broken: Sequence[Callable[[int], None]] = (
            self._bypass,
            self._dialect,
            self._misplaced,
            self._again,
            self._lost,
            self._stray,
            self._skipped,
            self._miscounted,
            self._went_back,
            self._rewound,
            self._early,
            self._missing,
        )
        self.random.choice(broken)(v)

    def acknowledging(self) -> Sequence[str]:
        """Now and then one does not say that it holds a fence."""
        return (LEADER,) if self.random.random() < 0.2 else (LEADER, OTHER)

    def _bypass(self, v: int) -> None:
        self.put(batch(v % self.layout.u, 0, 2, producer_id=99))

    def _dialect(self, v: int) -> None:
        """A client of the dialect writes: how much of it is whose cannot be told."""
        q = v % self.layout.u
        self.put(tagged((1 << 15) - 2, self.layout.epoch, q, 0, 2, producer=11))

    def _misplaced(self, v: int) -> None:
        homes = {stay.partition for stay in self.layout.chains[v].stays}
        others = sorted(set(range(self.layout.u)) - homes)
        if others:
            self.put(tagged(v, 0, others[0], 0, producer=9))

    def _again(self, v: int) -> None:
        """A batch is written once more."""
        own = [each for each in self.batches if each.get("v") == v and each.get("client_producer_id") in {7, 8}]
        if own:
            self.put({**self.random.choice(own)})

    def _lost(self, v: int) -> None:
        """A write is acknowledged that is not there; its producer does not go on."""
        home = self.layout.chains[v].stays[-1:]
        if home and home[0].tagged:
            end = self.ends[home[0].partition]
            self.put(batch(home[0].partition, 0, 3, is_control=True))
            self.admit(v, 20 + len(self.decisions), home[0], (0, 3), (end, end + 2))

    def _stray(self, v: int) -> None:
        """A write behind the cut is acknowledged; as its client knows it, it goes on behind it."""
        stays = self.layout.chains[v].stays
        if len(stays) > 1 and stays[-2].tagged:
            following = self.written.get((v, 7), (0, 0, -1))[0]
            offset = self.put(tagged(v, stays[-2].move, stays[-2].partition, 0, sequence=0, producer=7))
            epoch = self.layout.epoch - 1
            self.admit(v, 7, stays[-2], (following, 1), (offset, offset), layout_epoch=epoch)

    def _skipped(self, v: int) -> None:
        """A reader goes on further on."""
        for connection in (1, 2):
            if (connection, v) in self.stood:
                stay, position = self.stood[connection, v]
                end = self.ends[stay.partition] if stay.end is None else stay.end
                self.stood[connection, v] = stay, self.random.randint(position, max(position, end))
                self.read(connection, v)

    def _miscounted(self, v: int) -> None:
        stay = self.layout.chains[v].stays[-1] if self.layout.chains[v].stays else None
        if stay is not None and stay.start < self.ends[stay.partition]:
            self.deliver(4, v, stay, (stay.start, self.ends[stay.partition] - 1), self.random.choice([0, 1000]))

    def _went_back(self, v: int) -> None:
        for connection in (1, 2):
            if (connection, v) in self.stood:
                stay, _ = self.stood[connection, v]
                self.stood[connection, v] = stay, stay.start
                self.read(connection, v)

    def _rewound(self, v: int) -> None:
        """A reader asks to go on at the beginning; nothing is wrong with that."""
        if (1, v) in self.stood:
            stay, position = self.stood[1, v]
            place = {"stream": v, "move": stay.move, "partition": stay.partition, "connection": 1}
            self.decide("rewind", OTHER, first_offset=stay.start, last_offset=position, **place)
            self.stood[1, v] = stay, stay.start
            self.read(1, v)

    def _early(self, v: int) -> None:
        """The dialect's reader is given what its gate should hold."""
        self.read_physical(self.random.choice(self.layout.segments), gated=False)

    def _missing(self, v: int) -> None:
        """A decision is dropped."""
        self.numbers[self.random.choice([LEADER, OTHER])] += 1
