"""The intake of a Produce request: each of its batches goes into the line of its stream, or is refused.

An entry is refused if its partition is not known, if its records are not a batch that may be taken, or if its topic is
a source topic (EMPTY-SOURCE).
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from kordon.codecs.error_codes import Code
from kordon.codecs.produce import ProduceRequest, TopicData, WriteOutcome
from kordon.codecs.retag import set_transactional
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.batch_checks import NOT_TAKEN, CheckedBatch, Unfit, is_transactional, look_records
from kordon.proxy.handlers.transactional_produce import PreparedProduce
from kordon.proxy.ordering.identity import writer_id
from kordon.proxy.ordering.layout import NO_COUNT, Layout
from kordon.proxy.ordering.streams import is_physical
from kordon.proxy.ordering.transactions.beliefs import Ground
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopic
from kordon.proxy.topics.source_topics import SourceTopics
from kordon.proxy.topics.views import View
from kordon.proxy.writes.client_writes import ClientWrite, PendingProduce
from kordon.proxy.writes.write_dispatcher import WriteDispatcher

log = client_log(__name__)

ALL: Final = -1
"""The acks of a request whose answer waits for all replicas in sync."""
WITH_TOPIC_IDS: Final = 13
"""The first version that names topics by their ids."""
_ACKS: Final = frozenset({ALL, 0, 1})
_WITHOUT_ID: Final = Unfit(
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "A batch of a transaction came in a request without a transactional id"
)
_WITHOUT_COPIES: Final = Unfit(Code.INVALID_REQUIRED_ACKS, "A batch of a transaction needs acks=all")
_SOURCE: Final = (
    "{0} is a source topic and takes no records: its partitions stand for those of a source. Send them to another "
    "topic, or delete the config kordon.source of {0}"
)


class Meant(NamedTuple):
    """How entries are read in a view."""

    view: View
    opened_bytes: int | None


class Intake:
    """Queues a request's entries.

    Args:
        transactions: The request's prepared transaction, or whether transactions are taken at all.

    Attributes:
        pending: What has come of its entries, in their order.
        taken: The batches that are queued, each with its topic.
    """

    def __init__(
        self,
        version: int,
        request: ProduceRequest,
        dispatcher: WriteDispatcher,
        meant: Meant,
        client: Client,
        *,
        transactions: PreparedProduce | bool,
    ) -> None:
        self._prepared = transactions if isinstance(transactions, PreparedProduce) else None
        self._no_transaction = _why_no_transaction(request) if transactions else NOT_TAKEN
        self.pending = PendingProduce(client)
        self.taken: list[tuple[ManagedTopic, ClientWrite]] = []
        self._version = version
        self._dispatcher = dispatcher
        self._view, self._opened_bytes = meant
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._now = asyncio.get_running_loop().time()

    def topic(self, topic: ManagedTopic | None, row: TopicData) -> None:
        """Takes all of a topic."""
        unknown = Code.UNKNOWN_TOPIC_ID if self._version >= WITH_TOPIC_IDS else Code.UNKNOWN_TOPIC_OR_PARTITION
        # With a count, a client that has met a proxy which speaks the dialect means physical partitions.
        is_mistaken = row.undeleted_partition_count != NO_COUNT and not self._view.is_physical
        for number, records in row.partition_data:
            if topic is None or is_mistaken:
                self._refuse(topic, row.name, WriteOutcome(number, Code.INVALID_REQUEST if is_mistaken else unknown))
            else:
                self._partition(topic, number, records, row)

    def refuse_source(self, name: str, row: TopicData, sources: SourceTopics) -> None:
        """Refuses all of a source topic (EMPTY-SOURCE)."""
        for number, _ in row.partition_data:
            sources.refused["records"] += 1
            self._refuse(None, name, WriteOutcome(number, Code.POLICY_VIOLATION, error_message=_SOURCE.format(name)))
        client = self.pending.client
        log.warning("source_topic_takes_no_records", topic=name, client_id=client.client_id, cure=_SOURCE.format(name))

    def _partition(self, topic: ManagedTopic, number: int, records: memoryview | None, row: TopicData) -> None:
        stream = self._view.find(topic.layout, number)
        if isinstance(stream, Code):
            self._refuse(topic, row.name, WriteOutcome(number, _refusal(stream, topic.layout, row.layout_epoch)))
            return
        if self._acks not in _ACKS:
            self._refuse(topic, row.name, WriteOutcome(number, Code.INVALID_REQUIRED_ACKS))
            return
        prepared = self._prepared
        batch: CheckedBatch | Unfit | None = None
        if prepared is not None:
            batch = prepared.looked(topic, stream, records)
        if batch is None:
            batch = look_records(self._version, records, self._opened_bytes, no_transaction=self._no_transaction)
        if isinstance(batch, Unfit) or records is None:
            assert isinstance(batch, Unfit), "without records there is no batch"
            self._refuse(topic, row.name, WriteOutcome(number, batch.code, error_message=batch.message))
            return
        ground: Ground | None = None
        if prepared is not None and is_transactional(records):
            admitted = prepared.admit(topic, stream, batch)
            if isinstance(admitted, Unfit):
                self._refuse(topic, row.name, WriteOutcome(number, admitted.code, error_message=admitted.message))
                return
            ground = admitted
            set_transactional(records, 0, is_transactional=False)
            batch = CheckedBatch(writer_id(batch.producer_id, prepared.protocol), *batch[1:])
        acks = -1 if self._acks < 0 else 1  # LENT-IDENTITY: the answer to acks=0 is waited for, here
        write = ClientWrite(
            *batch,
            size=len(records),
            acks=acks,
            since=self._now,
            pending=self.pending,
            place=self.pending.place(),
            batch=records,
            timeout_ms=self._timeout_ms,
            ground=ground,
        )
        if is_physical(stream):
            write.undeleted_partition_count, write.layout_epoch = row.undeleted_partition_count, row.layout_epoch
        self.taken.append((topic, write))
        self._dispatcher.add(topic, stream, write)

    def _refuse(self, topic: ManagedTopic | None, name: str, outcome: WriteOutcome) -> None:
        self.pending.place(outcome)
        stream = self._view.stream(outcome.partition)
        self._dispatcher.decisions.unfit(self.pending.client, topic, name, stream, outcome.error_code)


def _refusal(code: Code, layout: Layout, layout_epoch: int) -> Code:
    """Returns with what a write is refused whose partition is not known here.

    INVALID_PARTITION_METADATA would prove that it stands nowhere (COUNT-FENCE). Whoever is behind its client cannot say
    so, and has no lease for what it knows: the client asks again.

    Args:
        layout: The newest one that is known here.
        layout_epoch: The layout epoch by which the client chose the partition.
    """
    return Code.NOT_LEADER_OR_FOLLOWER if layout_epoch > layout.epoch else code


def _why_no_transaction(request: ProduceRequest) -> Unfit | None:
    """Returns why a batch of a transaction is refused whatever is known of it, by the code that brokers have for it."""
    if request.transactional_id is None:
        return _WITHOUT_ID
    return None if request.acks == ALL else _WITHOUT_COPIES
