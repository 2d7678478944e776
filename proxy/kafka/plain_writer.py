"""Writes to one of Kordon's own topics outside of transactions: idempotent, acks=all, one batch at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.error_codes import Code, name_of
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NO_COMPRESSION, BatchIdentity, NewRecord, build_batch
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.upstream import UpstreamClient

APPEND_SECONDS: Final = 10.0
INIT_VERSIONS: Final = range(5)
PRODUCE_VERSIONS: Final = range(3, 10)
_ALL: Final = -1
_PRODUCE_TIMEOUT_MS: Final = 5_000
"""How long a leader waits for its followers; less than `ask` waits for the leader."""
_RETRY_SECONDS: Final = 0.1


class BatchTooLarge(UpstreamUnavailable):
    """Raised when the topic takes no batch of that size, now or later."""


class PlainWriter:
    """Writes to one partition of a topic.

    A batch is repeated under its sequence number until it is acknowledged. After one that never was, what comes next is
    under another producer id.

    Args:
        brokers: Where brokers are found.
        topic: Its name.
        purpose: Of its connection, which nobody else may use: it is closed when something goes wrong.
        partition: Of the topic.
        codec: By which batches are compressed.
    """

    def __init__(
        self, brokers: Brokers, topic: str, purpose: str, *, partition: int = 0, codec: int = NO_COMPRESSION
    ) -> None:
        self._brokers = brokers
        self._topic = topic
        self._partition = partition
        self._codec = codec
        self._purpose = purpose
        self._one_at_a_time = asyncio.Lock()
        self._client: UpstreamClient | None = None
        self._identity: BatchIdentity | None = None

    def close(self) -> None:
        """Closes its connection; writing again opens another."""
        if self._client is not None:
            self._client.close()
            self._client = None

    async def ready(self, timeout: float = APPEND_SECONDS) -> None:
        """Connects, if it is not connected, so that what is appended soon need not wait for that.

        Brokers close connections on which nothing was said for ten minutes. Where it fails, `append` tries again.
        """
        async with self._one_at_a_time:
            with suppress(UpstreamUnavailable, TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._connect()

    async def append(self, entries: Sequence[NewRecord], timeout: float = APPEND_SECONDS) -> int:
        """Writes one batch.

        Returns:
            The offset of its last record.

        Raises:
            BatchTooLarge: The topic will never take it.
            UpstreamUnavailable: It was not acknowledged within `timeout` seconds, and may still be written.
        """
        failure = "no answer in time"
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(timeout):
                    while True:
                        try:
                            return await self._append(entries)
                        except BatchTooLarge:
                            raise
                        except UpstreamUnavailable as error:
                            failure = str(error)
                        self.close()
                        await asyncio.sleep(_RETRY_SECONDS)
            except BaseException as error:
                self._identity = None
                self.close()
                if isinstance(error, TimeoutError):
                    raise UpstreamUnavailable(f"writing to {self._topic}: {failure}") from None
                raise

    async def _connect(self) -> tuple[UpstreamClient, BatchIdentity]:
        if self._client is None or self._client.closed:
            self._client = await self._brokers.leader(self._topic, self._partition, self._purpose)
        self._identity = self._identity or await self._new_identity(self._client)
        return self._client, self._identity

    async def _append(self, entries: Sequence[NewRecord]) -> int:
        client, identity = await self._connect()
        batch = build_batch(entries, identity, is_transactional=False, codec=self._codec)
        answer = await produce(client, self._topic, batch, partition=self._partition)
        if answer.error_code == Code.MESSAGE_TOO_LARGE:
            raise BatchTooLarge(f"{self._topic} takes no batch of {len(batch)} bytes (max.message.bytes)")
        if answer.error_code in (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH):
            self._identity = None
        if answer.error_code != Code.NONE:
            raise UpstreamUnavailable(name_of(answer.error_code))
        self._identity = identity.after(len(entries))
        return int(answer.base_offset) + len(entries) - 1

    async def _new_identity(self, client: UpstreamClient) -> BatchIdentity:
        fields = {"transactional_id": None, "transaction_timeout_ms": 0}
        answer = await client.ask(apis.INIT_PRODUCER_ID, client.version(apis.INIT_PRODUCER_ID, INIT_VERSIONS), fields)
        if answer.error_code != Code.NONE:
            raise UpstreamUnavailable(f"no producer id: {name_of(answer.error_code)}")
        return BatchIdentity(answer.producer_id, answer.producer_epoch, 0)


async def produce(
    client: UpstreamClient, topic: str, batch: bytes, transactional_id: str | None = None, partition: int = 0
) -> Any:
    """Sends one batch to the leader of a partition, with acks=all.

    Args:
        client: Connected with the leader.
        topic: Its name.
        batch: What to append.
        transactional_id: Of the transaction that it belongs to.
        partition: Of the topic.

    Returns:
        The partition's part of the response.

    Raises:
        UpstreamUnavailable: No answer came, and the batch may be written.
    """
    fields = produce_fields(topic, partition, batch, transactional_id)
    answer = await client.ask(apis.PRODUCE, client.version(apis.PRODUCE, PRODUCE_VERSIONS), fields)
    ((found,),) = (each.partition_responses for each in answer.responses)
    return found


def produce_fields(topic: str, partition: int, batch: bytes, transactional_id: str | None = None) -> dict[str, Any]:
    """Returns the fields of a Produce request with one batch of Kordon's own, with acks=all.

    Args:
        topic: Its name.
        partition: Of the topic.
        batch: What to append.
        transactional_id: Of the transaction that it belongs to.
    """
    return {
        "transactional_id": transactional_id,
        "acks": _ALL,
        "timeout_ms": _PRODUCE_TIMEOUT_MS,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    }
