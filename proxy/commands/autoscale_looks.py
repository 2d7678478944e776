"""How `kordon autoscale` sees topics: layouts and lags at admin pages."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from prometheus_client.parser import text_string_to_metric_families

from kordon.proxy.commands.admin_client import StatusUnavailable, fetch_metrics, fetch_object
from kordon.proxy.config.host_port import HostPort

_LAGS: Final = "kordon_managed_lag_records"


@dataclass(frozen=True, slots=True)
class LayoutSeen:
    """What an admin page tells of a topic."""

    initial: int
    physical: int
    virtual: int
    obstacle: str
    """Why it should not be changed now; empty: it may."""


@dataclass(frozen=True, slots=True)
class TopicLag:
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
        held = [str(each["why"]) for each in facts["held"]]
        obstacles = [f"a finding stands: {each['kind']}" for each in facts["findings"]]
        return LayoutSeen(
            facts["initial_partition_count"],
            facts["undeleted_partition_count"],
            facts["virtual_partitions"],
            "; ".join(obstacles + held),
        )

    async def lags(self) -> dict[str, TopicLag]:
        """Asks all Kordons, of which one knows the lags, who is furthest behind; by topic.

        Raises:
            StatusUnavailable: The name does not resolve. A Kordon that does not answer is passed over.
        """
        pages = await asyncio.gather(*(asyncio.to_thread(_page, each) for each in await self._all()))
        found: dict[str, TopicLag] = {}
        for page in pages:
            for family in text_string_to_metric_families(page):
                for sample in family.samples if family.name == _LAGS else ():
                    lag, topic = TopicLag(int(sample.value), sample.labels["group"]), sample.labels["topic"]
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
