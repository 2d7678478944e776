"""Producers of the dialect in a simulated cluster: they choose physical partitions (COUNT-FENCE).

What they know of layouts, and how a batch goes out that was refused, is the SDK's own.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kordon.client.homes import NO_STAMP, Homes, NextSend, Stamp
from kordon.client.layouts import Layouts, TopicLayout
from kordon.codecs.bodies import MetadataResponseTopic
from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.layout import NO_COUNT, Layout
from kordon.proxy.ordering.streams import physical_stream, shown_partition
from kordon.proxy.ordering.takeover import may_be_shown
from kordon.testing.simulation.clients import KEYS, SOMEWHERE, Produce, Producer
from kordon.testing.simulation.kafka import Record

if TYPE_CHECKING:
    from kordon.testing.simulation.cluster import Cluster

_AGAIN_SECONDS: Final = (0.05, 0.3)
_CHANGE_SHARE: Final = 0.3
"""Of what is sent again, that goes to another proxy."""
FORGOTTEN: Final = (
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Code.UNKNOWN_PRODUCER_ID,
    Code.INVALID_PRODUCER_EPOCH,
)
"""What is said where brokers, or images, have forgotten a producer."""
_MOST_KEYS: Final = 3
"""Of one batch: what must part when its partition splits."""


class DialectProducer(Producer):
    """One batch in flight per partition; what is refused by its count is asked about before it goes elsewhere.

    Until that is known, nothing more of its keys is sent.
    """

    def __init__(self, cluster: Cluster, client_id: int) -> None:
        self._layouts = Layouts()
        self._busy: dict[int, Produce] = {}
        """By physical partition, what is not decided."""
        self._back: dict[int, deque[Record]] = defaultdict(deque)
        """By key, what was taken back: it goes before all that is new."""
        self._epochs: dict[int, int] = defaultdict(int)
        """By physical partition (KIP-360)."""
        self._in_doubt: set[int] = set()
        """Physical partitions whose batch may be written: an attempt to send it was not answered."""
        self._unsure: set[Record] = set()
        """What went out before the end of a takeover and behind it: it is not said which time it was written."""
        super().__init__(cluster, client_id)
        self._patience = self.world.random.choice([(2.0, 5.0), self._patience])

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
            self._in_doubt.discard(q)
            self._begin(q, tuple(record for key in keys for record in self._next(key)))
        return not self.cluster.over

    def refresh(self) -> bool:
        """Asks for Metadata now and then."""
        self._is_refreshed()
        return not self.cluster.over

    def heard(self, batch: Produce, code: int, attempt: object) -> None:
        """Takes in what came of one sending."""
        if code == Code.NONE:
            self._written(batch)
        elif code in FORGOTTEN:
            self._forgotten(batch)
        elif code != Code.INVALID_PARTITION_METADATA:
            self._in_doubt.add(shown_partition(batch.v))
            self._later(lambda: self._send(batch))
        elif attempt:  # it was a question
            self._take_back(batch)
        else:
            self._refresh_and_send(batch)

    def _begin(self, q: int, records: tuple[Record, ...]) -> None:
        batch = Produce(physical_stream(q), self.client_id, self._sequences[q], records, self.world.now)
        batch.epoch = self._epochs[q]
        batch.count, batch.layout_epoch = NO_STAMP if self._layout is None else Stamp.of(self._layout)
        self._send(batch)

    def _send(self, batch: Produce) -> None:
        """Sends a batch by the newest layout, or, if its records do not belong together by that, as it was."""
        assert batch.count is not None
        q, layout, before = shown_partition(batch.v), self._layout, Stamp(batch.count, batch.layout_epoch)
        course = NextSend(before, question=False)
        if layout is not None:
            places = [each.key % layout.virtual_partition_count for each in batch.records]
            course = Homes(layout).course(q, places, before)
        if (course.stamp == NO_STAMP) != (before == NO_STAMP):
            self._unsure.update(batch.records)
        count, layout_epoch = course.stamp
        # another one: what is still under way stays as it was
        self._busy[q] = replace(batch, count=count, layout_epoch=layout_epoch)
        self._request(self._busy[q], course.question)

    def _refresh_and_send(self, batch: Produce) -> None:
        if self._is_refreshed():
            self._send(batch)
        else:
            self._later(lambda: self._refresh_and_send(batch))

    def _written(self, batch: Produce) -> None:
        q = shown_partition(batch.v)
        del self._busy[q]
        self._sequences[q] += len(batch.records)
        for record in batch.records:
            v = q if batch.count == NO_COUNT else record.key % self.cluster.v_count
            self.acknowledged[SOMEWHERE if record in self._unsure else v].append(record)

    def _forgotten(self, batch: Produce) -> None:
        """Goes on by another epoch; what may have been written is not sent again, and nothing is promised of it."""
        q = shown_partition(batch.v)
        del self._busy[q]
        self._epochs[q] += 1
        self._sequences[q] = 0
        if q not in self._in_doubt:
            self._begin(q, batch.records)

    def _take_back(self, batch: Produce) -> None:
        """It was not written and will not be: its sequence numbers are free, its records go first."""
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

    @property
    def _layout(self) -> TopicLayout | None:
        """The newest that it knows; None where the topic has none yet."""
        return self._layouts.get(self.cluster.topic)

    def _is_refreshed(self) -> bool:
        """Asks for Metadata; False: nobody answers."""
        proxy = self.cluster.some_proxy()
        if not (proxy.is_running and proxy.knows_layouts and self.world.now >= proxy.cut_until):
            return False
        layout = proxy.topic.layout if proxy.topic is not None else None
        if layout is not None and not may_be_shown(layout):
            return False  # TAKEOVER-WAITS
        self._layouts.update([_row(self.cluster.topic, layout)])
        return True

    def _partition(self, key: int) -> int:
        layout = self._layout
        return key % self.cluster.n if layout is None else layout.home(key % layout.virtual_partition_count)

    def _later(self, what: Callable[[], None]) -> None:
        if self.world.chance(_CHANGE_SHARE):
            self._connection = None
        self.world.after(self.world.random.uniform(*_AGAIN_SECONDS), what)


def _row(topic: str, layout: Layout | None) -> MetadataResponseTopic:
    """Returns the topic's row of a MetadataResponse."""
    if layout is None or layout.count_in_force == NO_COUNT:
        return MetadataResponseTopic(error_code=0, name=topic, undeleted_partition_count=NO_COUNT)
    return MetadataResponseTopic(
        error_code=0,
        name=topic,
        initial_partition_count=layout.n,
        undeleted_partition_count=layout.u,
        virtual_partition_count=layout.v_count,
        layout_epoch=layout.epoch,
        enable_ordered_delivery=True,
    )
