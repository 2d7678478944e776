"""A worker's belief that a producer's transaction is open on a physical partition (TXN-WITNESS).

No broker verifies the data of a transaction, because they stand under tagged producer ids. What is written on a wrong
belief is acknowledged, committed and then hidden. So a belief rests on a witness or on an answer of the leader, and it
ends with either of them, the layout or the leader. If one is forgotten, Kordon asks again.

Data of a transaction also need the client's own right to its transactional id (OWN-TRANSACTION): producer id and epoch
are no secret.

| the worker does not know | v1 | v2 |
| --- | --- | --- |
| whether the client may use the transactional id | asks the client's broker | asks the client's broker |
| whether the producer is open there | asks the leader | writes a witness, which repeats or opens |
| and the answer is that it is not | refuses: INVALID_TXN_STATE | |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeVar
from weakref import WeakSet

from kordon.proxy.ordering.transactions.events import Protocol
from kordon.proxy.ordering.transactions.open_answers import LeaderSays

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
RIGHT_SECONDS: Final = 1.0
"""For which a client's right to its transactional id counts, from when its broker was asked."""

_MOST_OF_ONE: Final = 1_000
"""Beliefs kept of one producer: a transaction of v2 has an epoch of its own, and may end elsewhere."""


class ProducerClaim(NamedTuple):
    """What a batch says of its producer."""

    principal: str
    """The principal of the connection."""
    transactional_id: str
    producer_id: int
    epoch: int
    """The producer epoch."""


class Ground(NamedTuple):
    """What a belief rests on, besides the claim and the partition."""

    layout_epoch: int
    """The topic's layout epoch: a change may have begun without waiting for this transaction."""
    leader_epoch: int
    """The physical partition's leader epoch: the next leader may lack the witness."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class Inquiry:
    """A witness or a question to a leader that is under way."""

    claim: ProducerClaim
    partition: int
    """The physical partition."""
    ground: Ground
    """As it was when the inquiry was sent."""
    is_void: bool = False
    """Whether the transaction may have ended since, so that the answer proves nothing."""


class Step(Enum):
    """What to do next with data of a transaction."""

    WRITE = "write"
    ASK_RIGHT = "ask right"
    """Ask the client's broker, on the client's connection, whether it may use the transactional id."""
    ASK_LEADER = "ask leader"
    """Ask the partition's leader whether the producer is open (`open_answers.py`)."""
    WITNESS = "witness"
    """Write a witness on the client's connection. If it is refused, so are the data."""
    REFUSE = "refuse"
    """Answer INVALID_TXN_STATE: the transaction is not open there."""
    LATER = "later"
    """Answer NOT_LEADER_OR_FOLLOWER: nobody can say now."""


