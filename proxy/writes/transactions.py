"""What one worker knows of transactions, and how it learns more (TXN-WITNESS, ASKED-LEADER).

    AddPartitionsToTxn (v1)   the coordinator has taken it ──> leaders asked ──> witnesses, where nothing is open
    Produce, v1               believed open? ──(no)──> the leader is asked
    Produce, v2               believed open? ──(no)──> a witness on the client's own connection

Everything here is about partitions of managed topics as brokers have them. What is believed ends with the layout, with
the leader, and when the transaction's end passes this worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

import structlog

from kordon.codecs.error_codes import Code, name_of
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.runs import Client
from kordon.proxy.kafka.ends import PartitionEnds
from kordon.proxy.kafka.leaders import Leader, Leaders
from kordon.proxy.kafka.open_producers import OpenProducers
from kordon.proxy.kafka.witness_writer import WitnessWriter
from kordon.proxy.ordering.transactions.beliefs import Beliefs, Ground, ProducerClaim, Step, after_leader
from kordon.proxy.ordering.transactions.open_answers import LeaderSays, leader_says, witness_sequence
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import ManagedTopic
from kordon.proxy.writes.write_dispatcher import WriteDispatcher

log = client_log(__name__)
_logged = structlog.get_logger(__name__)

_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.1
"""Between two tries: a leader is elected, or a witness replicated."""
MOST_AT_ONCE: Final = 64
"""Partitions that one AddPartitionsToTxn asks about at the same time."""
_MOST_OF_V2: Final = 10_000
AGAINST: Final = frozenset({Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE})
"""What a coordinator answers only to the owner of a transactional id, and by what it knows of its transaction."""
_AS_IT_IS: Final = frozenset(
    {
        Code.INVALID_PRODUCER_EPOCH,
        Code.PRODUCER_FENCED,
        Code.INVALID_PRODUCER_ID_MAPPING,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""What a broker answers to a witness that ends the transaction for its client, too."""
_UNSURE: Final = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.KAFKA_STORAGE_ERROR,
        Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Code.DUPLICATE_SEQUENCE_NUMBER,
    }
)
"""On these the leader is asked again: another worker's witness may have come before, or this one may be written."""


