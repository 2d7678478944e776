"""Produce requests of transactions: what is asked before their batches get a place in a line (TXN-WITNESS).

    decided ──(questions, on the client's own connection)──> earlier requests are in line ──> answers
        ──> leaders are asked (v1) ──> the home and what is believed are looked at again ──> line, or error

The questions go out when the request is decided on, so they keep their place among the client's requests. A client has
one producer on a connection: while one of its requests waits, the later ones wait behind it.

| not known | v1 (Produce up to 11) | v2 (from 12 on) |
| --- | --- | --- |
| the right to the transactional id | AddPartitionsToTxn of a partition that is not there | a witness, once more |
| whether the producer is open there | asked of the leader by Kordon | a witness |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.produce import ProduceRequest
from kordon.proxy.core.interception import Question
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.batch_checks import CheckedBatch, Unfit, is_transactional, look_records
from kordon.proxy.handlers.transaction_permits import Permits
from kordon.proxy.handlers.transaction_questions import protocol_of, right_question, witness_question
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.beliefs import Ground, Inquiry, ProducerClaim, Step
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.proxy.topics.managed_topics import ManagedTopic
from kordon.proxy.writes.transactions import Transactions
from kordon.proxy.writes.write_outcomes import LEADER_ERRORS

_LONGEST_TIMEOUT_MS: Final = 30_000
_LATER: Final = Unfit(Code.NOT_LEADER_OR_FOLLOWER, "It is not known now whether the transaction is open there")
_TWO_PRODUCERS: Final = Unfit(Code.INVALID_PRODUCER_ID_MAPPING, "A Produce request of a transaction has one producer")
_NOT_OPEN: Final = Unfit(
    Code.INVALID_TXN_STATE,
    "The transaction is not open on this partition: it has ended, or was not begun through Kordon",
)


@dataclass(slots=True, eq=False)
class _OpenQuestion:
    """A question on a client's connection, for whoever rests on its answer."""

    code: int = Code.NONE
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, code: int) -> None:
        self.code = code
        self.answered.set()


@dataclass(slots=True, eq=False)
class _Addressed:
    """A physical partition to which batches of a request's transaction go."""

    topic: ManagedTopic
    partition: int
    asked: list[_OpenQuestion] = field(default_factory=list[_OpenQuestion])
    """What its client's broker has been asked for it."""
    asks_leader: bool = False
    is_sound: bool = False
    """Whether its client has the right to the transactional id, unless one of `asked` says that it has not."""
    unfit: Unfit | None = None
    admitted: Ground | Unfit = _LATER
    """On what batches rest that go into line now, or why they do not."""

    @property
    def refusal(self) -> int:
        """What the client's broker has against it; NONE: nothing."""
        return next((each.code for each in self.asked if each.code != Code.NONE), Code.NONE)


class _Entry(NamedTuple):
    """A batch that waits for its place in a line."""

    home: Stay
    place: _Addressed
    records: memoryview | None
    batch: CheckedBatch
    """What the records came to when they were looked at."""


class ConnectionWork:
    """What is under way on one client's connection."""

    def __init__(self, number: int) -> None:
        self.principal = f"connection {number}"
        self.last: asyncio.Event | None = None
        """Is set when the batches of the last request are in line."""
        self.witnesses: dict[tuple[ProducerClaim, ManagedTopic, int, Ground], _OpenQuestion] = {}
        self.rights: dict[ProducerClaim, _OpenQuestion] = {}


class TransactionalProduce:
    """Looks at Produce requests of transactions.

    Args:
        permits: Have topics take transactions.
    """

    def __init__(self, transactions: Transactions, permits: Permits, may_serve: Callable[[], bool]) -> None:
        self.transactions = transactions
        self.permits = permits
        self.may_serve = may_serve
        self.asked = 0
        """How often clients' brokers were asked for rights; only rises."""
        self._connections: WeakKeyDictionary[Client, ConnectionWork] = WeakKeyDictionary()

    @property
    def witnesses(self) -> Mapping[str, int]:
        """How many witnesses came to each end."""
        return {"written": 0} | self.transactions.witnesses.outcomes

    @property
    def questions(self) -> Mapping[str, int]:
        """How often leaders, and clients' own brokers, were asked."""
        return {"leader": self.transactions.leaders_asked.asked, "client_broker": self.asked}

    def prepare(
        self,
        version: int,
        asked: ProduceRequest,
        client: Client,
        found: Iterable[tuple[ManagedTopic, Sequence[_Part]]],
        opened_bytes: int | None = None,
    ) -> PreparedProduce:
        """Says what has to be asked before a request's batches get into line.

        Args:
            asked: A request with a transactional id and acks=all.
            found: Its managed topics, each with streams and records.
            opened_bytes: As for `look_records`.
        """
        connection = self._connections.get(client)
        if connection is None:
            connection = self._connections[client] = ConnectionWork(client.number)
        prepared = PreparedProduce(self, version, asked, connection)
        for topic, parts in found:
            for stream, records in parts:
                if is_transactional(records):
                    batch = look_records(version, records, opened_bytes, no_transaction=None)
                    if not isinstance(batch, Unfit):  # else it is left to whoever puts it into line
                        prepared.take(topic, stream, records, batch)
        prepared.ask()
        return prepared


