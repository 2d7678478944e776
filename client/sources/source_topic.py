"""The source topic: one without records, whose partitions stand for those of the source."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, NodeNotReadyError, UnknownTopicOrPartitionError, for_code

from kordon.client.requests import METADATA, WireRequest
from kordon.client.sources.errors import SourceCountError
from kordon.client.sources.settings import MOST_PARTITIONS, SourceSettings
from kordon.codecs.error_codes import Code

_CREATE_TOPICS: Final = 19
_CREATE_VERSIONS: Final = range(4, 7)
"""From 4 on the broker chooses the replication factor."""
_METADATA_VERSIONS: Final = range(4, 10)
"""Those that can say that nothing is to be created, and name topics."""
_BY_BROKER: Final = -1
_CONFIGS: Final = [{"name": "kordon.source", "value": "true"}]
"""Kordon takes it and has the topic refuse records; brokers know no such config, and are asked again without."""
_SEEN_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 0.1
_MISSING: Final = frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION})
_LATER: Final = frozenset({Code.LEADER_NOT_AVAILABLE, Code.NONE})


async def find_source_topic(client: AIOKafkaClient, settings: SourceSettings) -> None:
    """Ensures that the source topic is there and has the partitions that were told.

    Raises:
        SourceCountError: The topic has another number of partitions, or more than a source may have.
        UnknownTopicOrPartitionError: The topic does not exist, and no number was given.
        KafkaError: The topic cannot be read or created.
    """
    try:
        async with asyncio.timeout(_SEEN_SECONDS):
            while True:
                found, controller = await _looked(client, settings.topic)
                told = settings.source_partition_count
                if told is None and found == 0:
                    raise UnknownTopicOrPartitionError(
                        f"there is no source topic {settings.topic!r}, nor a source_partition_count to create it with: "
                        f"kordon sources create {settings.topic} --partitions NUMBER"
                    )
                check_count(settings, found)
                if found > 0:
                    return
                await _create(client, controller, settings)
                await asyncio.sleep(_RETRY_SECONDS)
    except TimeoutError as error:
        raise KafkaError(
            f"the source topic {settings.topic!r} is not there {_SEEN_SECONDS:g} s after it was created: look at the "
            "brokers' logs"
        ) from error


def check_count(settings: SourceSettings, found: int) -> None:
    """Compares the number of partitions of the source topic with the given one.

    Args:
        found: How many it has; 0: it is not there.

    Raises:
        SourceCountError: The numbers differ, or the topic has more partitions than a source may have.
    """
    told = settings.source_partition_count
    if found > MOST_PARTITIONS or (found > 0 and told not in (None, found)):
        raise SourceCountError(settings.topic, told, found)


async def _looked(client: AIOKafkaClient, topic: str) -> tuple[int, int]:
    """Returns how many partitions a topic has, 0 where it is not there; and the node that creates topics."""
    body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    node = client.get_random_node()
    if node is None:
        raise NodeNotReadyError
    answer: Any = await client.send(node, WireRequest(METADATA, _METADATA_VERSIONS, body))
    (row,) = answer.topics
    if row.error_code in _MISSING:
        return 0, answer.controller_id
    if row.error_code not in _LATER:
        raise for_code(row.error_code)(f"the source topic {topic!r} cannot be seen: allow Describe and Read on it")
    return len(row.partitions), answer.controller_id


async def _create(client: AIOKafkaClient, controller: int, settings: SourceSettings) -> None:
    for configs in (_CONFIGS, []):
        topic = {
            "name": settings.topic,
            "num_partitions": settings.source_partition_count,
            "replication_factor": _BY_BROKER,
            "assignments": [],
            "configs": configs,
        }
        request = WireRequest(_CREATE_TOPICS, _CREATE_VERSIONS, {"topics": [topic], "timeout_ms": 30_000})
        answer: Any = await client.send(controller, request)
        (row,) = answer.topics
        if row.error_code in (Code.NONE, Code.TOPIC_ALREADY_EXISTS):
            break
    else:
        raise for_code(row.error_code)(
            f"the source topic {settings.topic!r} is not there and cannot be created ({row.error_message}): have it "
            f"created by: kordon sources create {settings.topic} --partitions {settings.source_partition_count}"
        )
