"""What the log of a physical partition proves about the writes of a transaction, producer by producer.

    W d d COMMIT      the writes stand behind their witness: right, whatever comes behind them
    d COMMIT          committed, and no witness of theirs: readers get them, and others of the transaction may be lost
    d W d COMMIT      the first one belongs to no transaction that readers know: it is hidden (first protocol)
    d ABORT, d …      not committed: nothing was promised

This is a statement of the auditor's own: it shares no code with the proxy, and so no mistake. A property test holds it
against the proxy's (`tests/judging/test_transaction_log.py`).

What may be honest is no proof:

- A marker can stand in the log twice, as coordinators send it again. If one of its kind and epoch stands before the
  witness that it follows, it may be a repetition, and the transaction may continue behind it.
- On the first protocol a write can come late, after the abort of its transaction, as in Kafka.
- A part of the log may not have been read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

COMMIT: Final = "commit"
ABORT: Final = "abort"
"""What markers say of a transaction; a witness says `belonging.WITNESS`."""
V1: Final = 1
V2: Final = 2
NO_EPOCH: Final = -1
"""Smaller than all epochs: there was none."""


class Standing(IntEnum):
    """What holds of a write if its transaction commits."""

    WITNESSED = 0
    UNWITNESSED = 1
    """No witness of its transaction is in front of it."""
    DOUBTED = 2
    """The same, but a marker in between may be a repetition, or the write may have come late."""
    UNREAD = 3
    """Nobody can say, as the log was not read from where its witness may be."""


class Writes(NamedTuple):
    """Writes of one producer in one transaction and for one home, between two events of the producer."""

    epoch: int
    """The producer epoch."""
    protocol: int
    v: int
    move: int
    first_offset: int
    last_offset: int
    records: int
    leader_epoch: int
    """Of the last one."""
    standing: Standing = Standing.UNREAD
    is_after_abort: bool = False
    is_hidden: bool = False
    """A witness stands behind them, and so readers will not get them (first protocol)."""


class Judgement(NamedTuple):
    """What came of some writes."""

    writes: Writes
    is_committed: bool
    """Whether their own transaction has committed."""


@dataclass(slots=True)
class LoggedProducer:
    """What is known of a producer in one log."""

    is_whole: bool
    """Whether all its events are known."""
    witness: int = NO_EPOCH
    """The epoch of the last witness."""
    is_ended: bool = False
    """Whether a marker stands behind it."""
    is_aborted: bool = False
    """Whether one of these is an abort."""
    may_go_on: bool = True
    """Whether the transaction may continue behind these: commits among them may be repetitions, and writes be late."""
    top: int = NO_EPOCH
    """The highest epoch of these."""
    commit: int = NO_EPOCH
    """The epoch of the last commit before the witness …"""
    newest_commit: int = NO_EPOCH
    """… and of the last one of all."""
    open: Writes | None = None
    """What one home got behind the witness on the first protocol: it is hidden if another witness comes."""
    waiting: list[Writes] = field(default_factory=list[Writes])
    """What a commit would prove something of."""

    def write(self, writes: Writes) -> Standing:
        """Takes what was written next; returns what holds of it if it is committed."""
        standing = self._standing_v2(writes.epoch) if writes.protocol == V2 else self._standing_v1(writes.epoch)
        if standing is not Standing.WITNESSED:
            is_after_abort = writes.protocol == V1 and self.is_ended and self.is_aborted
            self.waiting.append(writes._replace(standing=standing, is_after_abort=is_after_abort))
        elif writes.protocol == V1:
            self.open = writes if self.open is None else _joined(self.open, writes)
        return standing

    def _standing_v1(self, epoch: int) -> Standing:
        """The event before decides."""
        if self.witness == NO_EPOCH:
            return self._without_witness()
        if self.witness != epoch:
            return Standing.UNWITNESSED
        if not self.is_ended:
            return Standing.WITNESSED
        return Standing.DOUBTED if self.may_go_on else Standing.UNWITNESSED

    def _standing_v2(self, epoch: int) -> Standing:
        """Markers of the same epoch, or an earlier one, are repetitions."""
        if max(self.witness, self.top) > epoch:  # it came late: its own commit may be repeated behind it
            return Standing.DOUBTED if self.newest_commit > epoch or not self.is_whole else Standing.UNWITNESSED
        if self.witness == NO_EPOCH:
            return self._without_witness()
        return Standing.WITNESSED if self.witness == epoch else Standing.UNWITNESSED

    def _without_witness(self) -> Standing:
        if self.is_whole:
            return Standing.UNWITNESSED
        return Standing.DOUBTED if self.is_ended else Standing.UNREAD

    def see_witness(self, epoch: int, leader_epoch: int) -> Iterator[Judgement]:
        """Takes the next witness; yields what can be committed no more."""
        left: list[Writes] = []
        for each in self.waiting:
            if _is_passed_over(each, epoch):
                left.append(each)
            elif each.protocol == V1 and each.epoch == epoch:
                left.append(_hidden(each, Standing.UNREAD if each.is_after_abort else each.standing))
            else:
                yield Judgement(each, is_committed=False)
        if self.open is not None and self.open.epoch == epoch:
            # a leader that has not changed knew that the transaction was open, and whoever asked it
            is_same_log = self.open.leader_epoch == leader_epoch
            left.append(_hidden(self.open, Standing.UNWITNESSED if is_same_log else Standing.UNREAD))
        self.waiting, self.open = left, None
        self.witness, self.top, self.commit = epoch, NO_EPOCH, self.newest_commit
        self.is_ended, self.is_aborted, self.may_go_on = False, False, True

    def see_marker(self, epoch: int, *, is_commit: bool) -> Iterator[Judgement]:
        """Takes the next marker; yields what it decides."""
        left: list[Writes] = []
        for each in self.waiting:
            if _is_passed_over(each, epoch):
                left.append(each)
            else:
                yield Judgement(each, is_commit and epoch == each.epoch + (each.protocol == V2))
        self.waiting, self.open = left, None
        may_be_repeated = not is_commit or self.commit == epoch or not self.is_whole
        self.may_go_on = self.may_go_on and may_be_repeated
        self.is_ended, self.is_aborted = True, self.is_aborted or not is_commit
        self.top = max(self.top, epoch)
        if is_commit:
            self.newest_commit = epoch


def _is_passed_over(writes: Writes, epoch: int) -> bool:
    """Whether an event after writes says nothing of them: on the second protocol it is a repetition."""
    return writes.protocol == V2 and epoch <= writes.epoch


def _hidden(writes: Writes, standing: Standing) -> Writes:
    return writes._replace(standing=standing, is_hidden=True)


def _joined(first: Writes, then: Writes) -> Writes:
    """Returns writes as one; of those that belong elsewhere only the newest."""
    if (first.epoch, first.v, first.move) != (then.epoch, then.v, then.move):
        return then
    return then._replace(first_offset=first.first_offset, records=first.records + then.records)
