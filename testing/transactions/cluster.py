"""What workers, clients and the controller share: logs, coordinators, the durable layout and what was announced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.transactions.adds import Announcement
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.testing.transactions.coordinator import Coordinator
from kordon.testing.transactions.logs import Log, Record, Txn
from kordon.testing.transactions.world import World

V: Final = 4
U: Final = 3
TRANSACTIONAL_IDS: Final = ("a", "b")


@dataclass(frozen=True)
class Layout:
    """Where virtual partitions live."""

    epoch: int
    stays: tuple[tuple[Stay, ...], ...]
    """By virtual partition, oldest first."""

    @property
    def homes(self) -> dict[int, int]:
        return {v: stays[-1].partition for v, stays in enumerate(self.stays)}

    def moved(self, coming: dict[int, int], ends: dict[int, int]) -> Layout:
        """Returns the next one.

        Args:
            coming: By virtual partition that moves, its next home.
            ends: By physical partition, its high watermark: what lies beyond may be taken by an election.
        """
        stays = list(self.stays)
        for v, q in coming.items():
            last = stays[v][-1]
            closed = replace(last, end=ends[last.partition])
            stays[v] = (*stays[v][:-1], closed, Stay(q, last.move + 1, ends[q], None, 0))
        return Layout(self.epoch + 1, tuple(stays))


@dataclass
class Cluster:
    """All that is durable."""

    world: World
    logs: dict[int, Log] = field(default_factory=lambda: {q: Log(q) for q in range(U)})
    layout: Layout = field(default_factory=lambda: Layout(0, tuple((Stay(v % 2, 0, 0, None, 0),) for v in range(V))))
    announcement: Announcement = field(default_factory=lambda: Announcement(0))
    announced: int = 0
    """How many times something was announced, or withdrawn: what workers acknowledge."""
    fenced: frozenset[int] = frozenset()
    """Physical partitions that a fence seals."""
    coordinators: dict[str, Coordinator] = field(init=False)
    txns: int = 0
    records: list[Record] = field(default_factory=list[Record])

    def __post_init__(self) -> None:
        self.coordinators = {
            each: Coordinator(self.world, self.logs, each, 100 + n) for n, each in enumerate(TRANSACTIONAL_IDS)
        }

    def announce(self, coming: Mapping[int, int]) -> None:
        """Announces what moves, or that nothing does; a change gets the number of what was announced before it."""
        self.announced += 1
        self.announcement = Announcement(self.announcement.number + (not coming), coming)

    def begin(self, transactional_id: str, epoch: int, protocol: Protocol) -> Txn:
        """Makes the transaction that a client begins."""
        self.txns += 1
        producer_id = self.coordinators[transactional_id].producer_id
        return Txn(self.txns, transactional_id, producer_id, epoch, protocol, self.world.now)

    def make_record(self, v: int, writer: int, txn: Txn, *, is_forged: bool = False) -> Record:
        record = Record(len(self.records), v, writer, txn, is_forged)
        self.records.append(record)
        return record

    def place_of(self, record: Record) -> tuple[int, int] | None:
        """Returns where a record stands and counts; a retry of it is a duplicate."""
        for q, offset in record.places:
            log = self.logs[q]
            if offset < log.end and log.entries[offset].record is record and self.counts(record.v, q, offset):
                return q, offset
        return None

    def counts(self, v: int, q: int, offset: int) -> bool:
        """Whether a batch of a virtual partition is no stray."""
        move = self.logs[q].entries[offset].move
        return any(s.partition == q and s.move == move and s.holds(offset) for s in self.layout.stays[v])

    def known(self) -> set[tuple[int, int]]:
        """Answers ListTransactions and DescribeTransactions: partitions and producer ids of open ones."""
        return {(q, each.producer_id) for each in self.coordinators.values() for q in each.partitions}
