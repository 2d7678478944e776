"""Has topics managed, grown, shrunk and let go through a Kordon, as any Kafka admin client can.

The requests go through Kordon's Kafka port with the log-in of whoever asks, so the rights are those of the cluster.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from kordon.codecs.bodies import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponseResult,
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponseTopic,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponseResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponseTopic,
    MetadataRequest,
)
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import (
    create_partitions,
    create_topics,
    describe_configs,
    incremental_alter_configs,
    metadata,
)
from kordon.codecs.row import Row
from kordon.codecs.schema import Api
from kordon.proxy.config.config import Upstream
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core.errors import KordonError
from kordon.proxy.handlers.own_configs import (
    INITIAL_PARTITION_COUNT,
    JANITOR,
    LEFT_OUT,
    STATE,
    TAKEOVER,
    TRANSITION_MS,
    UNDELETED_PARTITION_COUNT,
    VIRTUAL_PARTITIONS,
)
from kordon.proxy.kafka.leaders import topics_asked
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.proxy.runtime.tls import upstream_context

_Request = TypeVar("_Request", bound=Row)
_Response = TypeVar("_Response", bound=Row)

WAIT_SECONDS: Final = 90.0
"""Longer than Kordon itself waits for a wish."""
_TOPIC: Final = 2
_SET, _DELETE = 0, 1
_OF_TOPIC: Final = 1
"""The source of a config that is the topic's own (DYNAMIC_TOPIC_CONFIG)."""
_AT_ONCE: Final = 500
"""Topics of a question for states."""


class RequestRefused(KordonError):  # noqa: N818 - what is told to whoever asked
    """Raised when the cluster, or Kordon, refuses; the message begins with the name of Kafka's error."""

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(": ".join(filter(None, (error_name(code), message))))
        self.code = code
        self.says = message


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """How many partitions a managed topic has."""

    virtual: int
    """V, which clients see."""
    physical: int
    """U, which the brokers have."""
    initial: int
    """N, which it began with."""


@dataclass(frozen=True, slots=True)
class TopicNow:
    """What a topic is."""

    partitions: int
    """The partitions that clients see."""
    counts: PartitionCounts | None
    """None: it is not managed."""
    configs: Mapping[str, tuple[str | None, bool]]
    """By name, the value and whether it is the topic's own: not a default, nor a broker's."""

    def value(self, config: str) -> str | None:
        """Returns the value of a config; None: it has none that may be seen."""
        return self.configs.get(config, (None, False))[0]

    def is_set(self, config: str) -> bool:
        """Whether a config has a value of the topic's own."""
        return self.configs.get(config, (None, False))[1]


