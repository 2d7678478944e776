"""How `kordon autoscale` sees topics: layouts and lags at admin pages, the sizes of logs at brokers."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

from prometheus_client.parser import text_string_to_metric_families

from kordon.codecs.bodies import DescribeLogDirsRequest, DescribeLogDirsRequestTopic
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import describe_log_dirs, metadata
from kordon.codecs.row import Row
from kordon.proxy.commands.admin_client import StatusUnavailable, fetch_metrics, fetch_object
from kordon.proxy.config.config import HostPort, Upstream
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
_LAGS: Final = "kordon_managed_lag_records"
_METADATA: Final = range(4, 10)
_LOG_DIRS: Final = range(1, 6)


@dataclass(frozen=True, slots=True)
class LayoutSeen:
    """What an admin page tells of a topic."""

    initial: int
    physical: int
    virtual: int
    obstacle: str
    """Why it should not be changed now; empty: it may."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The group that is furthest behind on one partition."""

    records: int
    group: str


class AdminPages:
    """The admin pages of the Kordons behind one name.

    Args:
        address: Its host may stand for several Kordons (a headless service): each of them is asked.
    """

    def __init__(self, address: HostPort) -> None:
        self._address = address

    async def layout(self, topic: str) -> LayoutSeen:
        """Asks any Kordon how a topic is.

        Raises:
            StatusUnavailable: None answers, or the topic is not managed there.
        """
        facts = await asyncio.to_thread(fetch_object, self._address, f"/topics/{quote(topic, safe='')}")
        if facts is None:
            raise StatusUnavailable(f"no topic {topic} is managed at {self._address}")
        finding, held = facts["finding"], [str(each["why"]) for each in facts["held"]]
        obstacles = [f"a finding stands: {finding['kind']}"] if finding else []
        return LayoutSeen(
            facts["initial_partition_count"],
            facts["undeleted_partition_count"],
            facts["virtual_partitions"],
            "; ".join(obstacles + held),
        )

    async def lags(self) -> dict[str, Lag]:
        """Asks all Kordons, of which one knows the lags, who is furthest behind; by topic.

        Raises:
            StatusUnavailable: The name does not resolve. A Kordon that does not answer is passed over.
        """
        pages = await asyncio.gather(*(asyncio.to_thread(_page, each) for each in await self._all()))
        found: dict[str, Lag] = {}
        for page in pages:
            for family in text_string_to_metric_families(page):
                for sample in family.samples if family.name == _LAGS else ():
                    lag, topic = Lag(int(sample.value), sample.labels["group"]), sample.labels["topic"]
                    if topic not in found or lag.records > found[topic].records:
                        found[topic] = lag
        return found

    async def _all(self) -> list[HostPort]:
        loop = asyncio.get_running_loop()
        try:
            rows = await loop.getaddrinfo(self._address.host, self._address.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise StatusUnavailable(f"{self._address} does not resolve: {error}; check --admin") from error
        return [HostPort(host, self._address.port) for host in sorted({str(row[4][0]) for row in rows})]


def _page(address: HostPort) -> str:
    """Gets the metrics of one Kordon; empty where none answers."""
    try:
        return fetch_metrics(address)
    except StatusUnavailable:
        return ""


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
