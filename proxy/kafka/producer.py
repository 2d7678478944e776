"""Kordon's Kafka producer: each Produce request of the proxy's own connections is sent from here.

Batches of Kordon's own are written by a `Producer`. Batches of clients carry the clients' identities, and many of them
go in one request: `send_batches` sends them (docs/why/producers.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from kordon.codecs import apis
from kordon.codecs.bodies import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import init_producer_id, produce
from kordon.codecs.produce import Batches, build_produce
from kordon.codecs.schema import Api
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import BatchIdentity
from kordon.proxy.kafka.upstream import UpstreamClient

PRODUCE: Final = apis.PRODUCE
_INIT_VERSIONS: Final = range(5)
_OWN_VERSIONS: Final = range(3, 10)
_VERSIONS: Final = range(3, 13)
"""From the first with batches of magic 2 to the last with names of topics."""
_WITNESS_VERSIONS: Final = range(3, 12)
"""To the last that verifies a transaction and does not add the partition to it."""
_ALL: Final = -1
_TIMEOUT_MS: Final = 5_000
"""How long a leader waits for its followers; less than `upstream.connect_timeout_ms`, for which its answer is waited
for."""
_TRANSACTION_TIMEOUT_MS: Final = 60_000
"""Of no account without a transaction; the default of Java's producers."""
_REFUSALS: Final = frozenset({Code.MESSAGE_TOO_LARGE, Code.INVALID_TIMESTAMP, Code.INVALID_RECORD})

AskInit: TypeAlias = Callable[
    [Api[InitProducerIdRequest, InitProducerIdResponse], range, InitProducerIdRequest],
    Awaitable[InitProducerIdResponse],
]
"""Asks a broker in the newest of some versions, as `Brokers.ask_any`."""


class BatchRefused(UpstreamUnavailable):
    """Raised when a broker answers a batch with an error.

    Attributes:
        code: Kafka's error code.
        is_of_records: Whether the error is about the records, whoever writes them; nothing is appended then.
    """

    def __init__(self, code: int) -> None:
        super().__init__(name_of(code))
        self.code = code
        self.is_of_records = code in _REFUSALS


class Producer:
    """Writes batches of Kordon's own under one identity with acks=all, one after the other.

    A batch that was sent and not clearly answered may be in the log. After such a batch only the same records may be
    sent, under the same sequence: brokers take others for a repetition, and drop them.

    Args:
        identity: The identity of the first batch.
        transactional_id: The transactional id of the batches.

    Attributes:
        identity: The identity of the next batch.
        is_certain: Whether it is known what became of all that was sent; otherwise only a repetition may follow.
    """

    def __init__(self, identity: BatchIdentity, transactional_id: str | None = None) -> None:
        self.identity = identity
        self.is_certain = True
        self._transactional_id = transactional_id

    async def write(self, client: UpstreamClient, topic: str, partition: int, batch: bytes, count: int) -> int:
        """Sends a batch, before anything is waited for.

        Args:
            client: A connection to the partition's leader.
            batch: A batch with `identity`.
            count: The number of its records.

        Returns:
            The offset of the batch's first record.

        Raises:
            BatchRefused: The broker answers with an error.
            UpstreamUnavailable: No answer came, and the batch may be written.
        """
        version = client.version(PRODUCE, _OWN_VERSIONS)
        asked = produce_request(topic, partition, batch, self._transactional_id)
        sent = client.send(produce.API, version, asked)
        self.is_certain = False
        ((row,),) = (each.partition_responses for each in (await sent).responses)
        self.is_certain = row.error_code in (Code.NONE, *_REFUSALS)
        if row.error_code != Code.NONE:
            raise BatchRefused(row.error_code)
        self.identity = self.identity.after(count)
        return row.base_offset


async def new_identity(
    ask: AskInit, transactional_id: str | None = None, timeout_ms: int = _TRANSACTION_TIMEOUT_MS
) -> BatchIdentity:
    """Gets a producer id.

    Args:
        transactional_id: The transactional id whose producer id and epoch are wanted. Former writers with it are
            fenced.
        timeout_ms: The time after which a broker aborts a transaction, in milliseconds.

    Raises:
        UpstreamUnavailable: No broker gives one.
    """
    asked = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    answer = await ask(init_producer_id.API, _INIT_VERSIONS, asked)
    if answer.error_code != Code.NONE:
        raise UpstreamUnavailable(f"no producer id: {name_of(answer.error_code)}")
    return BatchIdentity(answer.producer_id, answer.producer_epoch, 0)


def produce_request(topic: str, partition: int, batch: bytes, transactional_id: str | None = None) -> ProduceRequest:
    """Returns a Produce request with one batch of Kordon's own; see `_produce_all`."""
    return _produce_all({(topic, partition): batch}, transactional_id)


async def send_witnesses(
    client: UpstreamClient, batches: Mapping[tuple[str, int], bytes], transactional_id: str
) -> dict[tuple[str, int], int]:
    """Sends witnesses of one transaction of the first protocol, with acks=all.

    Args:
        batches: Batches by topic and partition.

    Returns:
        The broker's error codes, by topic and partition.

    Raises:
        UpstreamUnavailable: No answer came, and they may be written.
    """
    asked = _produce_all(batches, transactional_id)
    answer = await client.send(produce.API, client.version(PRODUCE, _WITNESS_VERSIONS), asked)
    return {(row.name, part.index): part.error_code for row in answer.responses for part in row.partition_responses}


def _produce_all(batches: Mapping[tuple[str, int], bytes], transactional_id: str | None = None) -> ProduceRequest:
    """Returns a Produce request with batches of Kordon's own, with acks=all.

    Args:
        batches: Batches by topic and partition.
        transactional_id: The transactional id of the batches.
    """
    topics: dict[str, list[ProduceRequestPartition]] = {}
    for (topic, partition), batch in batches.items():
        topics.setdefault(topic, []).append(ProduceRequestPartition(index=partition, records=batch))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=_ALL,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[ProduceRequestTopic(name=topic, partition_data=rows) for topic, rows in topics.items()],
    )


def produce_version(client: UpstreamClient) -> int:
    """Returns the version of Produce for `send_batches`.

    Raises:
        NoCommonVersion: The broker speaks none that Kordon writes.
    """
    return client.version(PRODUCE, _VERSIONS)


def send_batches(
    client: UpstreamClient, version: int, acks: int, timeout_ms: int, topics: Batches, *, seconds: float
) -> asyncio.Future[memoryview]:
    """Sends batches of clients at once, as they are.

    Args:
        version: The version of the request, from `produce_version`.
        acks: 1 or -1; with 0 no answer would come.
        timeout_ms: How long the broker waits for followers, in milliseconds.
        topics: The partitions' batches by topic. They must not change before the answer.
        seconds: The timeout, as in `UpstreamClient.send`.

    Returns:
        The body of the response to come, for `look_outcomes`.
    """
    return client.send_body(PRODUCE, version, build_produce(version, acks, timeout_ms, topics), seconds)
