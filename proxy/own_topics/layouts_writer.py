"""Writes layouts: what the controller decides, each decision in one transaction.

The transactional id is the same for every controller, so a broker lets only the last one that opened write
(KIP-98, InitProducerId): a former one is told so at its next step, whatever it still believes.

    closed ──open──> ready ──(begin,) commit──> ready   committed for sure
                       │ └──> closed                NotCommitted: not written for sure; OutcomeUnknown: read to the end
                       └────> fenced                Fenced: forever
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Final, TypeAlias, TypeVar

from kordon.codecs.bodies import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnResponseTopicResult,
    EndTxnRequest,
)
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import add_partitions_to_txn, end_txn
from kordon.codecs.row import Row
from kordon.codecs.schema import Api
from kordon.proxy.core.errors import KordonError, UpstreamUnavailable
from kordon.proxy.kafka.batches import BatchIdentity, NewRecord, build_batch, in_batches
from kordon.proxy.kafka.brokers import Brokers, CoordinatorKind
from kordon.proxy.kafka.producer import BatchRefused, Producer, new_identity
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.proxy.ordering.records import Value
from kordon.proxy.own_topics.layouts_topic import LAYOUTS_TOPIC

_Request = TypeVar("_Request", bound=Row)
_Response = TypeVar("_Response", bound=Row)

PURPOSE: Final = "layouts transactions"
TRANSACTIONAL_ID: Final = "kordon.layouts"
TRANSACTION_TIMEOUT_MS: Final = 15_000
"""After which a broker aborts what a controller that died left open; readers see nothing behind it until then."""
OPEN_SECONDS: Final = 30.0
COMMIT_SECONDS: Final = 5.0
"""Twice this, and the seconds between `begin` and `commit`, are less than the transaction timeout, after which a slow
commit would look like a fenced one."""
BEGIN_SECONDS: Final = 1.0
_ABORT_SECONDS: Final = 2.0
BATCH_BYTES: Final = 900_000
"""Below Kafka's default of max.message.bytes."""
_ADD_VERSIONS: Final = range(4)
_END_VERSIONS: Final = range(4)
"""From 5 on the epoch changes with each transaction (KIP-890)."""
_RETRY_SECONDS: Final = 0.005
_REDIAL_SECONDS: Final = 0.2
_FENCED: Final = frozenset({Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED})
_FORGOTTEN: Final = (
    "brokers have forgotten it, because no layout has changed for transactional.id.expiration.ms; the controller"
    " begins again, and no action is needed"
)
"""What is said of the transactional id. A former controller cannot write under it either (ONE-CONTROLLER)."""
_COORDINATOR_MOVED: Final = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE})
_TRANSIENT: Final = _COORDINATOR_MOVED | {
    Code.CONCURRENT_TRANSACTIONS,  # markers of the transaction before are still being written
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.REQUEST_TIMED_OUT,
}


Records: TypeAlias = tuple[tuple[str, Value | None], ...]
"""What is written in one transaction, by key; None is a tombstone."""


Offsets: TypeAlias = Mapping[str, int]
"""Where records stand in the layouts topic, by their keys."""


class Fenced(KordonError):  # noqa: N818 - a state of the world, named as operators say it
    """Raised when another writer has been opened, or a broker aborted a transaction that took too long.

    What was being committed may have been, if the end of the transaction had been asked for.
    """


class ChangeNotCommitted(UpstreamUnavailable):
    """Raised when a transaction failed before its end was asked for: none of it will ever be read."""


class OutcomeUnknown(UpstreamUnavailable):
    """Raised when no answer came to the end of a transaction: read the layouts to their end to know."""


class WriterState(Enum):
    """The state of a writer."""

    CLOSED = "closed"
    READY = "ready"
    FENCED = "fenced"


