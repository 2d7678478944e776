"""Transactional producers: one instance after the other of each transactional id, some of them zombies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.beliefs import ProducerClaim
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.testing.transactions.cluster import Cluster, V
from kordon.testing.transactions.codes import Code
from kordon.testing.transactions.logs import Record, Txn
from kordon.testing.transactions.workers import FORGER, Sent, Worker
from kordon.testing.transactions.world import Activity, Slot

PATIENCE_STEPS: Final = (100, 200, 1000)
"""For which a client waits on one connection; one of them is drawn."""
_MOST_RECORDS: Final = 6


@dataclass(eq=False)
class Attempt:
    """A transaction, as its client goes through it."""

    txn: Txn
    claim: ProducerClaim
    added: set[Stream] = field(default_factory=set[Stream])
    """On v1, what the client has added."""
    busy: set[int] = field(default_factory=set[int])
    """Virtual partitions to which a record is under way."""
    code: Code = Code.OK
    """The first error."""

    @property
    def has_failed(self) -> bool:
        return self.code is not Code.OK

    @property
    def is_settled(self) -> bool:
        return not self.busy or self.has_failed

    def fail(self, code: Code | None) -> None:
        if not self.has_failed:
            self.code = code or Code.UNSURE


class Client:
    """An instance of a transactional producer.

    Args:
        goes_round: Whether it adds the partitions of some transactions round Kordon. It keeps to one connection, since
            a worker that has not seen its EndTxn may believe it open.
    """

    def __init__(
        self,
        cluster: Cluster,
        workers: Sequence[Worker],
        transactional_id: str,
        protocol: Protocol,
        number: int,
        *,
        goes_round: bool = False,
    ) -> None:
        self.is_over = False
        """Whether it has nothing more to do."""
        self._coordinator = cluster.coordinators[transactional_id]
        self._cluster, self._world, self._workers = cluster, cluster.world, workers
        self._protocol, self._number, self._goes_round = protocol, number, goes_round
        self._epoch = -1
        self._worker = self._drawn()
        self._known: set[int] = set()
        """The virtual partitions that the latest transaction wrote to; a worker may still believe it open there."""

    def live(self) -> Activity[None]:
        """Writes transactions until the simulation heals, or another instance takes over."""
        yield from self._init()
        while not self._world.is_healing:
            attempt = self._begin()
            yield from self._fill(attempt)
            yield from self._end(attempt)
            if attempt.code is Code.FENCED:
                if self._coordinator.instance != self._number:
                    break  # it is a zombie, and knows it
                yield from self._init()
        self.is_over = True

    def _drawn(self) -> Worker:
        return self._workers[self._world.below(len(self._workers))]

    def _connection(self) -> Worker:
        if not self._goes_round and self._world.happens(0.25):
            self._worker = self._drawn()
        return self._worker

    def _init(self) -> Activity[None]:
        yield None
        while not self._coordinator.init(self._number):
            yield None
        self._epoch = self._coordinator.epoch

    def _begin(self) -> Attempt:
        name = self._coordinator.transactional_id
        txn = self._cluster.begin(name, self._epoch, self._protocol)
        txn.is_native = self._goes_round and self._world.happens(0.5)
        return Attempt(txn, ProducerClaim(name, name, txn.producer_id, txn.epoch))

    def _fill(self, attempt: Attempt) -> Activity[None]:
        known, self._known = self._known, set()
        for _ in range(1 if attempt.txn.is_native else 1 + self._world.below(_MOST_RECORDS)):
            v = self._world.below(V)
            if attempt.txn.is_native and known:
                v = min(known)
            self._known.add(v)
            if attempt.txn.is_v1 and self._stream(v) not in attempt.added:
                more = () if attempt.txn.is_native else (each for each in range(V) if self._world.happens(0.25))
                yield from self._join(attempt, frozenset({self._stream(v), *map(self._stream, more)}))
            if v in attempt.busy:
                yield lambda: v not in attempt.busy or attempt.has_failed  # noqa: B023 - until it goes on
            if attempt.has_failed:
                return
            attempt.busy.add(v)
            record = self._cluster.make_record(v, self._number, attempt.txn, self._stream(v))
            self._world.spawn(self._deliver(attempt, record))
            if self._world.happens(0.5):
                yield lambda: attempt.is_settled

    def _stream(self, v: int) -> Stream:
        """Returns what a record of a virtual partition is sent to."""
        return v

    def _join(self, attempt: Attempt, streams: frozenset[Stream]) -> Activity[None]:
        """On v1, adds what is not added yet."""
        if not attempt.txn.is_v1 or streams <= attempt.added:
            return
        code: Code | None = Code.CONCURRENT
        while code in {None, Code.CONCURRENT}:
            yield None
            if attempt.txn.is_native:
                code = self._coordinator.add(attempt.txn, [self._cluster.home(v) for v in streams])
                continue
            slot, worker = Slot[Code](), self._connection()
            self._world.spawn(worker.add(attempt.claim, attempt.txn, streams, slot), worker)
            code = yield from self._patiently(slot)
        attempt.added |= streams
        if code is not Code.OK:
            attempt.fail(code)

    def _deliver(self, attempt: Attempt, record: Record) -> Activity[None]:
        """Sends a record until an answer settles it."""
        code: Code | None = None
        while code in {None, Code.NOT_LEADER} and attempt.txn.outcome is None:
            yield None
            code = yield from self._send(attempt, Sent(record, record.stream))
        self._settle(attempt, record, code)

    def _send(self, attempt: Attempt, sent: Sent) -> Activity[Code | None]:
        slot, worker = Slot[Code](), self._connection()
        self._world.spawn(worker.produce(attempt.claim, self._protocol, sent, slot), worker)
        return (yield from self._patiently(slot))

    def _settle(self, attempt: Attempt, record: Record, code: Code | None) -> None:
        if code is Code.OK:
            record.is_acked = True
            attempt.busy.discard(record.v)
        else:
            attempt.fail(code)

    def _patiently(self, slot: Slot[Code]) -> Activity[Code | None]:
        until = self._world.now + PATIENCE_STEPS[self._world.below(len(PATIENCE_STEPS))]
        yield lambda: slot.is_filled or self._world.now > until
        return slot.value

    def _end(self, attempt: Attempt) -> Activity[None]:
        """Commits when all is acknowledged, or aborts, also without waiting for what is under way."""
        txn = attempt.txn
        is_commit = not attempt.has_failed and self._world.happens(0.8)
        if is_commit or self._goes_round or self._world.happens(0.4):
            yield lambda: attempt.is_settled
        is_commit = is_commit and not attempt.has_failed
        code: Code | None = Code.CONCURRENT
        while code in {None, Code.CONCURRENT} and attempt.code is not Code.FENCED:
            yield None
            slot, worker = Slot[Code](), self._connection()
            self._world.spawn(worker.end(attempt.claim, txn, slot, is_commit=is_commit), worker)
            code = yield from self._patiently(slot)
        if code is not Code.OK or txn.outcome is not is_commit:
            attempt.code = Code.FENCED
        elif self._protocol is Protocol.V2:
            self._epoch += 1


def forge(cluster: Cluster, worker: Worker, txn: Txn, slot: Slot[Code]) -> Activity[None]:
    """Sends a record in another principal's transaction."""
    claim = ProducerClaim(FORGER, txn.transactional_id, txn.producer_id, txn.epoch)
    record = cluster.make_record(cluster.world.below(V), -1, txn, is_forged=True)
    yield from worker.produce(claim, txn.protocol, Sent(record, record.stream), slot)
