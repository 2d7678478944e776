"""Producers of the dialect in a simulated cluster: they choose physical partitions, by the SDK's rule (rule I8)."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kordon.proxy.control.codes import Code
from kordon.proxy.ordering.hashing import linear, slot
from kordon.proxy.ordering.layout import NO_COUNT, Layout
from kordon.proxy.ordering.streams import physical_stream, shown_partition
from kordon.proxy.ordering.takeover import may_be_shown
from kordon.testing.simulation.clients import KEYS, Produce, Producer
from kordon.testing.simulation.kafka import Record

if TYPE_CHECKING:
    from kordon.testing.simulation.cluster import Cluster

_AGAIN_SECONDS: Final = (0.05, 0.3)
_CHANGE_SHARE: Final = 0.3
"""Of what is sent again, that goes to another proxy."""
_MOST_KEYS: Final = 3
"""Of one batch: what must part when its partition splits."""


@dataclass(frozen=True, slots=True)
class View:
    """What Metadata tells of a topic."""

    undeleted_partition_count: int = NO_COUNT
    """-1 where the topic has none."""
    layout_epoch: int = -1


class DialectProducer(Producer):
    """One batch in flight per partition; what is refused by its count is asked about before it goes elsewhere.

    Until that is known, nothing more of its keys is sent.
    """

    def __init__(self, cluster: Cluster, client_id: int) -> None:
        self._view = View()
        self._busy: dict[int, Produce] = {}
        """By physical partition, what is not decided."""
        self._back: dict[int, deque[Record]] = defaultdict(deque)
        """By key, what was taken back: it goes before all that is new."""
        self._asking: set[Produce] = set()
        super().__init__(cluster, client_id)

    @property
    def is_done(self) -> bool:
        """Whether all is acknowledged."""
        return not self._busy and not any(self._back.values())

    def turn(self) -> bool:
        """Sends a batch of a few keys of a partition that is free."""
        locked = {record.key for batch in self._busy.values() for record in batch.records}
        wanted = range(KEYS) if self.cluster.is_troubled else [key for key, records in self._back.items() if records]
        free = [key for key in wanted if key not in locked and self._partition(key) not in self._busy]
        if free:
            q = self._partition(self.world.random.choice(free))
            keys = [key for key in free if self._partition(key) == q][:_MOST_KEYS]
            self._begin(q, tuple(record for key in keys for record in self._next(key)))
        return not self.cluster.over

    def refresh(self) -> bool:
        """Asks for Metadata now and then."""
        self._is_refreshed()
        return not self.cluster.over

    def heard(self, batch: Produce, code: int, attempt: object) -> None:
        """Takes in what came of one sending."""
        del attempt
        if code == Code.NONE:
            self._written(batch)
        elif code != Code.INVALID_PARTITION_METADATA:
            self._later(lambda: self._request(batch))
        elif batch in self._asking:
            self._take_back(batch)
        else:
            self._decide(batch)

    def _begin(self, q: int, records: tuple[Record, ...]) -> None:
        batch = Produce(physical_stream(q), self.client_id, self._sequences[q], records, self.world.now)
        batch.count, batch.layout_epoch = self._view.undeleted_partition_count, self._view.layout_epoch
        self._busy[q] = batch
        self._request(batch)

    def _decide(self, batch: Produce) -> None:
        """Refreshes, then sends a batch by the count of now, or, if it does not belong together any more, asks."""
        if not self._is_refreshed():
            self._later(lambda: self._decide(batch))
            return
        if self._still_fits(batch):
            batch = replace(batch, count=self._view.undeleted_partition_count, layout_epoch=self._view.layout_epoch)
            self._busy[shown_partition(batch.v)] = batch
        else:
            self._asking.add(batch)
        self._request(batch)

    def _still_fits(self, batch: Produce) -> bool:
        is_same_kind = (batch.count == NO_COUNT) == (self._view.undeleted_partition_count == NO_COUNT)
        return is_same_kind and all(self._partition(each.key) == shown_partition(batch.v) for each in batch.records)

    def _written(self, batch: Produce) -> None:
        q = shown_partition(batch.v)
        self._asking.discard(batch)
        del self._busy[q]
        self._sequences[q] += len(batch.records)
        for record in batch.records:
            v = q if batch.count == NO_COUNT else record.key % self.cluster.v_count
            self.acknowledged[v].append(record)

    def _take_back(self, batch: Produce) -> None:
        """It was not written and will not be: its sequence numbers are free, its records go first."""
        self._asking.discard(batch)
        del self._busy[shown_partition(batch.v)]
        for record in reversed(batch.records):
            self._back[record.key].appendleft(record)

    def _next(self, key: int) -> list[Record]:
        """Returns what is next of a key: what was taken back, or something new."""
        if self._back[key]:
            records = list(self._back[key])
            self._back[key].clear()
            return records
        if not self.cluster.is_troubled:
            return []
        self._numbers[key] += 1
        return [Record(self.client_id, key, self._numbers[key])]

    def _is_refreshed(self) -> bool:
        """Asks for Metadata; an older layout than is known is not taken in, and is no answer."""
        proxy = self.cluster.some_proxy()
        if not (proxy.is_running and proxy.knows_layouts and self.world.now >= proxy.cut_until):
            return False
        view = _view_of(proxy.topic.layout if proxy.topic is not None else None)
        if view is None or view.layout_epoch < self._view.layout_epoch:
            return False
        self._view = view
        return True

    def _partition(self, key: int) -> int:
        if self._view.undeleted_partition_count == NO_COUNT:
            return key % self.cluster.n
        n, v_count = self.cluster.n, self.cluster.v_count
        return linear(slot(key % v_count, n, v_count), n, self._view.undeleted_partition_count)

    def _later(self, what: Callable[[], None]) -> None:
        if self.world.chance(_CHANGE_SHARE):
            self._connection = None
        self.world.after(self.world.random.uniform(*_AGAIN_SECONDS), what)


def _view_of(layout: Layout | None) -> View | None:
    """Returns what a proxy tells that knows this layout; None: it does not answer now (rule A2)."""
    if layout is not None and not may_be_shown(layout):
        return None
    if layout is None or layout.count_in_force == NO_COUNT:
        return View()
    return View(layout.u, layout.epoch)