class LayoutsWriter:
    """The controller's writer. One task at a time uses it.

    Args:
        transactional_id: The id by which writers fence one another.
    """

    def __init__(self, brokers: Brokers, topic: str = LAYOUTS_TOPIC, transactional_id: str = TRANSACTIONAL_ID) -> None:
        self.state = WriterState.CLOSED
        self._brokers = brokers
        self._topic = topic
        self._transactional_id = transactional_id
        self._producer = Producer(BatchIdentity(-1, -1, 0), transactional_id)
        self._coordinator: UpstreamClient | None = None
        self._leader: UpstreamClient | None = None
        self._in_transaction = False
        """Whether something may have been begun that has not ended."""
        self._begun = False
        """Whether the coordinator knows of the transaction."""

    @property
    def producer_id(self) -> int:
        """The producer id of its transactions, which only controllers have; -1: the writer is not open."""
        return self._producer.identity.producer_id

    async def close(self) -> None:
        """Closes its connection, and aborts a transaction that was left open: readers wait for its end."""
        if self.state is WriterState.READY:
            self.state = WriterState.CLOSED
        if self._in_transaction:
            await self._abort()
        self._hang_up()

    async def open(self, timeout: float = OPEN_SECONDS) -> None:
        """Takes over: from now on no other writer writes, and what one had left open is decided.

        Raises:
            Fenced: This writer was fenced before.
            UpstreamUnavailable: The writer could not take over within `timeout` seconds.
        """
        self._refuse_fenced()
        self.state = WriterState.CLOSED
        try:
            async with asyncio.timeout(timeout):
                identity = await new_identity(self._ask_patiently, self._transactional_id, TRANSACTION_TIMEOUT_MS)
        except TimeoutError:
            raise UpstreamUnavailable(f"opening {self._transactional_id}: no answer within {timeout:g} s") from None
        self._producer = Producer(identity, self._transactional_id)
        self._in_transaction = self._begun = False
        self.state = WriterState.READY

    async def begin(self, timeout: float = BEGIN_SECONDS) -> None:
        """Begins the transaction of the next `commit` while there is time: that must follow within a few seconds.

        Readers do not wait for a transaction that has written nothing. Where it fails, `commit` begins it.

        Raises:
            Fenced: Another controller has taken over; this writer never writes again.
        """
        self._refuse_fenced()
        if self.state is WriterState.READY and not self._begun:
            self._in_transaction = True
            with suppress(UpstreamUnavailable, TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._begin()

    async def commit(self, entries: Sequence[NewRecord], timeout: float = COMMIT_SECONDS) -> list[int]:
        """Writes records so that readers see all of them or none.

        After any error but `Fenced`, `open` has to be called again.

        Args:
            entries: At least one record.
            timeout: Seconds for each of the two halves, writing and ending.

        Returns:
            The offset of each.

        Raises:
            Fenced: Another controller has taken over; this writer never writes again.
            NotCommitted: Nothing was written.
            OutcomeUnknown: All was written or nothing.
            ValueError: A record is too large for a batch.
        """
        self._refuse_fenced()
        if self.state is not WriterState.READY:
            raise ChangeNotCommitted(f"{self._transactional_id} is not open")
        batches = list(in_batches(entries, BATCH_BYTES))
        self.state = WriterState.CLOSED  # until it is known to have gone well
        try:
            offsets = await self._write(batches, timeout)
        except UpstreamUnavailable as error:
            await self._abort()
            raise ChangeNotCommitted(str(error)) from error
        await self._end(timeout)
        self._in_transaction = self._begun = False
        self.state = WriterState.READY
        return offsets

    async def _write(self, batches: Sequence[Sequence[NewRecord]], timeout: float) -> list[int]:
        offsets: list[int] = []
        self._in_transaction = True
        try:
            async with asyncio.timeout(timeout):
                if not self._begun:
                    await self._begin()
                for batch in batches:
                    offsets += await self._produce(batch)
        except TimeoutError:
            raise UpstreamUnavailable(f"writing to {self._topic}: no answer within {timeout:g} s") from None
        return offsets

    async def _begin(self) -> None:
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer.identity.producer_id,
            v3_and_below_producer_epoch=self._producer.identity.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequestTopic(name=self._topic, partitions=[0])],
        )
        answer = await self._ask_patiently(add_partitions_to_txn.API, _ADD_VERSIONS, asked)
        ((added,),) = (each.results_by_partition for each in answer.results_by_topic_v3_and_below)
        self._judge(added.partition_error_code, "beginning a transaction")
        self._begun = True

    async def _produce(self, batch: Sequence[NewRecord]) -> range:
        if self._leader is None or self._leader.closed:
            self._leader = await self._brokers.leader(self._topic, 0, PURPOSE)
        raw = build_batch(batch, self._producer.identity, is_transactional=True)
        try:
            first = await self._producer.write(self._leader, self._topic, 0, raw, len(batch))
        except BatchRefused as refused:
            self._leader = None  # it may have moved
            self._judge(refused.code, f"writing to {self._topic}")
            raise
        return range(first, first + len(batch))

    async def _end(self, timeout: float) -> None:
        """Asks for the end until it is answered: a coordinator takes the same question twice."""
        try:
            async with asyncio.timeout(timeout):
                answer = await self._ask_patiently(end_txn.API, _END_VERSIONS, self._end_request(committed=True))
                self._judge(answer.error_code, "ending a transaction")
        except (TimeoutError, UpstreamUnavailable) as error:
            raise OutcomeUnknown(f"ending a transaction of {self._transactional_id}: {error or 'no answer'}") from error

    async def _abort(self) -> None:
        """Aborts the transaction if it can, to spare readers its timeout. A decided end stays as it is."""
        with suppress(UpstreamUnavailable, TimeoutError):
            async with asyncio.timeout(_ABORT_SECONDS):
                await self._ask(end_txn.API, _END_VERSIONS, self._end_request(committed=False))
        self._in_transaction = self._begun = False

    def _judge(self, code: int, what: str) -> None:
        if code in _FENCED:
            self.state = WriterState.FENCED
            raise Fenced(f"{what}: another controller writes now ({name_of(code)})")
        if code == Code.INVALID_PRODUCER_ID_MAPPING:
            raise UpstreamUnavailable(f"{what} of {self._transactional_id}: {_FORGOTTEN} ({name_of(code)})")
        if code != Code.NONE:
            raise UpstreamUnavailable(f"{what}: {name_of(code)}")

    def _refuse_fenced(self) -> None:
        if self.state is WriterState.FENCED:
            raise Fenced("another controller writes now")

    def _end_request(self, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer.identity.producer_id,
            producer_epoch=self._producer.identity.producer_epoch,
            committed=committed,
        )

    async def _ask_patiently(self, api: Api[_Request, _Response], versions: range, body: _Request) -> _Response:
        """Asks the coordinator, wherever it is by now, until it answers something that does not pass by itself."""
        while True:
            try:
                answer = await self._ask(api, versions, body)
            except UpstreamUnavailable:
                answer = None
            if answer is not None and _code_of(answer) not in _TRANSIENT:
                return answer
            if answer is None or _code_of(answer) in _COORDINATOR_MOVED:
                self._hang_up()
            await asyncio.sleep(_RETRY_SECONDS if answer is not None else _REDIAL_SECONDS)

    async def _ask(self, api: Api[_Request, _Response], versions: range, body: _Request) -> _Response:
        if self._coordinator is None or self._coordinator.closed:
            kind = CoordinatorKind.TRANSACTION
            self._coordinator = await self._brokers.coordinator(kind, self._transactional_id, PURPOSE)
        return await self._coordinator.ask(api, self._coordinator.version(api.key, versions), body)

    def _hang_up(self) -> None:
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None


def _code_of(answer: Row) -> int:
    """Returns the error code of an answer of the coordinator; AddPartitionsToTxn has one for each partition."""
    topics = answer.get("results_by_topic_v3_and_below", list[AddPartitionsToTxnResponseTopicResult]())
    codes = [result.partition_error_code for topic in topics for result in topic.results_by_partition]
    return max(codes) if codes else answer.get("error_code", Code.NONE)
