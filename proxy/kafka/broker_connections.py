"""Kordon's own connections to the brokers, one for each broker and purpose, dialled when first asked for.

A purpose keeps its connection for itself: an answer that a broker holds back (a Fetch that waits for data) holds back
everything behind it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, TypeVar

from kordon.codecs.row import Row
from kordon.codecs.schema import Api
from kordon.proxy.core.errors import NoCommonVersion, UpstreamUnavailable
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.runtime.tls import explain

_Request = TypeVar("_Request", bound=Row)
_Response = TypeVar("_Response", bound=Row)

_ANY_SECONDS: Final = 3.0
"""For one broker, where another one can be asked as well."""
_FIRST_BACKOFF_SECONDS: Final = 0.05
_LONGEST_BACKOFF_SECONDS: Final = 1.0
"""As Java clients wait before they dial again (reconnect.backoff.ms, reconnect.backoff.max.ms)."""


class BrokerConnections:
    """The connections of one worker.

    Args:
        topology: Where the brokers are; it is told which of them could be reached.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._open: dict[tuple[int, str], UpstreamClient] = {}
        self._dials: dict[tuple[int, str], asyncio.Task[UpstreamClient]] = {}
        self._failures: Counter[tuple[int, str]] = Counter()
        """Dials that failed since the last one that did not."""
        self._tasks = Tasks()
        self._closed = False

    async def to(self, node_id: int, purpose: str) -> UpstreamClient:
        """Returns the connection of a purpose to a broker; one that is missing or broken is dialled, for all at once.

        While a broker cannot be reached, each dial waits longer than the last, up to a second: callers may ask again
        as often as they like.

        Args:
            purpose: Tells its connections apart: "lane 0", "queries".

        Raises:
            UpstreamUnavailable: The broker is not known, or cannot be reached now.
        """
        name = (node_id, purpose)
        address = self.topology.address_of(node_id)
        client = self._open.get(name)
        if client is not None and not client.closed and client.address == address:
            return client
        dial = self._dials.get(name)
        if dial is None:
            what = f"dial broker {node_id} for {purpose}"
            dial = self._dials[name] = self._tasks.start(self._dial(name), name=what, heard=UpstreamUnavailable)
            dial.add_done_callback(lambda _: self._dials.pop(name, None))
        return await asyncio.shield(dial)  # another caller may wait for it as well

    async def ask_any(self, purpose: str, api: Api[_Request, _Response], versions: range, body: _Request) -> _Response:
        """Asks one broker after the other until one answers; those that worked last time come first.

        Args:
            versions: The newest of these that the broker speaks is used.

        Raises:
            NoCommonVersion: No broker speaks any of the versions.
            UpstreamUnavailable: No broker is known, or none answers.
        """
        failed: dict[int, Exception] = {}
        for node_id in self._best_first(purpose):
            try:
                async with asyncio.timeout(_ANY_SECONDS):
                    client = await self.to(node_id, purpose)
                    return await client.ask(api, client.version(api.key, versions), body)
            except (UpstreamUnavailable, TimeoutError) as error:
                failed[node_id] = error
                if not isinstance(error, NoCommonVersion):
                    self.topology.tried(node_id, error)
        if not failed:
            raise UpstreamUnavailable("no broker is known yet")
        are_old = all(isinstance(error, NoCommonVersion) for error in failed.values())
        what = "; ".join(f"broker {node_id}: {explain(error)}" for node_id, error in failed.items())
        raise NoCommonVersion(what) if are_old else UpstreamUnavailable(what)

    async def close(self) -> None:
        """Ends all connections at once; nothing is dialled any more."""
        self._closed = True
        await self._tasks.stop()
        for client in self._open.values():
            client.close()
        self._open.clear()

    def _best_first(self, purpose: str) -> list[int]:
        rows = [
            (node.error is not None, (id_, purpose) not in self._open, id_) for id_, node in self.topology.nodes.items()
        ]
        return [node_id for _, _, node_id in sorted(rows)]

    async def _dial(self, name: tuple[int, str]) -> UpstreamClient:
        node_id, _ = name
        former = self._open.pop(name, None)
        if former is not None:
            former.close()
        if failures := self._failures[name]:
            await asyncio.sleep(min(_FIRST_BACKOFF_SECONDS * 2 ** min(failures - 1, 10), _LONGEST_BACKOFF_SECONDS))
        address = self.topology.address_of(node_id)
        if address is None or self._closed:
            what = "the connections are closed" if self._closed else f"the address of broker {node_id} is not known"
            raise UpstreamUnavailable(what)
        client = UpstreamClient(address, self.topology.config, self.topology.context)
        try:
            await client.open()
        except UpstreamUnavailable as error:
            self.topology.tried(node_id, str(error))
            self._failures[name] += 1
            raise
        self.topology.tried(node_id, None)
        del self._failures[name]
        self._open[name] = client
        return client
