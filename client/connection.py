"""A connection that says it speaks the dialect, and knows whether the other side does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import aiokafka.errors
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest

from kordon.client.requests import UNSUPPORTED_VERSION, ApiVersionsRequest, WireRequest, metadata_request
from kordon.codecs import dialect
from kordon.codecs.bodies import MetadataResponse, MetadataResponseTopic

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_AS_AIOKAFKA_READS: Final = 1
"""The version of Metadata in whose shape answers are handed to aiokafka."""


class Finalized(NamedTuple):
    """The features that the cluster has switched on, as one broker knows them."""

    epoch: int
    """The higher it is, the newer they are; -1: they are not known."""
    levels: Mapping[str, int]


class DialectConnection(AIOKafkaConnection):
    """AIOKafkaConnection that begins with ApiVersions 3 and the tag `kordon.client`.

    Against a Kordon it asks for Metadata in a version that carries layouts; against anything else it is as its parent.
    """

    def __init__(self, host: str, port: int, **options: Any) -> None:
        super().__init__(host, port, **options)
        self._features: dict[str, range] = {}
        self.finalized = Finalized(-1, {})

    @property
    def ordered(self) -> bool:
        """Whether the other side speaks KIP-253 as this package does."""
        return dialect.VERSION in self._features.get(dialect.ORDERED, ())

    def send(self, request: Any, expect_response: bool = True) -> Any:
        """Sends a request; aiokafka's own for Metadata becomes one whose answer can carry layouts.

        Raises:
            KafkaConnectionError: Retriable: the request is for a Kordon that speaks the dialect, and this is none.
        """
        if isinstance(request, WireRequest) and request.private and not self.ordered:
            raise KafkaConnectionError(f"{self.host}:{self.port} does not speak {dialect.ORDERED}")
        if self.ordered and isinstance(request, MetadataRequest):
            return self._ask_metadata(request._topics)
        return super().send(request, expect_response)

    async def _ask_metadata(self, topics: Iterable[str] | None) -> MetadataAnswer:
        request: WireRequest = metadata_request(topics)
        answer: Any = await super().send(request)
        return MetadataAnswer(answer)

    async def _do_version_lookup(self) -> None:
        answer = await self.send(ApiVersionsRequest())
        if answer.error_code == UNSUPPORTED_VERSION:
            await super()._do_version_lookup()
            return
        if answer.error_code:
            raise aiokafka.errors.for_code(answer.error_code)()
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        self._features = {row.name: range(row.min_version, row.max_version + 1) for row in answer.supported_features}
        levels = {row.name: row.max_version_level for row in answer.finalized_features}
        self.finalized = Finalized(answer.finalized_features_epoch, levels)


class MetadataAnswer:
    """An answer to Metadata in the shape that aiokafka's ClusterMetadata reads, with what it has no place for beside.

    Attributes:
        topic_rows: The topics as Kordon's table reads them.
    """

    API_VERSION: Final = _AS_AIOKAFKA_READS

    def __init__(self, answer: MetadataResponse) -> None:
        self.topic_rows = answer.topics
        self.controller_id = answer.controller_id
        self.brokers = [(row.node_id, row.host, row.port, row.rack) for row in answer.brokers]
        self.topics = [(row.error_code, row.name, row.is_internal, _partitions(row)) for row in answer.topics]


def _partitions(topic: MetadataResponseTopic) -> list[tuple[int, int, int, list[int], list[int]]]:
    return [
        (row.error_code, row.partition_index, row.leader_id, row.replica_nodes, row.isr_nodes)
        for row in topic.partitions
    ]