class Transactions:
    """The transactions of one worker's clients.

    Args:
        ends: Asks leaders.
        witnesses: Writes witnesses of v1.
        dispatcher: Has data that are not sent yet.

    Attributes:
        witnesses: Counts witnesses of both protocols.
    """

    def __init__(
        self, leaders: Leaders, ends: PartitionEnds, witnesses: WitnessWriter, dispatcher: WriteDispatcher, tasks: Tasks
    ) -> None:
        self.witnesses = witnesses
        self.leaders_asked = OpenProducers(ends, tasks)
        self._leaders = leaders
        self._dispatcher = dispatcher
        self._beliefs: WeakKeyDictionary[ManagedTopic, Beliefs] = WeakKeyDictionary()
        self._of_v2: dict[tuple[str, int, int], None] = {}
        """Transactional ids, producer ids and epochs of what was opened by v2."""
        self._owned: WeakKeyDictionary[Client, tuple[str, int]] = WeakKeyDictionary()
        """By connection, the transactional id and producer id that a coordinator has taken from it last."""

    def beliefs(self, topic: ManagedTopic) -> Beliefs:
        """Returns what is believed about a topic."""
        known = self._beliefs.get(topic)
        if known is None:
            known = self._beliefs[topic] = Beliefs()
        return known

    def ground(self, topic: ManagedTopic, partition: int) -> Ground | None:
        """Returns on what a belief rests now; None: nobody is known to lead the partition."""
        return self._dispatcher.ground(topic, partition)

    def own(self, client: Client, claim: ProducerClaim) -> None:
        """Notes that a coordinator has taken partitions from a client: the transaction is the client's own."""
        self._owned[client] = claim.transactional_id, claim.producer_id

    def owned(self, client: Client, transactional_id: str) -> int | None:
        """Returns which producer id of a transactional id is a client's own; None: it has not shown that."""
        owned_id, producer_id = self._owned.get(client, (None, None))
        return producer_id if owned_id == transactional_id else None

    def opened_by_v2(self, claim: ProducerClaim) -> None:
        """Notes that a witness of v2 has opened a transaction."""
        self._of_v2[claim.transactional_id, claim.producer_id, claim.epoch] = None
        if len(self._of_v2) > _MOST_OF_V2:
            del self._of_v2[next(iter(self._of_v2))]

    def is_of_v2(self, transactional_id: str, producer_id: int, epoch: int) -> bool:
        """Whether this worker has opened a transaction by v2."""
        return (transactional_id, producer_id, epoch) in self._of_v2

    def ends(self, producer_id: int) -> None:
        """Forgets what is believed of a producer: its EndTxn or InitProducerId passes, or has been answered.

        What it has not sent yet is not sent any more: it would fall into its next transaction. Called only for who has
        shown that the producer is its own, as anybody else could stop it for good (OWN-TRANSACTION).
        """
        self.drop(producer_id)
        self._dispatcher.drop_transaction(producer_id)

    def drop(self, producer_id: int) -> None:
        """Forgets what is believed of a producer."""
        for beliefs in self._beliefs.values():
            beliefs.drop(producer_id)

    def forget(self, claim: ProducerClaim) -> None:
        """Forgets where a producer is open under one transactional id and epoch."""
        for beliefs in self._beliefs.values():
            beliefs.forget(claim)

    def forget_leaders(self, topic: ManagedTopic) -> None:
        """Has the next one look up who leads a topic's partitions."""
        self._leaders.forget(topic.name)

    async def lead(self, topic: ManagedTopic, partitions: Iterable[int]) -> None:
        """Looks up who leads partitions, if that is not known."""
        if any(self.ground(topic, q) is None for q in partitions):
            try:
                await self._leaders.of(topic.name)
            except UpstreamUnavailable as error:
                _logged.warning("leaders_not_found", topic=topic.name, error=str(error))

    async def open(self, topic: ManagedTopic, partition: int, claim: ProducerClaim) -> int:
        """Ensures that a producer of v1 is open on a partition. The coordinator has taken that before the call.

        Returns:
            NONE, or what AddPartitionsToTxn is to be answered.
        """
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(_PAUSE_SECONDS * attempt)
            code = await self._try_to_open(topic, partition, claim)
            if code == Code.NONE:
                return code
            if code in _UNSURE:
                self._leaders.forget(topic.name)
                continue
            self.drop(claim.producer_id)
            if code in _AS_IT_IS:
                self._tell_refused(topic, claim, code)
                return code
            _logged.warning("witness_refused", topic=topic.name, partition=partition, error=name_of(code))
            break
        return Code.CONCURRENT_TRANSACTIONS

    async def ask(self, topic: ManagedTopic, partition: int, claim: ProducerClaim, ground: Ground) -> Step:
        """Asks the leader whether a producer of v1 is open on a partition; returns what comes next with its data."""
        beliefs = self.beliefs(topic)
        leader = await self._leader(topic, partition)
        if leader is None or leader.epoch != ground.leader_epoch:
            return Step.LATER
        inquiry = beliefs.inquire(claim, partition, ground)
        says = LeaderSays.UNSURE
        try:
            answer = await self.leaders_asked.ask(topic.name, partition, leader.node_id, claim.producer_id)
            if answer is not None:
                says = leader_says(answer, claim.epoch, leader.epoch)
        finally:
            if says is LeaderSays.OPEN:
                beliefs.confirm(inquiry)
            else:
                beliefs.close(inquiry)
        if says is LeaderSays.UNSURE:
            self._leaders.forget(topic.name)
        return after_leader(says)

    async def _try_to_open(self, topic: ManagedTopic, partition: int, claim: ProducerClaim) -> int:
        leader = await self._leader(topic, partition)
        if leader is None:
            return Code.LEADER_NOT_AVAILABLE
        beliefs = self.beliefs(topic)
        inquiry = beliefs.inquire(claim, partition, Ground(topic.layout.epoch, leader.epoch))
        code: int = Code.NOT_LEADER_OR_FOLLOWER
        try:
            code = await self._open_under(topic.name, partition, claim, leader)
        finally:
            if code == Code.NONE:
                beliefs.confirm(inquiry)
            else:
                beliefs.close(inquiry)
        return code

    async def _open_under(self, topic: str, partition: int, claim: ProducerClaim, leader: Leader) -> int:
        answer = await self.leaders_asked.ask(topic, partition, leader.node_id, claim.producer_id)
        if answer is None:
            return Code.NOT_LEADER_OR_FOLLOWER
        says = leader_says(answer, claim.epoch, leader.epoch)
        if says is not LeaderSays.NOT_OPEN:
            return Code.NONE if says is LeaderSays.OPEN else Code.NOT_LEADER_OR_FOLLOWER
        sequence = witness_sequence(answer, claim.epoch)
        return await self.witnesses.write(topic, partition, leader.node_id, claim, sequence)

    async def _leader(self, topic: ManagedTopic, partition: int) -> Leader | None:
        try:
            return await self._leaders.leader(topic.name, partition)
        except UpstreamUnavailable:
            return None

    def _tell_refused(self, topic: ManagedTopic, claim: ProducerClaim, code: int) -> None:
        if code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            cure = "kafka-acls.sh --add --allow-principal <the principal of Kordon> --operation Write"
            log.error(
                "witness_not_allowed",
                topic=topic.name,
                transactional_id=claim.transactional_id,
                cure=f"{cure} --transactional-id {claim.transactional_id}",
            )