_Part = tuple[Stream, memoryview | None]


class PreparedProduce:
    """The batches of one request's transaction, until they are in line.

    Attributes:
        questions: The questions on the client's connection, before anything else of this request.
    """

    def __init__(
        self, produce: TransactionalProduce, version: int, asked: ProduceRequest, connection: ConnectionWork
    ) -> None:
        self.questions: tuple[Question, ...] = ()
        self.protocol = protocol_of(version)
        self._produce = produce
        self._transactional_id = asked.transactional_id or ""
        self._timeout_ms = max(0, min(asked.timeout_ms, _LONGEST_TIMEOUT_MS))
        self._connection = connection
        self._now = asyncio.get_running_loop().time()
        self._may_serve = produce.may_serve()
        self._claim: ProducerClaim | None = None
        self._entries: dict[tuple[ManagedTopic, Stream], _Entry] = {}
        self._places: dict[tuple[ManagedTopic, int], _Addressed] = {}
        self._witnesses: dict[tuple[ManagedTopic, int], Ground] = {}
        self._right: str | None = None
        """A topic by which the right to the transactional id is asked for."""
        self._before, self._in_line = connection.last, asyncio.Event()
        connection.last = self._in_line

    def take(self, topic: ManagedTopic, stream: Stream, records: memoryview | None, batch: CheckedBatch) -> None:
        """Takes a batch in. The first one says who the producer is; see `admit` for those of others.

        Args:
            batch: The result of `look_records` for the records.
        """
        if self._claim is None:
            self._claim = ProducerClaim(self._connection.principal, self._transactional_id, *batch[:2])
        home = topic.open_home(stream, may_serve=self._may_serve)
        if not isinstance(home, Stay):
            return  # it is not held (T23): a fence may outlast its transaction
        place = self._places.get((topic, home.partition))
        if place is None:
            place = self._places[topic, home.partition] = _Addressed(topic, home.partition)
            self._look(place, self._claim)
        self._entries[topic, stream] = _Entry(home, place, records, batch)

    def _look(self, place: _Addressed, claim: ProducerClaim) -> None:
        topic, q = place.topic, place.partition
        if not topic.takes_transactions:
            self._need_right(place, claim)  # the layout is changed for good, and not for anybody
            return
        transactions = self._produce.transactions
        ground = transactions.ground(topic, q)
        if ground is None:
            return
        beliefs = transactions.beliefs(topic)
        step = beliefs.step(claim, self.protocol, q, ground, self._now)
        place.is_sound = True
        if step is Step.WRITE:
            return
        if self.protocol is Protocol.V2:
            key = (claim, topic, q, ground)
            under_way = self._connection.witnesses.get(key)
            if under_way is None:
                under_way = self._connection.witnesses[key] = _OpenQuestion()
                self._witnesses[topic, q] = ground
            place.asked.append(under_way)
            return
        if step is Step.ASK_RIGHT:
            self._need_right(place, claim)
        place.asks_leader = not beliefs.is_open(claim, q, ground)

    def _need_right(self, place: _Addressed, claim: ProducerClaim) -> None:
        right = self._connection.rights.get(claim)
        if right is None:
            right = self._connection.rights[claim] = _OpenQuestion()
            self._right = place.topic.name
        place.asked.append(right)

    def ask(self) -> None:
        """Makes the questions."""
        if self._claim is None:
            return
        if self._right is not None:
            self._produce.asked += 1
            self.questions += (self._right_question(self._claim, self._right),)
        if self._witnesses:
            self.questions += (self._witness_question(self._claim),)

    async def ready(self, topics: Collection[ManagedTopic]) -> None:
        """Returns when all is known that can be known now, and what came before is in line.

        What it has found holds until the loop's next turn.

        Args:
            topics: Those that the client may write to. Nobody is asked about others, nor are they changed.
        """
        self._places = {key: place for key, place in self._places.items() if key[0] in topics}
        if self._before is not None:
            await self._before.wait()
        for place in self._places.values():
            for each in place.asked:
                await each.answered.wait()
        if unknown := {place.topic for place in self._places.values() if self._is_unknown(place)}:
            await asyncio.gather(*map(self._permit, unknown))
        if asked := [place for place in self._places.values() if place.asks_leader]:
            await asyncio.gather(*map(self._ask_leader, asked))
        self._may_serve = self._produce.may_serve()
        for place in self._places.values():
            place.admitted = self._judge(place)

    def in_line(self) -> None:
        """Notes that all batches are queued, or never will be, so the next request's may follow."""
        self._in_line.set()

    def looked(self, topic: ManagedTopic, stream: Stream, records: memoryview | None) -> CheckedBatch | None:
        """Returns what records came to when they were looked at for this request; None: they were not."""
        entry = self._entries.get((topic, stream))
        return entry.batch if entry is not None and entry.records is records else None

    def admit(self, topic: ManagedTopic, stream: Stream, batch: CheckedBatch) -> Ground | Unfit:
        """Returns on what a batch rests that goes into line now, or why it does not.

        Nothing was asked for producers other than the first batch's.
        """
        if self._claim is not None and not _is_of(batch, self._claim):
            return _TWO_PRODUCERS
        entry = self._entries.get((topic, stream))
        if entry is None or isinstance(entry.place.admitted, Unfit):
            return _LATER if entry is None else entry.place.admitted
        is_there = topic.open_home(stream, may_serve=self._may_serve) == entry.home
        return entry.place.admitted if is_there else _LATER

    def _judge(self, place: _Addressed) -> Ground | Unfit:
        """Returns on what batches rest that go to a physical partition now, or why none does."""
        if (code := place.refusal) != Code.NONE:
            return Unfit(code, f"The transaction is refused by the client's broker: {name_of(code)}")
        if place.unfit is not None:
            return place.unfit
        transactions, claim = self._produce.transactions, self._claim
        ground = transactions.ground(place.topic, place.partition)
        if ground is None or claim is None or not place.is_sound:
            return _LATER
        is_open = transactions.beliefs(place.topic).is_open(claim, place.partition, ground)
        return ground if is_open else _LATER

    def _is_unknown(self, place: _Addressed) -> bool:
        """Whether a place's topic has no transactions yet, or nobody knows who leads there."""
        return (
            not place.topic.takes_transactions
            or self._produce.transactions.ground(place.topic, place.partition) is None
        )

    async def _permit(self, topic: ManagedTopic) -> None:
        """Has a topic take transactions, and looks up its leaders; on its next try the client finds that done."""
        places = [place for place in self._places.values() if place.topic is topic]
        may_use = all(place.refusal == Code.NONE for place in places)
        if may_use and not topic.takes_transactions:
            refusal = await self._produce.permits.allow(topic)
            for place in places:
                place.unfit = place.unfit or refusal
        await self._produce.transactions.lead(topic, {place.partition for place in places})

    async def _ask_leader(self, place: _Addressed) -> None:
        transactions, topic, q, claim = self._produce.transactions, place.topic, place.partition, self._claim
        ground = transactions.ground(topic, q)
        if ground is None or claim is None or place.refusal != Code.NONE:
            return
        if transactions.beliefs(topic).is_open(claim, q, ground):
            return
        if await transactions.ask(topic, q, claim, ground) is Step.REFUSE:
            place.unfit = _NOT_OPEN

    def _right_question(self, claim: ProducerClaim, topic: str) -> Question:
        asked = self._connection.rights[claim]

        def told(code: int) -> None:
            self._connection.rights.pop(claim, None)
            if not code:
                for known in {place.topic for place in self._places.values()}:
                    self._produce.transactions.beliefs(known).allow(claim, self._now)
            asked.say(code)

        return right_question(claim, topic, told)

    def _witness_question(self, claim: ProducerClaim) -> Question:
        inquiries: dict[tuple[str, int], tuple[Inquiry, ManagedTopic]] = {}
        for (topic, q), ground in self._witnesses.items():
            inquiries[topic.name, q] = self._produce.transactions.beliefs(topic).inquire(claim, q, ground), topic
        return witness_question(claim, inquiries, self._timeout_ms, partial(self._witnessed, claim, inquiries))

    def _witnessed(
        self,
        claim: ProducerClaim,
        inquiries: Mapping[tuple[str, int], tuple[Inquiry, ManagedTopic]],
        codes: Mapping[tuple[str, int], int],
    ) -> None:
        """Takes in what became of witnesses. A place that the answer lacks is not written to."""
        for place, (inquiry, topic) in inquiries.items():
            self._tell(claim, inquiry, topic, codes.get(place, Code.NOT_LEADER_OR_FOLLOWER))

    def _tell(self, claim: ProducerClaim, inquiry: Inquiry, topic: ManagedTopic, code: int) -> None:
        transactions = self._produce.transactions
        transactions.witnesses.count(code)
        beliefs = transactions.beliefs(topic)
        if code == Code.NONE:
            beliefs.confirm(inquiry)
            beliefs.allow(claim, self._now)
            transactions.opened_by_v2(claim)
        else:
            beliefs.close(inquiry)
            if code in LEADER_ERRORS:
                transactions.forget_leaders(topic)
            elif code != Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                transactions.forget(claim)
        asked = self._connection.witnesses.pop((claim, topic, inquiry.partition, inquiry.ground), None)
        if asked is not None:
            asked.say(code)


def _is_of(batch: CheckedBatch, claim: ProducerClaim) -> bool:
    """Whether a batch is of a claim's producer, in the same epoch."""
    return batch.producer_id == claim.producer_id and batch.producer_epoch == claim.epoch
