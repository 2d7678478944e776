"""Writes to one of Kordon's own topics outside of transactions: idempotent, acks=all, one batch at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NO_COMPRESSION, NewRecord, build_batch
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.producer import BatchRefused, Producer, new_identity
from kordon.proxy.kafka.upstream import UpstreamClient

APPEND_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.1


class BatchTooLarge(UpstreamUnavailable):
    """Raised when the topic takes no batch of that size, now or later."""


class PlainWriter:
    """Writes to one partition of a topic.

    A batch is repeated under its sequence number until it is acknowledged. After one that never was, what comes next is
    under another producer id.

    Args:
        purpose: The purpose of the connection, which only this writer may use, because it is closed after an error.
        codec: The codec that compresses batches.
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
        self._producer: Producer | None = None

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
            UpstreamUnavailable: The batch was not acknowledged within `timeout` seconds, and may still be written.
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
                self._producer = None
                self.close()
                if isinstance(error, TimeoutError):
                    raise UpstreamUnavailable(f"writing to {self._topic}: {failure}") from None
                raise

    async def _connect(self) -> tuple[UpstreamClient, Producer]:
        if self._client is None or self._client.closed:
            self._client = await self._brokers.leader(self._topic, self._partition, self._purpose)
        self._producer = self._producer or Producer(await new_identity(self._brokers.ask_any))
        return self._client, self._producer

    async def _append(self, entries: Sequence[NewRecord]) -> int:
        client, producer = await self._connect()
        batch = build_batch(entries, producer.identity, is_transactional=False, codec=self._codec)
        try:
            first = await producer.write(client, self._topic, self._partition, batch, len(entries))
        except BatchRefused as refused:
            if refused.code == Code.MESSAGE_TOO_LARGE:
                message = f"{self._topic} takes no batch of {len(batch)} bytes (max.message.bytes)"
                raise BatchTooLarge(message) from None
            if refused.code in (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH):
                self._producer = None
            raise
        return first + len(entries) - 1
