"""A transaction coordinator, for one transactional id: epochs, fencing, timeouts, markers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from kordon.proxy.ordering.transactions.events import Protocol
from kordon.testing.transactions.codes import Code
from kordon.testing.transactions.logs import Log, Txn
from kordon.testing.transactions.world import Activity, World

TIMEOUT_STEPS: Final = (600, 3000, 3000)
"""One of them is drawn for each transaction."""


class State(Enum):
    EMPTY = "empty"
    ONGOING = "ongoing"
    ENDING = "ending"


class Coordinator:
    """It never fails: what it took is durable, and clients see its failures as `CONCURRENT`."""

    def __init__(self, world: World, logs: Mapping[int, Log], transactional_id: str, producer_id: int) -> None:
        self._world = world
        self._logs = logs
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = -1
        self.instance = -1
        """The client that has the epoch."""
        self.state = State.EMPTY
        self.partitions: set[int] = set()
        """Those that still need a marker."""
        self.count = 0
        """Transactions so far."""
        self._protocol = Protocol.V1
        self._txns: list[Txn] = []
        """Those of the client that took part in the present one."""
        self._ended = 0, -1
        """The transaction that a client ended last, and the epoch since."""
        self._sent: list[tuple[int, int, bool, int]] = []
        """The markers of the latest transaction: partition, epoch, whether it committed, its count."""

    def names(self, partition: int) -> bool:
        """Whether a partition is in an open or prepared transaction."""
        return partition in self.partitions

    @property
    def latest(self) -> Txn | None:
        """The client's transaction that joined last."""
        return self._txns[-1] if self._txns else None

    def is_open_for(self, txn: Txn) -> bool:
        """Whether a transaction can go on."""
        return self.state is State.ONGOING and txn in self._txns and txn.epoch == self.epoch

    def init(self, instance: int) -> bool:
        """InitProducerId of a client; False: ask again."""
        if self.state is State.ONGOING:
            self.epoch += 1
            self._prepare(False, self.epoch)
        if self.state is State.ENDING:
            return False
        self.epoch += 1
        self.instance = instance
        return True

    def add(self, txn: Txn, partitions: Iterable[int]) -> Code:
        """AddPartitionsToTxn, by a client of v1 or for a Produce of v2."""
        if txn.epoch != self.epoch:
            return Code.FENCED
        if self.state is State.ENDING:
            return Code.CONCURRENT
        if self.state is State.EMPTY:
            self.state, self._txns, self._protocol = State.ONGOING, [], txn.protocol
            self.count += 1
            self._world.spawn(self._time_out(self.count))
        if txn not in self._txns:
            self._txns.append(txn)
        self.partitions.update(partitions)
        return Code.OK

    def verify(self, txn: Txn, partition: int) -> Code:
        """What a broker asks before it appends a transactional batch of v1."""
        if txn.epoch != self.epoch:
            return Code.FENCED
        is_added = self.state is State.ONGOING and partition in self.partitions
        return Code.OK if is_added else Code.INVALID_TXN_STATE

    def end(self, txn: Txn, *, is_commit: bool) -> Code:
        """EndTxn. What comes late from an earlier transaction of v1 does not end this one."""
        if txn.outcome is not None:
            return Code.OK if self._ended == (txn.number, self.epoch) else Code.FENCED
        if txn.epoch != self.epoch:
            return Code.FENCED
        if self.state is State.ENDING:
            return Code.CONCURRENT
        if txn.protocol is Protocol.V2:
            self.epoch += 1
        if self.state is State.ONGOING:
            self._prepare(is_commit, self.epoch)
        txn.outcome = is_commit
        self._ended = txn.number, self.epoch
        return Code.OK

    def repeat_marker(self) -> None:
        """Lets a marker arrive once more: on v1 before the next transaction, on v2 at any time."""
        if self._sent:
            partition, epoch, is_commit, count = self._sent[self._world.below(len(self._sent))]
            if self._protocol is Protocol.V2 or (count == self.count and self.state is not State.ONGOING):
                known = self._logs[partition].producers.get(self.producer_id)
                if known is not None:
                    self._logs[partition].append_marker(self.producer_id, epoch, (), is_commit=is_commit)

    def _prepare(self, is_commit: bool, epoch: int) -> None:
        self.state = State.ENDING
        for txn in self._txns:
            if txn.outcome is None:
                txn.outcome = is_commit
        self._sent = []
        if not self.partitions:
            self.state = State.EMPTY
        for partition in sorted(self.partitions):
            self._world.spawn(self._mark(partition, epoch, tuple(self._txns), is_commit))

    def _mark(self, partition: int, epoch: int, txns: tuple[Txn, ...], is_commit: bool) -> Activity[None]:
        log = self._logs[partition]
        while True:
            yield self._world.journey()
            leader_epoch = log.leader_epoch
            offset = log.append_marker(self.producer_id, epoch, txns, is_commit=is_commit)
            if offset is None:
                break
            yield log.replicated(offset)
            if log.leader_epoch == leader_epoch:
                self._sent.append((partition, epoch, is_commit, self.count))
                break
        self.partitions.discard(partition)
        if not self.partitions and self.state is State.ENDING:
            self.state = State.EMPTY

    def _time_out(self, count: int) -> Activity[None]:
        ends = self._world.now + TIMEOUT_STEPS[self._world.below(len(TIMEOUT_STEPS))]
        yield lambda: self.count != count or self.state is not State.ONGOING or self._world.now > ends
        if self.count == count and self.state is State.ONGOING:
            self.epoch += 1
            self._prepare(False, self.epoch)
