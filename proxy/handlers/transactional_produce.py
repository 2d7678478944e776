"""Produce requests of transactions: what is asked before their batches get a place in a line (TXN-WITNESS).

    decided ──(questions, on the client's own connection)──> earlier requests are in line ──> answers
        ──> leaders are asked (v1) ──> the home and what is believed are looked at again ──> line, or error

The questions go out when the request is decided on, so they keep their place among the client's requests. A client has
one producer on a connection: while one of its requests waits, the later ones wait behind it.

| not known | v1 (Produce up to 11) | v2 (from 12 on) |
| --- | --- | --- |
| the right to the transactional id | AddPartitionsToTxn of a partition that is not there | a witness, once more |
| whether the producer is open there | asked of the leader by Kordon | a witness |

AddPartitionsToTxn of a partition that is not there has no effect: brokers look at the right to the transactional id,
then at each topic, and add nothing if one partition is unknown (KafkaApis.handleAddPartitionsToTxnRequest). Without any
partition they would answer nothing (seen with Kafka 3.9 and 4.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from kordon.codecs import apis
from kordon.codecs.bodies import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnResponse,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from kordon.codecs.bodies import ProduceRequest as TableRequest
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import request
from kordon.codecs.produce import ProduceRequest
from kordon.proxy.core import verdicts
from kordon.proxy.core.interception import Question
from kordon.proxy.core.verdicts import Route
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.batch_checks import CheckedBatch, Unfit, is_transactional, look_records
from kordon.proxy.handlers.transaction_permits import Permits
from kordon.proxy.kafka.batches import BatchIdentity
from kordon.proxy.kafka.witness_batch import build_witness
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.beliefs import Claim, Ground, Inquiry, Step
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.proxy.topics.managed_topics import ManagedTopic
from kordon.proxy.writes.transactions import Transactions
from kordon.proxy.writes.write_outcomes import LEADER_ERRORS

_V2_SINCE: Final = 12
"""The first version of Produce that adds partitions to transactions (KIP-890): it says which protocol a batch has."""
_ADD_VERSION: Final = 0
NO_PARTITION: Final = 2**31 - 1
"""Of no topic: the broker refuses a request because of it, and adds nothing."""
_LONGEST_TIMEOUT_MS: Final = 30_000
_ALL: Final = -1
_LATER: Final = Unfit(Code.NOT_LEADER_OR_FOLLOWER, "It is not known now whether the transaction is open there")
_TWO_PRODUCERS: Final = Unfit(Code.INVALID_PRODUCER_ID_MAPPING, "A Produce request of a transaction has one producer")
_NOT_OPEN: Final = Unfit(
    Code.INVALID_TXN_STATE,
    "The transaction is not open on this partition: it has ended, or was not begun through Kordon",
)


def protocol_of(version: int) -> Protocol:
    """Returns the protocol of a transaction, by the version of its Produce requests."""
    return Protocol.V2 if version >= _V2_SINCE else Protocol.V1


@dataclass(slots=True, eq=False)
class _Asked:
    """A question on a client's connection, for whoever rests on its answer."""

    code: int = Code.NONE
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, code: int) -> None:
        self.code = code
        self.answered.set()


@dataclass(slots=True, eq=False)
class _Entry:
    """A batch that waits for its place in a line."""

    topic: ManagedTopic
    stream: Stream
    home: Stay
    claim: Claim
    asked: list[_Asked] = field(default_factory=list[_Asked])
    """What its client's broker has been asked for it."""
    asks_leader: bool = False
    is_sound: bool = False
    """Whether its client has the right to the transactional id, unless one of `asked` says that it has not."""
    unfit: Unfit | None = None

    @property
    def refusal(self) -> int:
        """What the client's broker has against it; NONE: nothing."""
        return next((each.code for each in self.asked if each.code != Code.NONE), Code.NONE)


class Connection:
    """What is under way on one client's connection."""

    def __init__(self) -> None:
        self.last: asyncio.Event | None = None
        """Is set when the batches of the last request are in line."""
        self.witnesses: dict[tuple[Claim, ManagedTopic, int, Ground], _Asked] = {}
        self.rights: dict[Claim, _Asked] = {}


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
        self._connections: WeakKeyDictionary[Client, Connection] = WeakKeyDictionary()

    @property
    def witnesses(self) -> Mapping[str, int]:
        """How many witnesses came to each end."""
        return {"written": 0} | self.transactions.witnesses.outcomes

    @property
    def questions(self) -> Mapping[str, int]:
        """How often leaders, and clients' own brokers, were asked."""
        return {"leader": self.transactions.leaders_asked.asked, "client_broker": self.asked}

    def prepare(
        self, version: int, asked: ProduceRequest, client: Client, found: Iterable[tuple[ManagedTopic, Sequence[_Part]]]
    ) -> PreparedProduce:
        """Says what has to be asked before a request's batches get into line.

        Args:
            asked: A request with a transactional id and acks=all.
            found: Its managed topics, each with streams and records.
        """
        connection = self._connections.get(client)
        if connection is None:
            connection = self._connections[client] = Connection()
        prepared = PreparedProduce(self, version, asked, client.number, connection)
        for topic, parts in found:
            for stream, records in parts:
                if is_transactional(records):
                    prepared.take(topic, stream, look_records(version, records, no_transaction=None))
        prepared.ask()
        return prepared


