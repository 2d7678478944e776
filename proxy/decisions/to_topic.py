"""Decisions as records of `__kordon.decisions`; its key is the worker, so that a worker's decisions stay in order.

Kordon's own connections carry them, so the brokers are found, and logged in to, as `upstream` says. A record may stand
there twice, where an acknowledgement was lost and the proxy asked for another producer id: it has the same number then.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

import structlog

from kordon.proxy.config.config import Decisions
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.sinks import RecordTooLarge, SinkFailed
from kordon.proxy.kafka.batches import ZSTD, NewRecord
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.plain_writer import BatchTooLarge, PlainWriter
from kordon.proxy.kafka.topics_admin import TopicsAdmin

log = structlog.get_logger(__name__)

DECISIONS_TOPIC: Final = "__kordon.decisions"
_SAFE_COPIES: Final = 3
"""With so many, two of them have a record before it counts as written."""
_BATCH_BYTES: Final = 8 * 1024 * 1024
"""The whole layout of a large topic is one record."""


def decisions_configs(replicas: int, retention_ms: int) -> dict[str, str]:
    """Returns the topic configs of a new decisions topic."""
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        "min.insync.replicas": "2" if replicas >= _SAFE_COPIES else "1",
        "compression.type": "producer",
        "max.message.bytes": str(_BATCH_BYTES),
        "message.timestamp.type": "CreateTime",
    }


class TopicSink:
    """Writes to one partition of the topic, which is created where it is missing.

    Args:
        links: The connections to use. Nobody else uses them, and they are closed with the sink.
        config: The configuration of the topic.
    """

    def __init__(self, links: BrokerConnections, worker: str, config: Decisions) -> None:
        self._links = links
        self._worker = worker
        self._config = config
        self._writer: PlainWriter | None = None

    async def write(self, values: Sequence[bytes]) -> None:
        """Writes one batch; see `Sink`."""
        try:
            writer = self._writer = self._writer or await self._open()
            await writer.append([NewRecord(self._worker, value) for value in values])
        except BatchTooLarge as error:
            raise RecordTooLarge(str(error)) from error
        except UpstreamUnavailable as error:
            await self._forget()
            raise SinkFailed(f"{DECISIONS_TOPIC}: {error}") from error

    async def close(self) -> None:
        """Closes the connections."""
        await self._forget()
        await self._links.close()

    async def _forget(self) -> None:
        """Looks for the topic again next time: it may have been deleted."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def _open(self) -> PlainWriter:
        brokers = Brokers(self._links)
        found = await brokers.metadata([DECISIONS_TOPIC])
        partitions = len(found.topics[0].partitions)
        if found.topics[0].error_code or not partitions:
            partitions = await self._create(brokers, len(found.brokers))
        partition = zlib.crc32(self._worker.encode()) % partitions
        # zstd makes of it what gzip does, a 15th, in a hundredth of the time, which would be the event loop's
        return PlainWriter(brokers, DECISIONS_TOPIC, "decisions", partition=partition, codec=ZSTD)

    async def _create(self, brokers: Brokers, broker_count: int) -> int:
        """Creates the topic, if nobody is faster; returns how many partitions it has."""
        admin = TopicsAdmin(brokers)
        replicas = min(self._config.replication, broker_count)
        configs = decisions_configs(replicas, self._config.retention_ms)
        if await admin.create_topic(
            DECISIONS_TOPIC, partitions=self._config.partitions, replicas=replicas, configs=configs
        ):
            log.info("decisions_topic_created", topic=DECISIONS_TOPIC, replicas=replicas)
        return len(await admin.wait_for_leaders(DECISIONS_TOPIC, partitions=1))
