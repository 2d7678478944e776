"""The log of a physical partition: what its leader has appended, what is replicated, and what elections make of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field

from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.events import Batch, Marker, Protocol, Witness
from kordon.proxy.ordering.transactions.open_answers import NOT_OPEN, LeaderAnswer
from kordon.testing.transactions.codes import Code

_REMEMBERED = 5
"""Batches of a producer by which brokers know a repetition."""


@dataclass(eq=False, slots=True)
class Txn:
    """A transaction, as its client knows it."""

    number: int
    transactional_id: str
    producer_id: int
    epoch: int
    protocol: Protocol
    began: int
    """In steps."""
    outcome: bool | None = None
    """Whether it committed; None: nobody has decided."""
    is_native: bool = False
    """Whether its partitions were added round Kordon."""
    unmarked: set[int] = field(default_factory=set[int])
    """Physical partitions whose marker an unclean election took."""

    @property
    def is_v1(self) -> bool:
        return self.protocol is Protocol.V1


@dataclass(eq=False, slots=True)
class Record:
    """A record, and what may become of it."""

    number: int
    v: int
    stream: Stream
    """What it is sent to: its virtual partition, or a physical one by a client of the dialect."""
    writer: int
    """The client."""
    txn: Txn
    is_forged: bool = False
    is_acked: bool = False
    is_lost: bool = False
    """Whether an unclean election took it."""
    was_lost: bool = False
    """Whether one ever did: a request that was still on its way may bring it back behind later ones."""
    may_show: bool = False
    """Whether it came after its transaction's end, and fell into the next one of the same epoch: Kafka's v1, too."""
    is_doubtful: bool = False
    """Whether its producer hung there on v1: an unclean election took the marker of the transaction before."""
    is_misled: bool = False
    """Whether its partition was added round Kordon, and its worker believed the transaction before open."""
    places: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Physical partitions and offsets at which it was appended."""


@dataclass(eq=False, slots=True)
class Entry:
    """A batch in the log."""

    what: Witness | Marker | Batch
    sequences: tuple[int, int] = (0, 0)
    """Of a witness."""
    stream: Stream = -1
    move: int = -1
    record: Record | None = None
    txns: tuple[Txn, ...] = ()
    """Those that a marker ends."""


@dataclass(slots=True)
class Producer:
    """What a leader knows of one."""

    epoch: int
    last_sequence: int = -1
    start_offset: int = NOT_OPEN
    stored: deque[tuple[tuple[int, int], int]] = field(
        default_factory=lambda: deque[tuple[tuple[int, int], int]](maxlen=_REMEMBERED)
    )

    def raise_epoch(self, epoch: int) -> None:
        if epoch > self.epoch:
            self.epoch, self.last_sequence = epoch, -1
            self.stored.clear()


