"""What workers, clients and the controller share: logs, coordinators, and what the layouts topic says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import AnnouncementRecord, FenceRecord
from kordon.proxy.ordering.streams import Stream, physical_stream
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.testing.transactions.coordinator import Coordinator
from kordon.testing.transactions.logs import Log, Record, Txn
from kordon.testing.transactions.world import World

TOPIC: Final = "orders"
FACE: Final = UUID(int=2)
V: Final = 4
MOST: Final = 3
"""Physical partitions; there is one at first."""
TRANSACTIONAL_IDS: Final = ("a", "b")


def created() -> Layout:
    """Returns the first layout."""
    return replace(Layout.created(TOPIC, UUID(int=1), 1, V), has_transactions=True)


@dataclass
class Cluster:
    """All that is durable."""

    world: World
    logs: dict[int, Log] = field(default_factory=lambda: {q: Log(q) for q in range(MOST)})
    layout: Layout = field(default_factory=created)
    announced: AnnouncementRecord | None = None
    """The last one, or a withdrawal."""
    fence: FenceRecord | None = None
    """The one that stands."""
    acknowledged: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The names of announcements and fences, and of the workers that know them."""
    cuts: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(MOST), 0))
    """By physical partition, the last log end that was read under a fence."""
    coordinators: dict[str, Coordinator] = field(init=False)
    txns: int = 0
    records: list[Record] = field(default_factory=list[Record])

    def __post_init__(self) -> None:
        self.coordinators = {
            each: Coordinator(self.world, self.logs, each, 100 + n) for n, each in enumerate(TRANSACTIONAL_IDS)
        }

    @property
    def streams(self) -> list[Stream]:
        """Virtual partitions, and the physical ones that there are."""
        return [*range(V), *map(physical_stream, self.layout.residence.physical_chains)]

    def home(self, v: int) -> int:
        """Returns where a virtual partition lives."""
        home = self.layout.homes[v]
        assert home is not None, "all are born at first"
        return home

    def announce(self, coming: Mapping[int, int], number: int = 0) -> None:
        """Announces something as no controller would: two announcements may have the same number."""
        name = f"announcement {len(self.acknowledged)} of {self.world.now}"
        self.announced = AnnouncementRecord(name, TOPIC, number, coming)

    def acknowledge(self, name: str, worker: str) -> None:
        """Takes a worker's word, once."""
        if (name, worker) not in self.acknowledged:
            self.acknowledged.append((name, worker))

    def begin(self, transactional_id: str, epoch: int, protocol: Protocol) -> Txn:
        """Makes the transaction that a client begins."""
        self.txns += 1
        producer_id = self.coordinators[transactional_id].producer_id
        return Txn(self.txns, transactional_id, producer_id, epoch, protocol, self.world.now)

    def make_record(
        self, v: int, writer: int, txn: Txn, stream: Stream | None = None, *, is_forged: bool = False
    ) -> Record:
        """Makes a record of a virtual partition.

        Args:
            stream: What it is sent to; None: the virtual partition itself.
        """
        record = Record(len(self.records), v, v if stream is None else stream, writer, txn, is_forged)
        self.records.append(record)
        return record

    def places_of(self, record: Record, stream: Stream | None = None) -> list[tuple[int, int]]:
        """Returns where a record stands and counts.

        Args:
            stream: As which it was written; None: any.
        """
        return [
            (q, offset)
            for q, offset in dict.fromkeys(record.places)
            if offset < self.logs[q].end
            and (entry := self.logs[q].entries[offset]).record is record
            and (stream is None or entry.stream == stream)
            and self.counts(q, offset)
        ]

    def counts(self, q: int, offset: int) -> bool:
        """Whether a batch is no stray."""
        entry = self.logs[q].entries[offset]
        stays = self.layout.chain(entry.stream).stays
        return any(s.partition == q and s.move == entry.move and s.holds(offset) for s in stays)

    def known(self) -> set[tuple[int, int]]:
        """Answers ListTransactions and DescribeTransactions: partitions and producer ids of open ones."""
        return {(q, each.producer_id) for each in self.coordinators.values() for q in each.partitions}
