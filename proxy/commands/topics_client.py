"""Has topics managed, grown, shrunk and let go through a Kordon, as any Kafka admin client can.

The requests go through Kordon's Kafka port with the log-in of whoever asks, so the rights are those of the cluster.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kordon.codecs.error_codes import Code, name_of
from kordon.proxy.config.config import HostPort, Upstream
from kordon.proxy.core.errors import KordonError
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.proxy.runtime.tls import upstream_context

DESCRIBE_CONFIGS: Final = 32
CREATE_PARTITIONS: Final = 37
INCREMENTAL_ALTER_CONFIGS: Final = 44

WAIT_SECONDS: Final = 90.0
"""Longer than Kordon itself waits for a wish."""
_TOPIC: Final = 2
_SET, _DELETE = 0, 1
_VIRTUAL_PARTITIONS: Final = "kordon.virtual.partitions"
_TAKEOVER: Final = "kordon.takeover"
_TRANSITION_MS: Final = "kordon.takeover.transition.ms"
_JANITOR: Final = "kordon.janitor"
_LEFT_OUT: Final = "kordon.takeover.left.out"
_PARTITIONS: Final = "kordon.undeleted.partition.count"


class RequestRefused(KordonError):  # noqa: N818 - what is told to whoever asked
    """Raised when the cluster, or Kordon, refuses; the message begins with the name of Kafka's error."""

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(": ".join(filter(None, (error_name(code), message))))
        self.code = code


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """How many partitions a managed topic has."""

    virtual: int
    """V, which clients see."""
    physical: int
    """U, which the brokers have."""


class TopicsClient:
    """A connection to a Kordon.

    Args:
        address: Of its Kafka port.
        config: How to connect: TLS, SASL and patience are used.

    Raises:
        OSError: A TLS file cannot be used.
    """

    def __init__(self, address: HostPort, config: Upstream) -> None:
        context: ssl.SSLContext | None = upstream_context(config.tls) if config.tls is not None else None
        self._client = UpstreamClient(address, config, context)

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
            UpstreamUnavailable: No answer.
        """
        keys = [_VIRTUAL_PARTITIONS, _PARTITIONS]
        resource = {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": keys}
        answer = await self._ask(DESCRIBE_CONFIGS, range(1, 5), {"resources": [resource]})
        (result,) = answer.results
        if result.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise RequestRefused(result.error_code, f"there is no topic {topic} that may be seen")
        _refuse(result)
        found = {config.name: config.value for config in result.configs}
        if keys[0] not in found or keys[1] not in found:
            return None
        return PartitionCounts(virtual=int(found[keys[0]]), physical=int(found[keys[1]]))

    async def manage(
        self,
        topic: str,
        virtual_partitions: int,
        *,
        quiesced: bool = False,
        transition_ms: int | None = None,
        janitor: bool = False,
    ) -> None:
        """Lets a topic be managed; returns when it is.

        Args:
            topic: Its name.
            virtual_partitions: V.
            quiesced: Nobody writes to it; that is checked.
            transition_ms: If it has data: how long its clients may take to see V partitions; None: Kordon's default.
            janitor: It is compacted, or will be.

        Raises:
            RequestRefused: It cannot be.
            UpstreamUnavailable: No answer.
        """
        configs = {_VIRTUAL_PARTITIONS: str(virtual_partitions)}
        if quiesced:
            configs[_TAKEOVER] = "quiesced"
        if transition_ms is not None:
            configs[_TRANSITION_MS] = str(transition_ms)
        if janitor:
            configs[_JANITOR] = "true"
        await self._alter(topic, _SET, configs)

    async def set_janitor(self, topic: str, *, on: bool) -> None:
        """Has old values of keys taken out of the partitions that they have left, or not any more.

        Raises:
            RequestRefused: The topic is not managed, or is compacted and cannot do without.
            UpstreamUnavailable: No answer.
        """
        await self._alter(topic, _SET, {_JANITOR: str(on).lower()})

    async def leave_out(self, topic: str, groups: Iterable[str]) -> None:
        """Has the takeover of a topic not wait for these groups.

        Raises:
            RequestRefused: It is not being taken over.
            UpstreamUnavailable: No answer.
        """
        await self._alter(topic, _SET, {_LEFT_OUT: ",".join(groups)})

    async def unmanage(self, topic: str) -> None:
        """Lets a managed topic be an ordinary one.

        Raises:
            RequestRefused: It cannot be.
            UpstreamUnavailable: No answer.
        """
        await self._alter(topic, _DELETE, {_VIRTUAL_PARTITIONS: None})

    async def resize(self, topic: str, partitions: int) -> None:
        """Changes how many partitions a managed topic has at the brokers; returns when all is done.

        Raises:
            RequestRefused: It cannot be.
            UpstreamUnavailable: No answer.
        """
        row = {"name": topic, "count": partitions, "assignments": None}
        fields = {"topics": [row], "timeout_ms": round(WAIT_SECONDS * 1000), "validate_only": False}
        _refuse((await self._ask(CREATE_PARTITIONS, range(4), fields)).results[0])

    async def _alter(self, topic: str, operation: int, values: Mapping[str, str | None]) -> None:
        configs = [{"name": name, "config_operation": operation, "value": value} for name, value in values.items()]
        resource = {"resource_type": _TOPIC, "resource_name": topic, "configs": configs}
        fields = {"resources": [resource], "validate_only": False}
        _refuse((await self._ask(INCREMENTAL_ALTER_CONFIGS, range(2), fields)).responses[0])

    async def _ask(self, api_key: int, versions: range, fields: dict[str, Any]) -> Any:
        return await self._client.ask(api_key, self._client.version(api_key, versions), fields, WAIT_SECONDS)


def error_name(code: int) -> str:
    """Returns Kafka's name of an error."""
    # only when something has failed: it takes a while to load, and knows more names than control needs
    from aiokafka.errors import kafka_errors  # noqa: PLC0415

    known = kafka_errors.get(code)
    return str(known.message) if known is not None else name_of(code)


def _refuse(result: Any) -> None:
    if result.error_code:
        raise RequestRefused(result.error_code, result.error_message)
