"""What control asks of the cluster about topics: create, grow and delete them, and tell what they are like."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar
from uuid import UUID

from kordon.codecs import apis
from kordon.codecs.bodies import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponseResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    metadata,
)
from kordon.codecs.row import Row
from kordon.codecs.schema import Api
from kordon.proxy.core.errors import NoCommonVersion, UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.ends import PartitionEnds, TopicsRefused, refuse
from kordon.proxy.kafka.group_offsets import GroupOffsets
from kordon.proxy.kafka.leaders import Leader, topics_asked
from kordon.proxy.kafka.transaction_coordinators import TransactionCoordinators

__all__ = ["TopicsAdmin", "TopicsRefused"]

_Request = TypeVar("_Request", bound=Row)
_Response = TypeVar("_Response", bound=Row)

_TOPIC_RESOURCE: Final = 2
_BROKER_RESOURCE: Final = 4
_SET: Final = 0
"""Of IncrementalAlterConfigs (KIP-339)."""
_AUTHORIZER: Final = "authorizer.class.name"
_COMMITS_KEPT: Final = "offsets.retention.minutes"
_PRODUCERS_REMEMBERED: Final = "producer.id.expiration.ms"
_REMEMBERED_BEFORE: Final = "transactional.id.expiration.ms"
"""What brokers went by before they had the other (KIP-854, Kafka 3.5)."""
_VERIFIED: Final = "transaction.partition.verification.enable"
"""Brokers have it since Kafka 3.6 (KIP-890)."""
_REMEMBERED_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.1
_NEW_TOPIC_SECONDS: Final = 30.0


class TopicsAdmin:
    """Asks brokers, each time the one that is to be asked.

    Attributes:
        ends: Asks the leaders of partitions about their logs.
        groups: Asks the coordinators of groups.
        transactions: Asks the coordinators of transactions.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self.ends = PartitionEnds(brokers)
        self.groups = GroupOffsets(brokers)
        self.transactions = TransactionCoordinators(brokers)

    async def create_topic(self, name: str, *, partitions: int, replicas: int, configs: Mapping[str, str]) -> bool:
        """Creates a topic.

        Args:
            replicas: Copies of each; -1: as the brokers have it by default.

        Returns:
            False when it is there already, whatever it is like.

        Raises:
            TopicsRefused: The cluster does not want it.
            UpstreamUnavailable: The cluster does not answer.
        """
        topic = CreateTopicsRequestTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[CreateTopicsRequestConfig(name=key, value=value) for key, value in configs.items()],
        )
        asked = CreateTopicsRequest(topics=[topic], timeout_ms=8_000)
        answer = await self._ask_controller(create_topics.API, range(2, 8), asked)
        (result,) = answer.topics
        if result.error_code == Code.TOPIC_ALREADY_EXISTS:
            return False
        refuse(f"creating {name}", result)
        return True

    async def create_partitions(self, topic: str, count: int, *, only_checked: bool = False) -> None:
        """Makes a topic have `count` partitions; nothing happens where it has as many or more.

        Args:
            only_checked: The cluster is asked whether it could be, and nothing is made.

        Raises:
            TopicsRefused: The cluster does not want it.
            UpstreamUnavailable: The cluster does not answer.
        """
        if len(await self.ends.leaders(topic)) >= count:
            return
        wanted = CreatePartitionsRequestTopic(name=topic, count=count, assignments=None)
        asked = CreatePartitionsRequest(topics=[wanted], timeout_ms=8_000, validate_only=only_checked)
        (result,) = (await self._ask_controller(create_partitions.API, range(4), asked)).results
        if result.error_code == Code.INVALID_PARTITIONS and len(await self.ends.leaders(topic)) >= count:
            return  # somebody else was faster
        refuse(f"growing {topic} to {count} partitions", result)

    async def delete_topic(self, name: str) -> bool:
        """Deletes a topic.

        Returns:
            False when there is none.

        Raises:
            TopicsRefused: The cluster does not want it.
            UpstreamUnavailable: The cluster does not answer.
        """
        asked = DeleteTopicsRequest(topic_names=[name], timeout_ms=8_000)
        (result,) = (await self._ask_controller(delete_topics.API, range(1, 6), asked)).responses
        if result.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        refuse(f"deleting {name}", result)
        return True

    async def has_authorizer(self) -> bool:
        """Whether a broker holds clients to ACLs; a broker that does not say counts as one that does.

        Raises:
            UpstreamUnavailable: A broker does not answer.
        """
        answer = await self._brokers.metadata([])
        return any([await self._authorizes(broker.node_id) for broker in answer.brokers])

    async def _authorizes(self, node_id: int) -> bool:
        result = await self._ask_broker(node_id, [_AUTHORIZER])
        return [each.value for each in result.configs] != [""]

    async def producers_remembered_ms(self) -> int | None:
        """Returns for how long brokers remember producers that are silent; None where not all tell Kordon in a second.

        No change of a topic waits for a broker that has nothing to do with it.
        """
        names = [_PRODUCERS_REMEMBERED, _REMEMBERED_BEFORE]
        try:
            async with asyncio.timeout(_REMEMBERED_SECONDS):
                nodes = [each.node_id for each in (await self._brokers.metadata([])).brokers]
                results = await asyncio.gather(*(self._ask_broker(node, names) for node in nodes))
        except (TimeoutError, UpstreamUnavailable):
            return None
        times: list[int] = []
        for result in results:
            found = {config.name: config.value for config in result.configs}
            told = found.get(_PRODUCERS_REMEMBERED) or found.get(_REMEMBERED_BEFORE)
            if result.error_code or told is None:
                return None
            times.append(int(told))
        return max(times, default=None)

    async def commits_kept_seconds(self) -> float | None:
        """Returns for how long brokers keep the commits of a group without members; None where they do not tell it."""
        try:
            nodes = [each.node_id for each in (await self._brokers.metadata([])).brokers]
            results = await asyncio.gather(*(self._ask_broker(node, [_COMMITS_KEPT]) for node in nodes))
        except UpstreamUnavailable:
            return None
        told = [config.value for result in results for config in result.configs if config.name == _COMMITS_KEPT]
        return min((60.0 * int(each) for each in told if each), default=None)

    async def unverifying(self) -> list[int]:
        """Returns the brokers that take a transactional batch without asking its coordinator whether it is expected.

        Raises:
            TopicsRefused: Kordon may not see a broker's configs.
            UpstreamUnavailable: A broker does not answer.
        """
        nodes = sorted(each.node_id for each in (await self._brokers.metadata([])).brokers)
        results = await asyncio.gather(*(self._ask_broker(node, [_VERIFIED]) for node in nodes))
        for node, result in zip(nodes, results, strict=True):
            refuse(f"configs of broker {node}", result)
        return [
            node
            for node, result in zip(nodes, results, strict=True)
            if {config.name: config.value for config in result.configs}.get(_VERIFIED) != "true"
        ]

    async def _ask_broker(self, node_id: int, names: list[str]) -> DescribeConfigsResponseResult:
        """Asks a broker, which alone tells them, for some of its configs."""
        client = await self._brokers.to(node_id)
        resource = DescribeConfigsRequestResource(
            resource_type=_BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=names
        )
        version = client.version(apis.DESCRIBE_CONFIGS, range(1, 5))
        answer = await client.ask(describe_configs.API, version, DescribeConfigsRequest(resources=[resource]))
        (result,) = answer.results
        return result

    async def topic_configs(self, name: str) -> dict[str, str | None]:
        """Returns a topic's configs as they hold, defaults included; sensitive values are None.

        Raises:
            TopicsRefused: There is no such topic, or Kordon may not see it.
            UpstreamUnavailable: The cluster does not answer.
        """
        return await self._configs(_TOPIC_RESOURCE, name)

    async def set_topic_configs(self, name: str, values: Mapping[str, str]) -> None:
        """Sets some configs of a topic, and leaves the others.

        Raises:
            TopicsRefused: There is no such topic, the cluster does not want it, or Kordon may not.
            UpstreamUnavailable: The cluster does not answer.
        """
        configs = [
            IncrementalAlterConfigsRequestConfig(name=key, config_operation=_SET, value=value)
            for key, value in values.items()
        ]
        resource = IncrementalAlterConfigsRequestResource(
            resource_type=_TOPIC_RESOURCE, resource_name=name, configs=configs
        )
        asked = IncrementalAlterConfigsRequest(resources=[resource])
        (result,) = (await self._brokers.ask_any(incremental_alter_configs.API, range(2), asked)).responses
        refuse(f"setting {', '.join(values)} of {name}", result)

    async def _configs(self, kind: int, name: str) -> dict[str, str | None]:
        resource = DescribeConfigsRequestResource(resource_type=kind, resource_name=name, configuration_keys=None)
        asked = DescribeConfigsRequest(resources=[resource])
        answer = await self._brokers.ask_any(describe_configs.API, range(1, 5), asked)
        (result,) = answer.results
        refuse(f"configs of {name}", result)
        return {config.name: config.value for config in result.configs}

    async def wait_for_leaders(self, topic: str, *, partitions: int) -> Mapping[int, Leader]:
        """Waits until at least so many partitions are there, and all of them are led and say so themselves.

        Raises:
            UpstreamUnavailable: The leaders are not found in time.
        """
        try:
            async with asyncio.timeout(_NEW_TOPIC_SECONDS):
                while True:
                    found = await self._led(topic)
                    if len(found) >= partitions:
                        return found
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            detail = f"{topic}: no {partitions} partitions with leaders in {_NEW_TOPIC_SECONDS:g} s"
            raise UpstreamUnavailable(detail) from None

    async def _led(self, topic: str) -> Mapping[int, Leader]:
        """Asks the leaders too: a broker that is told of a partition later than others refuses it until then."""
        found = await self.ends.leaders(topic)
        if not all(leader.is_elected for leader in found.values()):
            return {}
        try:
            await self.ends.ends_of(topic, found)
        except TopicsRefused:
            return {}
        return found

    async def topic_id(self, topic: str) -> UUID:
        """Returns a topic's id; that of a topic of the same name that is made later is another one.

        Raises:
            TopicsRefused: There is no such topic, or Kordon may not see it.
            NoCommonVersion: Brokers are too old to have topic ids.
            UpstreamUnavailable: No broker answers.
        """
        (found,) = (await self._brokers.metadata([topic])).topics
        refuse(f"id of {topic}", found)
        if not found.get("topic_id", None):
            raise NoCommonVersion(f"{topic} has no topic id: its brokers are older than Kafka 2.8")
        return UUID(int=found.topic_id.int)

    async def gone(self, expected: Mapping[str, UUID]) -> dict[str, UUID | None]:
        """Tells which topics were deleted: no broker that lives knows one of this name and id any more.

        Args:
            expected: The id that the topic had, by name.

        Returns:
            Of those that were deleted, by name, the id of the topic that has the name now; None: there is none.

        Raises:
            TopicsRefused: Kordon may not see a topic.
            UpstreamUnavailable: Not all brokers answer; one of them may know better than the others.
        """
        if not expected:
            return {}
        nodes = [each.node_id for each in (await self._brokers.metadata([])).brokers]
        if not nodes:  # with ZooKeeper, one that has just started knows neither brokers nor topics
            raise UpstreamUnavailable("the broker that was asked knows no brokers yet")
        known = await asyncio.gather(*(self._ids_at(node, expected) for node in nodes))
        found: dict[str, set[UUID]] = {name: {ids[name] for ids in known if name in ids} for name in expected}
        return {name: min(ids, default=None) for name, ids in found.items() if expected[name] not in ids}

    async def _ids_at(self, node_id: int, names: Iterable[str]) -> dict[str, UUID]:
        client = await self._brokers.to(node_id)
        version = client.version(apis.METADATA, range(10, 13))
        answer = await client.ask(metadata.API, version, topics_asked(sorted(names)))
        for row in answer.topics:
            if row.error_code not in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.LEADER_NOT_AVAILABLE):
                refuse(f"id of {row.name}", row)
        present = (row for row in answer.topics if row.error_code != Code.UNKNOWN_TOPIC_OR_PARTITION)
        return {row.name: UUID(int=row.topic_id.int) for row in present if row.name}

    async def _ask_controller(self, api: Api[_Request, _Response], wanted: range, body: _Request) -> _Response:
        """Asks the controller itself: with ZooKeeper no other broker takes it, with KRaft any does and is named."""
        controller_id = (await self._brokers.metadata([])).controller_id
        client = await self._brokers.to(controller_id)
        return await client.ask(api, client.version(api.key, wanted), body)