class TopicsClient:
    """A connection to a Kordon.

    Args:
        config: How to connect: TLS, SASL and patience are used.

    Raises:
        OSError: A TLS file cannot be used.
    """

    def __init__(self, address: HostPort, config: Upstream) -> None:
        context: ssl.SSLContext | None = upstream_context(config.tls) if config.tls is not None else None
        self._client = UpstreamClient(address, config, context)
        self._changes = False

    @property
    def changes(self) -> bool:
        """Whether a change was asked for, which continues whoever waits for it."""
        return self._changes

    async def open(self) -> None:
        """Connects.

        Raises:
            UpstreamUnavailable: Nobody answers, or not as a Kafka server does.
        """
        await self._client.open()

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()

    async def counts(self, topic: str) -> PartitionCounts | None:
        """Asks how many partitions a topic has; None: it is not managed.

        Raises:
            RequestRefused: There is no such topic, or whoever asks may not see its configs.
            UpstreamUnavailable: There is no answer.
        """
        keys = [VIRTUAL_PARTITIONS, UNDELETED_PARTITION_COUNT, INITIAL_PARTITION_COUNT]
        (result,) = await self._configs([topic], keys)
        _refuse_unseen(result)
        return _counts({config.name: config.value for config in result.configs})

    async def look(self, topic: str) -> TopicNow | None:
        """Asks what a topic is; None: there is no such topic.

        Raises:
            RequestRefused: Whoever asks may not see it, or its configs.
            UpstreamUnavailable: There is no answer.
        """
        (result,) = await self._configs([topic], None)
        if result.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        _refuse(result)
        configs = {each.name: (each.value, each.config_source == _OF_TOPIC) for each in result.configs}
        counts = _counts({name: value for name, (value, _) in configs.items()})
        return TopicNow(await self.partitions(topic), counts, configs)

    async def create(
        self,
        topic: str,
        partitions: int,
        virtual_partitions: int | None,
        *,
        replicas: int | None = None,
        configs: Mapping[str, str] | None = None,
        only_checked: bool = False,
    ) -> None:
        """Creates a topic; returns when it is there, and managed if it is to be.

        Args:
            virtual_partitions: V; None: it is not managed.
            replicas: The replicas of each partition. None: the brokers' default.
            only_checked: Whether the request is only checked, and nothing created.

        Raises:
            RequestRefused: The request is refused.
            UpstreamUnavailable: There is no answer.
        """
        own = {} if virtual_partitions is None else {VIRTUAL_PARTITIONS: str(virtual_partitions)}
        row = CreateTopicsRequestTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=-1 if replicas is None else replicas,
            configs=[
                CreateTopicsRequestConfig(name=key, value=value) for key, value in {**(configs or {}), **own}.items()
            ],
        )
        asked = CreateTopicsRequest(topics=[row], timeout_ms=round(WAIT_SECONDS * 1000), validate_only=only_checked)
        self._changes = self._changes or not only_checked
        _refuse((await self._ask(create_topics.API, range(4, 8), asked)).topics[0])

    async def set_configs(self, topic: str, values: Mapping[str, str | None], *, only_checked: bool = False) -> None:
        """Sets configs of a topic, and leaves the others.

        Args:
            values: Values by name. None: the brokers' default.
            only_checked: Whether the request is only checked, and nothing set.

        Raises:
            RequestRefused: The configs cannot be set.
            UpstreamUnavailable: There is no answer.
        """
        await self._alter(topic, values, only_checked=only_checked)

    async def partitions(self, topic: str) -> int:
        """Asks how many partitions clients see of a topic.

        Raises:
            RequestRefused: There is no such topic that may be seen.
            UpstreamUnavailable: There is no answer.
        """
        return len(await self.leaders(topic))

    async def leaders(self, topic: str) -> dict[int, int]:
        """Asks which broker leads each partition that clients see of a topic; -1: none does.

        Raises:
            RequestRefused: There is no such topic that may be seen.
            UpstreamUnavailable: There is no answer.
        """
        (row,) = (await self._ask(metadata.API, range(4, 10), topics_asked([topic]))).topics
        if row.error_code:
            raise RequestRefused(row.error_code, f"there is no topic {topic} that may be seen")
        return {each.partition_index: each.leader_id for each in row.partitions}

    async def states(self, topics: Iterable[str] | None) -> dict[str, str]:
        """Asks in words what happens with topics; those of which Kordon knows nothing are missing.

        Args:
            topics: None: all that may be seen.

        Raises:
            RequestRefused: There is no such topic, or whoever asks may not see its configs.
            UpstreamUnavailable: There is no answer.
        """
        found: dict[str, str] = {}
        every = list(topics) if topics is not None else await self._names()
        for at in range(0, len(every), _AT_ONCE):
            for result in await self._configs(every[at : at + _AT_ONCE], [STATE]):
                if topics is not None:
                    _refuse_unseen(result)
                state = next((each.value for each in result.configs if each.name == STATE), None)
                if state:
                    found[result.resource_name] = state
        return found

    async def manage(
        self,
        topic: str,
        virtual_partitions: int,
        *,
        takeover: Literal["online", "delivering", "quiesced"] = "online",
        transition_ms: int | None = None,
        janitor: bool = False,
        only_checked: bool = False,
    ) -> None:
        """Lets a topic be managed; returns when it is.

        Args:
            virtual_partitions: The number of virtual partitions.
            takeover: What happens to records that are written during the takeover. quiesced: there are none, which is
                checked.
            transition_ms: If it has data: how long its clients may take to see V partitions; None: Kordon's default.
            janitor: Whether the topic is compacted, or will be.
            only_checked: Whether the request is only checked, and nothing changed.

        Raises:
            RequestRefused: The request is refused.
            UpstreamUnavailable: There is no answer.
        """
        configs = {VIRTUAL_PARTITIONS: str(virtual_partitions)}
        if takeover != "online":
            configs[TAKEOVER] = takeover
        if transition_ms is not None:
            configs[TRANSITION_MS] = str(transition_ms)
        if janitor:
            configs[JANITOR] = "true"
        await self._alter(topic, configs, only_checked=only_checked)

    async def set_janitor(self, topic: str, *, on: bool) -> None:
        """Switches the removal of old values of moved keys on or off.

        Raises:
            RequestRefused: The topic is not managed, or is compacted and cannot do without.
            UpstreamUnavailable: There is no answer.
        """
        await self._alter(topic, {JANITOR: str(on).lower()})

    async def leave_out(self, topic: str, groups: Iterable[str]) -> None:
        """Lets the takeover of a topic continue without these groups.

        Raises:
            RequestRefused: The topic is not being taken over.
            UpstreamUnavailable: There is no answer.
        """
        await self._alter(topic, {LEFT_OUT: ",".join(groups)})

    async def unmanage(self, topic: str, *, only_checked: bool = False) -> None:
        """Lets a managed topic be an ordinary one.

        Args:
            only_checked: Whether the request is only checked, and nothing changed.

        Raises:
            RequestRefused: The request is refused.
            UpstreamUnavailable: There is no answer.
        """
        await self._alter(topic, {VIRTUAL_PARTITIONS: None}, only_checked=only_checked)

    async def resize(self, topic: str, partitions: int, *, only_checked: bool = False) -> None:
        """Changes how many partitions a managed topic has at the brokers; returns when all is done.

        Args:
            only_checked: Whether the request is only checked, and nothing changed.

        Raises:
            RequestRefused: The request is refused.
            UpstreamUnavailable: There is no answer.
        """
        row = CreatePartitionsRequestTopic(name=topic, count=partitions, assignments=None)
        asked = CreatePartitionsRequest(topics=[row], timeout_ms=round(WAIT_SECONDS * 1000), validate_only=only_checked)
        self._changes = self._changes or not only_checked
        _refuse((await self._ask(create_partitions.API, range(4), asked)).results[0])

    async def _names(self) -> list[str]:
        asked = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return [row.name for row in (await self._ask(metadata.API, range(4, 10), asked)).topics if row.name]

    async def _configs(self, topics: Iterable[str], keys: list[str] | None) -> list[DescribeConfigsResponseResult]:
        resources = [
            DescribeConfigsRequestResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=keys)
            for topic in topics
        ]
        asked = DescribeConfigsRequest(resources=resources)
        return (await self._ask(describe_configs.API, range(1, 5), asked)).results

    async def _alter(self, topic: str, values: Mapping[str, str | None], *, only_checked: bool = False) -> None:
        configs = [
            IncrementalAlterConfigsRequestConfig(
                name=name, config_operation=_DELETE if value is None else _SET, value=value
            )
            for name, value in values.items()
        ]
        resource = IncrementalAlterConfigsRequestResource(resource_type=_TOPIC, resource_name=topic, configs=configs)
        asked = IncrementalAlterConfigsRequest(resources=[resource], validate_only=only_checked)
        self._changes = self._changes or not only_checked
        _refuse((await self._ask(incremental_alter_configs.API, range(2), asked)).responses[0])

    async def _ask(self, api: Api[_Request, _Response], versions: range, body: _Request) -> _Response:
        return await self._client.ask(api, self._client.version(api.key, versions), body, WAIT_SECONDS)


def _counts(configs: Mapping[str, str | None]) -> PartitionCounts | None:
    keys = (VIRTUAL_PARTITIONS, UNDELETED_PARTITION_COUNT, INITIAL_PARTITION_COUNT)
    if not all(key in configs for key in keys):
        return None
    virtual, physical, initial = (int(configs[key] or 0) for key in keys)
    return PartitionCounts(virtual, physical, initial)


def error_name(code: int) -> str:
    """Returns Kafka's name of an error."""
    # only when something has failed: it takes a while to load, and knows more names than control needs
    from aiokafka.errors import kafka_errors  # noqa: PLC0415

    known = kafka_errors.get(code)
    return str(known.message) if known is not None else name_of(code)


def _refuse_unseen(result: DescribeConfigsResponseResult) -> None:
    if result.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        raise RequestRefused(result.error_code, f"there is no topic {result.resource_name} that may be seen")
    _refuse(result)


def _refuse(
    result: CreatePartitionsResponseResult
    | CreateTopicsResponseTopic
    | DescribeConfigsResponseResult
    | IncrementalAlterConfigsResponseTopic,
) -> None:
    if result.error_code:
        raise RequestRefused(result.error_code, result.error_message)