class Beliefs:
    """The beliefs of one worker about one topic.

    Args:
        most: Producers of which something is kept at most, and rights. Beyond it the oldest are forgotten.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._open: dict[int, dict[tuple[ProducerClaim, int], Ground]] = {}
        """By producer id, then by claim and physical partition, whoever's connection it was seen on: the right is asked
        for each."""
        self._rights: dict[tuple[str, str], float] = {}
        """When a broker was asked, by principal and transactional id. A transaction's end leaves the right."""
        self._under_way: dict[int, WeakSet[Inquiry]] = {}
        """The inquiries under way. One that nobody refers to is not under way: a connection's end closes none."""

    @property
    def under_way(self) -> int:
        """How many inquiries are under way."""
        return sum(map(len, self._under_way.values()))

    def step(self, claim: ProducerClaim, protocol: Protocol, partition: int, ground: Ground, now: float) -> Step:
        """Returns what comes next before data of a transaction are written.

        Args:
            partition: The physical partition.
            ground: The present ground.
            now: Seconds on the worker's clock.
        """
        if not self.has_right(claim, now):
            return Step.ASK_RIGHT
        if self.is_open(claim, partition, ground):
            return Step.WRITE
        return Step.ASK_LEADER if protocol is Protocol.V1 else Step.WITNESS

    def has_right(self, claim: ProducerClaim, now: float) -> bool:
        """Whether the client's broker has said lately that it may use the transactional id."""
        asked = self._rights.get(_right(claim))
        return asked is not None and now - asked <= RIGHT_SECONDS

    def is_open(self, claim: ProducerClaim, partition: int, ground: Ground) -> bool:
        """Whether a producer is known to be open on a partition, on the ground that there is now."""
        known = self._open.get(claim.producer_id)
        believed = known.get(_place(claim, partition)) if known is not None else None
        return believed is not None and has_same_ground(believed, ground)

    def allow(self, claim: ProducerClaim, asked: float) -> None:
        """Notes that the client's broker let it use the transactional id: it said so, or took a witness or partitions.

        Args:
            asked: When the broker was asked, in seconds on the worker's clock.
        """
        _keep(self._rights, _right(claim), asked, self._most)

    def inquire(self, claim: ProducerClaim, partition: int, ground: Ground) -> Inquiry:
        """Notes that a witness is about to be sent, or the leader to be asked. Each inquiry is closed or confirmed.

        Args:
            partition: The physical partition.
            ground: The present ground.
        """
        inquiry = Inquiry(claim, partition, ground)
        if len(self._under_way) > self._most:
            self._under_way = {key: left for key, left in self._under_way.items() if left}
        self._under_way.setdefault(claim.producer_id, WeakSet()).add(inquiry)
        return inquiry

    def close(self, inquiry: Inquiry) -> None:
        """Ends an inquiry that proved nothing, or has no answer."""
        under_way = self._under_way.get(inquiry.claim.producer_id)
        if under_way is not None:
            under_way.discard(inquiry)
            if not under_way:
                del self._under_way[inquiry.claim.producer_id]

    def confirm(self, inquiry: Inquiry) -> None:
        """Ends an inquiry: the witness was acknowledged, or the leader told the producer open."""
        self.close(inquiry)
        if not inquiry.is_void:
            _keep(self._of(inquiry.claim), _place(inquiry.claim, inquiry.partition), inquiry.ground, _MOST_OF_ONE)

    def drop(self, producer_id: int) -> None:
        """Forgets where a producer is open: its EndTxn or InitProducerId was answered, or an answer was an error."""
        self._open.pop(producer_id, None)
        self._void(producer_id, lambda _: True)

    def forget(self, claim: ProducerClaim) -> None:
        """Forgets where a producer is open under one transactional id and epoch; what others claim of it stays."""
        mine, known = _of_anybody(claim), self._open.get(claim.producer_id)
        if known is not None:
            self._open[claim.producer_id] = {place: ground for place, ground in known.items() if place[0] != mine}
        self._void(claim.producer_id, lambda each: _of_anybody(each) == mine)

    def _of(self, claim: ProducerClaim) -> dict[tuple[ProducerClaim, int], Ground]:
        known = self._open.get(claim.producer_id)
        if known is None:
            known = {}
            _keep(self._open, claim.producer_id, known, self._most)
        return known

    def _void(self, producer_id: int, is_meant: Callable[[ProducerClaim], bool]) -> None:
        for inquiry in self._under_way.get(producer_id, ()):
            if is_meant(inquiry.claim):
                inquiry.is_void = True


def after_leader(says: LeaderSays) -> Step:
    """Returns what comes after the leader's answer about a producer of v1."""
    return {LeaderSays.OPEN: Step.WRITE, LeaderSays.NOT_OPEN: Step.REFUSE, LeaderSays.UNSURE: Step.LATER}[says]


def has_same_ground(then: Ground, now: Ground) -> bool:
    """Whether a belief still rests on something."""
    return has_same_leader(then, now) and has_same_layout(then, now)


def has_same_leader(then: Ground, now: Ground) -> bool:
    """Whether the log is still that of the leader which took the witness."""
    return then.leader_epoch == now.leader_epoch


def has_same_layout(then: Ground, now: Ground) -> bool:
    """Whether no change has come between, which might not have waited for the transaction."""
    return then.layout_epoch == now.layout_epoch


def _place(claim: ProducerClaim, partition: int) -> tuple[ProducerClaim, int]:
    return _of_anybody(claim), partition


def _of_anybody(claim: ProducerClaim) -> ProducerClaim:
    return ProducerClaim("", claim.transactional_id, claim.producer_id, claim.epoch)


def _right(claim: ProducerClaim) -> tuple[str, str]:
    return claim.principal, claim.transactional_id


def _keep(kept: dict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]