class Log:
    """The log of one physical partition."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.entries: list[Entry] = []
        """By offset; what retention took is kept for the checks."""
        self.log_start = 0
        self.high_watermark = 0
        self.leader_epoch = 0
        self.producers: dict[int, Producer] = {}
        self.shortened: list[int] = []
        """The log ends that unclean elections left."""
        self.shaken = -1
        """The step of the latest event that may make a leader forget a witness that it had acknowledged."""
        self.slow_until = -1
        """The step until which followers are slow, but in sync."""
        self._hanging: set[int] = set()
        """Producers whose marker of v1 an unclean election took, and that have had none since."""
        self._known_from = 0
        """Where the replicas that are now there began to follow."""
        self._deposed: tuple[int, dict[int, Producer], int] | None = None

    @property
    def end(self) -> int:
        return len(self.entries)

    def ask(self, producer_id: int, leader_epoch: int) -> LeaderAnswer:
        """Answers DescribeProducers as the leader of an epoch does, also one that has been deposed."""
        epoch, producers, high_watermark = self.leader_epoch, self.producers, self.high_watermark
        if self._deposed is not None and self._deposed[0] == leader_epoch:
            epoch, producers, high_watermark = self._deposed
        known = producers.get(producer_id, Producer(-1))
        return LeaderAnswer(epoch, epoch, known.epoch, known.last_sequence, known.start_offset, high_watermark)

    def ask_again(self, answer: LeaderAnswer) -> LeaderAnswer:
        """Answers the second ListOffsets; who has been deposed knows it by then."""
        is_leader = answer.leader_epoch_before == self.leader_epoch
        high_watermark = self.high_watermark if is_leader else answer.high_watermark
        return answer._replace(leader_epoch_after=self.leader_epoch, high_watermark=high_watermark)

    def append(self, entry: Entry) -> int:
        """Appends a batch; returns its offset."""
        self.entries.append(entry)
        self._apply(entry, self.end - 1)
        if entry.record is not None:
            record = entry.record
            record.is_doubtful |= entry.what.producer_id in self._hanging
            record.places.append((self.partition, self.end - 1))
            if not record.is_acked and record.txn.outcome is None:
                record.is_lost = False  # its client has sent it again
        return self.end - 1

    def hangs(self, producer_id: int) -> bool:
        """Whether an unclean election took a producer's marker of v1, and it has had none since."""
        return producer_id in self._hanging

    def is_open(self, txn: Txn) -> bool:
        """Whether a producer is open at the leader, by a transaction of the same epoch."""
        known = self.producers.get(txn.producer_id)
        return known is not None and known.start_offset != NOT_OPEN and known.epoch == txn.epoch

    def replicated(self, offset: int) -> Callable[[], bool]:
        """Returns the wait for the acknowledgement of a batch, or for the end of its leader."""
        leader_epoch = self.leader_epoch
        return lambda: self.high_watermark > offset or self.leader_epoch != leader_epoch

    def append_witness(self, producer_id: int, epoch: int, sequences: tuple[int, int]) -> int | Code:
        """Appends a witness that its coordinator has verified; a repetition gets the old offset."""
        known = self.producers.get(producer_id)
        if known is not None:
            if epoch < known.epoch:
                return Code.FENCED
            if epoch == known.epoch:
                for stored, offset in known.stored:
                    if stored == sequences:
                        return offset
            expected = known.last_sequence + 1 if epoch == known.epoch else 0
            if sequences[0] != expected:
                return Code.OUT_OF_ORDER
        return self.append(Entry(Witness(self.end, producer_id, epoch), sequences))

    def append_marker(self, producer_id: int, epoch: int, txns: tuple[Txn, ...], *, is_commit: bool) -> int | None:
        """Appends a marker; None: a later epoch has written, so it is refused."""
        known = self.producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            return None
        if known is None or known.start_offset == NOT_OPEN:
            self._excuse_late(producer_id, txns)
        self._hanging.discard(producer_id)
        return self.append(Entry(Marker(self.end, producer_id, epoch, is_commit), txns=txns))

    def elect(self, kept: int, step: int) -> None:
        """Makes a replica the leader that has the log up to an offset; below the high watermark, it was not in sync."""
        self._deposed = self.leader_epoch, deepcopy(self.producers), self.high_watermark
        self.leader_epoch += 1
        if kept < self.high_watermark:
            self.shortened.append(kept)
            self.shaken = step
            for entry in self.entries[kept : self.high_watermark]:
                self._lose(entry)
        del self.entries[kept:]
        self.high_watermark = min(self.high_watermark, kept)
        self._rebuild()

    def renew_replicas(self, step: int) -> None:
        """Makes a replica the leader that has followed from the present log start on."""
        self._known_from = self.log_start
        self.shaken = step
        self.elect(max(self.high_watermark, self.log_start), step)

    def start_of_v1(self) -> int:
        """Returns the offset of the first witness of v1 that is open, else the high watermark."""
        starts = [each.start_offset for each in self.producers.values() if each.start_offset != NOT_OPEN]
        return min([each for each in starts if is_of_v1(self.entries[each])], default=self.high_watermark)

    def data_behind(self, offset: int) -> Iterator[tuple[int, Entry]]:
        """Returns the batches of data from an offset on."""
        for at in range(offset, self.end):
            if isinstance(self.entries[at].what, Batch):
                yield at, self.entries[at]

    def _rebuild(self) -> None:
        self.producers = {}
        for offset in range(self._known_from, self.end):
            self._apply(self.entries[offset], offset)

    def _apply(self, entry: Entry, offset: int) -> None:
        what = entry.what
        if isinstance(what, Batch):
            return
        known = self.producers.setdefault(what.producer_id, Producer(what.epoch))
        known.raise_epoch(what.epoch)
        if isinstance(what, Marker):
            known.start_offset = NOT_OPEN
            return
        known.stored.append((entry.sequences, offset))
        known.last_sequence = entry.sequences[1]
        if known.start_offset == NOT_OPEN:
            known.start_offset = offset

    def _lose(self, entry: Entry) -> None:
        if entry.record is not None:
            entry.record.is_lost = entry.record.was_lost = True
        for txn in entry.txns:
            txn.unmarked.add(self.partition)
            if txn.is_v1:
                self._hanging.add(txn.producer_id)

    def _excuse_late(self, producer_id: int, txns: tuple[Txn, ...]) -> None:
        """Lets late records of v1 show that a marker without a witness may commit, as it would in Kafka."""
        for entry in reversed(self.entries):
            if entry.what.producer_id != producer_id:
                continue
            if not isinstance(entry.what, Batch):
                return
            record = entry.record
            if record is not None and record.txn not in txns and record.txn.is_v1 and record.txn.outcome is not None:
                record.may_show = True


def is_of_v1(entry: Entry) -> bool:
    """Whether a witness has one record: those of v2 have two, and are never its repetitions."""
    return entry.sequences[0] == entry.sequences[1]
