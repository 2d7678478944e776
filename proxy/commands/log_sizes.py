"""How large the logs of topics are, as brokers tell it through Kordon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from kordon.codecs.bodies import DescribeLogDirsRequest, DescribeLogDirsRequestTopic
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import describe_log_dirs, metadata
from kordon.codecs.row import Row
from kordon.proxy.config.config import Upstream
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.leaders import topics_asked
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.proxy.runtime.tls import upstream_context

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from kordon.codecs.schema import Api

_Request = TypeVar("_Request", bound=Row)
_Response = TypeVar("_Response", bound=Row)
_METADATA: Final = range(4, 10)
_LOG_DIRS: Final = range(1, 6)


class LogSizes:
    """Asks the brokers, through Kordon, how large logs are (DescribeLogDirs, KIP-113).

    Args:
        config: How to connect: TLS, SASL and patience are used.

    Raises:
        OSError: A TLS file cannot be used.
    """

    def __init__(self, address: HostPort, config: Upstream) -> None:
        self._address = address
        self._config = config
        self._context: ssl.SSLContext | None = upstream_context(config.tls) if config.tls is not None else None

    async def of(self, topics: Mapping[str, int]) -> dict[str, dict[int, int]]:
        """Returns by topic the bytes of its physical partitions; of replicas the largest counts.

        Each broker is asked once, for all topics.

        Args:
            topics: How many partitions each has, from 0 on.

        Raises:
            UpstreamUnavailable: A broker does not answer, or refuses: that needs the right to describe the cluster.
        """
        sizes: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        for address in await self._brokers():
            for topic, q, size in await self._at(address, topics):
                sizes[topic][q] = max(size, sizes[topic].get(q, 0))
        return sizes

    async def _brokers(self) -> list[HostPort]:
        answer = await self._ask(self._address, metadata.API, _METADATA, topics_asked([]))
        return [HostPort(each.host, each.port) for each in answer.brokers]

    async def _at(self, address: HostPort, topics: Mapping[str, int]) -> list[tuple[str, int, int]]:
        rows = [DescribeLogDirsRequestTopic(topic=name, partitions=list(range(u))) for name, u in topics.items()]
        answer = await self._ask(address, describe_log_dirs.API, _LOG_DIRS, DescribeLogDirsRequest(topics=rows))
        codes = {answer.get("error_code", 0), *(row.error_code for row in answer.results)} - {Code.NONE}
        if codes:
            raise UpstreamUnavailable(f"log directories of {address}: {name_of(min(codes))}")
        return [
            (found.name, part.partition_index, part.partition_size)
            for row in answer.results
            for found in row.topics
            for part in found.partitions
            if not part.is_future_key
        ]

    async def _ask(
        self, address: HostPort, api: Api[_Request, _Response], versions: range, body: _Request
    ) -> _Response:
        """Asks on a connection of its own: looks are half a minute apart."""
        client = UpstreamClient(address, self._config, self._context)
        try:
            await client.open()
            return await client.ask(api, client.version(api.key, versions), body)
        finally:
            client.close()
