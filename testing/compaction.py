"""A model of a compacted managed topic: logs, clients, the broker's compaction, and the janitor, in steps of time.

Everything but the logs is the product's own: layouts, identities, and what the janitor thinks (`ordering/janitor.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final
from uuid import UUID

from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.janitor import Doubts, FormerHomes, KnownKeys, Latest, Visible, marker_id
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Epoch, Placement
from kordon.proxy.ordering.reading import Hidden
from kordon.proxy.ordering.streams import physical_stream

TOMBSTONES_STAY: Final = 70
"""Steps after the first compaction that meets it, for which a tombstone stays (delete.retention.ms)."""
COMPACTED_EVERY: Final = 12
"""Steps after which a log is compacted at the latest (max.compaction.lag.ms)."""
LOOKED_AT_EVERY: Final = 8
"""Steps after which the janitor has looked at all there is, at the latest."""
LEFT_ALONE: Final = 20
"""Steps for which a record is not compacted (min.compaction.lag.ms)."""
KEYS: Final = 6
_CLIENT: Final = 7


@dataclass
class Logged:
    """A record in a log."""

    offset: int
    key: bytes
    value: int | None
    producer_id: int
    written: int
    """When."""
    dropped_at: int | None = None
    """Of a tombstone that has been compacted, when it goes."""


@dataclass
class Log:
    """Of a physical partition."""

    records: list[Logged] = field(default_factory=list[Logged])
    end: int = 0
    compacted: int = 0
    """When, last."""

    def append(self, now: int, key: bytes, value: int | None, producer_id: int) -> None:
        self.records.append(Logged(self.end, key, value, producer_id, now))
        self.end += 1

    def compact(self, now: int, active_from: int) -> None:
        """Does what a broker does: keeps the last record of each key before an offset, tombstones for a time.

        Args:
            active_from: Offset from which on the last file begins.
        """
        self.compacted = now
        young = (each.offset for each in self.records if each.written > now - LEFT_ALONE)
        active_from = min(active_from, next(young, self.end))
        last = {each.key: each.offset for each in self.records if each.offset < active_from}
        kept = [each for each in self.records if each.offset >= active_from or each.offset == last[each.key]]
        for each in kept:
            if each.offset < active_from and each.value is None and each.dropped_at is None:
                each.dropped_at = now + TOMBSTONES_STAY
        self.records = [each for each in kept if each.dropped_at is None or each.dropped_at > now]


class CompactedTopic:
    """A managed topic of which only the last value of each key counts.

    Args:
        is_swept: Whether a layout waits for the janitor; False to see what breaks.
        has_mishaps: Whether hidden records land behind visible ones.
        is_mended: Whether the janitor brings values back that stand before such a one; False to see what breaks.
        is_taken_over: Whether there are records from before the topic was managed.
    """

    def __init__(
        self,
        random: Random,
        n: int,
        v_count: int,
        *,
        is_swept: bool = True,
        has_mishaps: bool = False,
        is_mended: bool = True,
        is_taken_over: bool = False,
    ) -> None:
        make = Layout.unmanaged if is_taken_over else Layout.created
        self.layout = make("orders", UUID(int=1), n, v_count)
        self.truth: dict[bytes, int] = {}
        """The last value of each key that has one."""
        self.markers = 0
        self._random = random
        self._logs = {q: Log() for q in range(n)}
        self._now = 0
        self._is_swept = is_swept
        self._has_mishaps = has_mishaps
        self._is_mended = is_mended
        self._looked_at = 0
        self._sent: list[tuple[int, bytes, int]] = []
        """Markers, by partition, key and producer id; one that was written again as it had no answer may land late."""
        self._doubts = Doubts()
        self._begin_janitor({})
        if is_taken_over:
            self._take_over()

    def step(self) -> None:
        """Lets some time pass, in which something happens."""
        self._now += 1
        what = self._random.choices(
            (self.write, self.resize, self.crash, self.compact, self._look_at_some), (9, 3, 1, 3, 4)
        )
        what[0]()
        if self._has_mishaps and self._random.random() < 0.05:
            self.mishap()
        if self._now - self._looked_at > LOOKED_AT_EVERY:
            self.look_at_all()
        for log in self._logs.values():
            if self._now - log.compacted > COMPACTED_EVERY:
                log.compact(self._now, log.end)

    def _take_over(self) -> None:
        """Clients that saw N partitions have written to them; then there are more (TAKEOVER-WAITS)."""
        for _ in range(3 * KEYS):
            self._now += 1
            number = self._random.randrange(KEYS)
            self._put(number, self._v(number) % self.layout.n, _CLIENT)
        self._change(self.layout.next_epoch(self.layout.n, Placement.OWN))

    def write(self) -> None:
        """A client writes, or deletes, some key; clients of the dialect do it to the physical partition."""
        number = self._random.randrange(KEYS)
        v = self._v(number)
        home = self.layout.chains[v].stays[-1]
        q = home.partition
        by_dialect = self._random.random() < 0.3
        stream, move = (physical_stream(q), self.layout.open_segments[q].id.epoch) if by_dialect else (v, home.move)
        self._put(number, q, tag(stream, move, _CLIENT))

    def _put(self, number: int, q: int, producer_id: int) -> None:
        key, value = b"key %d" % number, None if self._random.random() < 0.4 else self._now
        self._logs[q].append(self._now, key, value, producer_id)
        self.truth.pop(key, None)
        if value is not None:
            self.truth[key] = value

    def resize(self) -> None:
        """The layout changes, as it does under a fence: nobody writes."""
        self._change(self.layout.next_epoch(self._random.randint(self.layout.n, self.layout.v_count)))

    def mishap(self) -> None:
        """A write that nobody waits for lands: a client's behind its cut, or the janitor's in another epoch."""
        number = self._random.randrange(KEYS)
        key, stays = b"key %d" % number, self.layout.chains[self._v(number)].stays
        stay = self._random.choice(stays)
        if self._random.random() < 0.5:
            for q, marked, producer_id in self._random.sample(self._sent, min(len(self._sent), 1)):
                self._logs[q].append(self._now, marked, None, producer_id)
        elif stay.end is not None and stay.tagged:
            value = self._random.choice((None, self._now))
            self._logs[stay.partition].append(self._now, key, value, tag(self._v(number), stay.move, _CLIENT))

    def _change(self, following: Epoch) -> None:
        change = self.layout.change_to(following)
        sealed, opened = change.sealed, change.opened
        for q in opened:
            self._logs.setdefault(q, Log(compacted=self._now))
        if self._is_swept:
            for q in sealed:
                self._look_at(q, self._logs[q].end)
        cuts = {q: self._logs[q].end for q in sealed | opened}
        for key, latest in self._doubts.lost().items() if following.renewed else ():
            home = self.layout.chains[latest.v].stays[-1]
            if home.partition in following.renewed:
                producer_id = tag(latest.v, home.move + 1, _CLIENT + 1)
                self._logs[home.partition].append(self._now, key, latest.record, producer_id)
        self.layout = self.layout.changed(following, cuts)
        self._homes = FormerHomes(self.layout)

    def crash(self) -> None:
        """Another controller goes on, from an older state that was durable."""
        firsts = {q: self._doubts.first(q) for q in self._looked_to}
        ends = {q: end if (first := firsts[q]) is None else min(first, end) for q, end in self._looked_to.items()}
        self._begin_janitor({q: self._random.randint(0, end) for q, end in ends.items()})

    def compact(self) -> None:
        """A broker compacts a log, but for what is in its active segment."""
        log = self._random.choice(list(self._logs.values()))
        log.compact(self._now, self._random.randint(0, log.end))

    def look_at_all(self) -> None:
        """The janitor comes to the end of all logs."""
        for q, log in self._logs.items():
            self._look_at(q, log.end)
        self._looked_at = self._now
        if self._is_mended:
            self._mend()

    def settle(self) -> None:
        """Time passes in which nobody writes, until compaction has nothing more to do."""
        for later in (0, 1, 2, LEFT_ALONE + 1, TOMBSTONES_STAY + 1):
            self.look_at_all()
            self._now += later
            for log in self._logs.values():
                log.compact(self._now, log.end)

    def read(self) -> dict[bytes, int]:
        """Reads all from the beginning, as a client does that keeps the last value of each key."""
        found = {record.key: record.value for _, record in sorted(self._visible(), key=lambda each: each[0])}
        return {key: value for key, value in found.items() if value is not None}

    def count(self) -> int:
        """Returns how many records readers get."""
        return len(list(self._visible()))

    def _v(self, number: int) -> int:
        return number * 5 % self.layout.v_count

    def _visible(self) -> Iterator[tuple[tuple[int, int], Logged]]:
        """What readers get, by when it came there."""
        for q, log in self._logs.items():
            for record in log.records:
                seen = self._homes.look(q, record.producer_id, record.offset, is_control=False)
                if isinstance(seen, Visible):
                    yield (seen.segment.epoch, record.offset), record

    def _begin_janitor(self, looked_to: dict[int, int]) -> None:
        self._homes, self._known = FormerHomes(self.layout), KnownKeys(most=3)
        self._looked_to = dict(looked_to)
        self._doubts = Doubts()

    def _see(self, q: int, record: Logged) -> None:
        seen = self._homes.look(q, record.producer_id, record.offset, is_control=False)
        assert isinstance(seen, Visible)
        v = self._homes.owner_of(seen, self._v(int(record.key.split()[1])), record.offset)
        assert v is not None
        self._doubts.see(record.key, Latest(seen.segment.epoch, record.offset, q, v, record.value))

    def _mend(self) -> None:
        """The janitor looks for the last values of keys in doubt, and writes again what would be lost."""
        keys = self._doubts.unsearched
        for q, log in self._logs.items():
            for record in log.records:
                seen = self._homes.look(q, record.producer_id, record.offset, is_control=False)
                if record.key in keys and isinstance(seen, Visible):
                    self._see(q, record)
        self._doubts.searched(keys)
        if lost := self._doubts.lost():
            homes = {self.layout.chains[latest.v].stays[-1].partition for latest in lost.values()}
            self._change(self.layout.next_epoch(self.layout.u, renewed=homes))

    def _look_at_some(self) -> None:
        q = self._random.choice(list(self._logs))
        self._look_at(q, self._random.randint(0, self._logs[q].end))

    def _look_at(self, q: int, until: int) -> None:
        start = self._looked_to.get(q, 0)
        for record in [each for each in self._logs[q].records if start <= each.offset < until]:
            seen = self._homes.look(q, record.producer_id, record.offset, is_control=False)
            if seen is Hidden.CONTROL:
                continue
            if seen is Hidden.STRAY:
                self._doubts.hide(record.key, q, record.offset)
                continue
            assert isinstance(seen, Visible)
            self._see(q, record)
            for key in self._known.unknown(seen, [record.key]) if seen.former else ():
                for former in sorted(seen.former):
                    self._sent.append((former, key, marker_id(self.layout.epoch, _CLIENT)))
                    self._logs[former].append(self._now, key, None, marker_id(self.layout.epoch, _CLIENT))
                    self.markers += 1
                self._known.add(seen, [key])
        self._looked_to[q] = max(start, until)