_Part = tuple[Stream, memoryview | None]


class PreparedProduce:
    """The batches of one request's transaction, until they are in line.

    Attributes:
        questions: What is asked on the client's connection, before anything else of this request.
    """

    def __init__(
        self, produce: TransactionalProduce, version: int, asked: ProduceRequest, number: int, connection: Connection
    ) -> None:
        self.questions: tuple[Question, ...] = ()
        self._produce = produce
        self._protocol = protocol_of(version)
        self._transactional_id = asked.transactional_id or ""
        self._timeout_ms = max(0, min(asked.timeout_ms, _LONGEST_TIMEOUT_MS))
        self._principal = f"connection {number}"
        self._connection = connection
        self._now = asyncio.get_running_loop().time()
        self._claim: Claim | None = None
        self._entries: dict[tuple[ManagedTopic, Stream], _Entry] = {}
        self._witnesses: dict[tuple[ManagedTopic, int], Ground] = {}
        self._right: str | None = None
        """A topic by which the right to the transactional id is asked for."""
        self._before, self._in_line = connection.last, asyncio.Event()
        connection.last = self._in_line

    def take(self, topic: ManagedTopic, stream: Stream, batch: CheckedBatch | Unfit) -> None:
        """Takes a batch in; one that is unfit anyway is left to whoever puts it into line."""
        if isinstance(batch, Unfit):
            return
        claim = Claim(self._principal, self._transactional_id, batch.producer_id, batch.producer_epoch)
        self._claim = self._claim or claim
        home = topic.open_home(stream, may_serve=self._produce.may_serve())
        if not isinstance(home, Stay):
            return  # it is not held (T23): a fence may outlast its transaction
        entry = self._entries[topic, stream] = _Entry(topic, stream, home, claim)
        if claim != self._claim:
            entry.unfit = _TWO_PRODUCERS
        elif topic.takes_transactions:
            self._look(entry)
        else:
            self._need_right(entry)  # the layout is changed for good, and not for anybody

    def _look(self, entry: _Entry) -> None:
        transactions, q = self._produce.transactions, entry.home.partition
        ground = transactions.ground(entry.topic, q)
        if ground is None:
            return
        beliefs = transactions.beliefs(entry.topic)
        step = beliefs.step(entry.claim, self._protocol, q, ground, self._now)
        entry.is_sound = True
        if step is Step.WRITE:
            return
        if self._protocol is Protocol.V2:
            key = (entry.claim, entry.topic, q, ground)
            under_way = self._connection.witnesses.get(key)
            if under_way is None:
                under_way = self._connection.witnesses[key] = _Asked()
                self._witnesses[entry.topic, q] = ground
            entry.asked.append(under_way)
            return
        if step is Step.ASK_RIGHT:
            self._need_right(entry)
        entry.asks_leader = not beliefs.is_open(entry.claim, q, ground)

    def _need_right(self, entry: _Entry) -> None:
        right = self._connection.rights.get(entry.claim)
        if right is None:
            right = self._connection.rights[entry.claim] = _Asked()
            self._right = entry.topic.name
        entry.asked.append(right)

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

        Args:
            topics: Those that the client may write to. Nobody is asked about others, nor are they changed.
        """
        self._entries = {place: entry for place, entry in self._entries.items() if place[0] in topics}
        if self._before is not None:
            await self._before.wait()
        for entry in self._entries.values():
            for each in entry.asked:
                await each.answered.wait()
        await asyncio.gather(*map(self._permit, {entry.topic for entry in self._entries.values()}))
        await self._ask_leaders()

    def in_line(self) -> None:
        """Takes note that all batches are in line, or never will be: the next request's may follow."""
        self._in_line.set()

    def admit(self, topic: ManagedTopic, stream: Stream) -> Ground | Unfit:
        """Returns on what a batch rests that goes into line now, or why it does not."""
        entry = self._entries.get((topic, stream))
        if entry is None:
            return _LATER
        if (code := entry.refusal) != Code.NONE:
            return Unfit(code, f"The transaction is refused by the client's broker: {name_of(code)}")
        if entry.unfit is not None:
            return entry.unfit
        transactions = self._produce.transactions
        ground = transactions.ground(topic, entry.home.partition)
        is_there = topic.open_home(stream, may_serve=self._produce.may_serve()) == entry.home
        if ground is None or not is_there:
            return _LATER
        is_open = transactions.beliefs(topic).is_open(entry.claim, entry.home.partition, ground)
        return ground if entry.is_sound and is_open else _LATER

    async def _permit(self, topic: ManagedTopic) -> None:
        """Has a topic take transactions, and looks up its leaders; upon its next try the client finds that done."""
        entries = [entry for entry in self._entries.values() if entry.topic is topic]
        may_use = all(entry.refusal == Code.NONE for entry in entries)
        if may_use and not topic.takes_transactions:
            refusal = await self._produce.permits.allow(topic)
            for entry in entries:
                entry.unfit = entry.unfit or refusal
        await self._produce.transactions.lead(topic, {entry.home.partition for entry in entries})

    async def _ask_leaders(self) -> None:
        transactions = self._produce.transactions
        wanted: dict[tuple[ManagedTopic, int], list[_Entry]] = {}
        for entry in self._entries.values():
            if entry.asks_leader and entry.refusal == Code.NONE:
                wanted.setdefault((entry.topic, entry.home.partition), []).append(entry)

        async def ask(topic: ManagedTopic, partition: int, entries: list[_Entry]) -> None:
            ground = transactions.ground(topic, partition)
            claim = entries[0].claim
            if ground is None or transactions.beliefs(topic).is_open(claim, partition, ground):
                return
            step = await transactions.ask(topic, partition, claim, ground)
            if step is Step.REFUSE:
                for entry in entries:
                    entry.unfit = _NOT_OPEN

        await asyncio.gather(*(ask(*place, entries) for place, entries in wanted.items()))

    def _right_question(self, claim: Claim, topic: str) -> Question:
        asked = self._connection.rights[claim]
        row = AddPartitionsToTxnRequestTopic(name=topic, partitions=[NO_PARTITION])
        body = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=claim.transactional_id,
            v3_and_below_producer_id=claim.producer_id,
            v3_and_below_producer_epoch=claim.epoch,
            v3_and_below_topics=[row],
        )

        def told(answer: AddPartitionsToTxnResponse) -> None:
            self._connection.rights.pop(claim, None)
            ((part,),) = (each.results_by_partition for each in answer.results_by_topic_v3_and_below)
            denied = part.partition_error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            if not denied:
                for known in {entry.topic for entry in self._entries.values()}:
                    self._produce.transactions.beliefs(known).allow(claim, self._now)
            asked.say(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if denied else Code.NONE)

        return _question(apis.ADD_PARTITIONS_TO_TXN, _ADD_VERSION, body, told)

    def _witness_question(self, claim: Claim) -> Question:
        batch = build_witness(BatchIdentity(claim.producer_id, claim.epoch, 0), Protocol.V2)
        inquiries: dict[tuple[str, int], tuple[Inquiry, ManagedTopic]] = {}
        rows: dict[str, ProduceRequestTopic] = {}
        for (topic, q), ground in self._witnesses.items():
            inquiries[topic.name, q] = self._produce.transactions.beliefs(topic).inquire(claim, q, ground), topic
            row = rows.setdefault(topic.name, ProduceRequestTopic(name=topic.name, partition_data=[]))
            row.partition_data.append(ProduceRequestPartition(index=q, records=batch))
        body = TableRequest(
            transactional_id=claim.transactional_id,
            acks=_ALL,
            timeout_ms=self._timeout_ms,
            topic_data=list(rows.values()),
        )
        return _question(apis.PRODUCE, _V2_SINCE, body, partial(self._witnessed, claim, inquiries))

    def _witnessed(
        self, claim: Claim, inquiries: dict[tuple[str, int], tuple[Inquiry, ManagedTopic]], answer: ProduceResponse
    ) -> None:
        """Takes in what became of witnesses. A place that the answer lacks is not written to."""
        codes = {
            (row.name, part.index): part.error_code for row in answer.responses for part in row.partition_responses
        }
        for place, (inquiry, topic) in inquiries.items():
            self._tell(claim, inquiry, topic, codes.get(place, Code.NOT_LEADER_OR_FOLLOWER))

    def _tell(self, claim: Claim, inquiry: Inquiry, topic: ManagedTopic, code: int) -> None:
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


def _question(
    key: int,
    version: int,
    body: AddPartitionsToTxnRequest | TableRequest,
    told: Callable[[AddPartitionsToTxnResponse], None] | Callable[[ProduceResponse], None],
) -> Question:
    route: Route | None = verdicts.route(key, version)
    assert route is not None, "it is spoken"
    return Question(route, request(key).build(version, body), told)
