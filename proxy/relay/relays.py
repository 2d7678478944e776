"""All client connections of a worker: who is let in, what they take together, how they end together."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from math import inf
from time import monotonic
from typing import Final

from kordon.codecs import apis
from kordon.proxy.config.config import Config
from kordon.proxy.core import verdicts
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.events import Drain
from kordon.proxy.core.interception import NothingManaged, Services
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.waiting import PendingRequest
from kordon.proxy.decisions.journal import NO_JOURNAL, Journal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.relay.entrance import Dialer
from kordon.proxy.relay.held_memory import HeldMemory
from kordon.proxy.relay.listener import Listener
from kordon.proxy.relay.relay import Relay
from kordon.proxy.relay.shared import Shared
from kordon.proxy.relay.wakefulness import Wakefulness
from kordon.proxy.runtime import log_limits
from kordon.proxy.runtime.turns import Turns

SWEEP_SECONDS: Final = 1.0
"""How often timeouts and memory are looked at."""
_OF_RECORDS: Final = frozenset(api.key for api in verdicts.APIS if api.brings_records or api.polls)
_SETTLED: Final = _OF_RECORDS | {apis.METADATA, apis.DESCRIBE_TOPIC_PARTITIONS}
_SETTLE_SECONDS: Final = 0.01
_LONGEST_POLL_SECONDS: Final = 0.7
"""Longer than clients let brokers wait for records by default (500 ms), and well below what a fence may take."""
_RENEW_SECONDS: Final = 8.0
"""Most time for ending the connections of clients that have to ask for a topic again."""
_RECONNECT_SECONDS: Final = 1.0
"""Much longer than clients take to connect again and to ask for Metadata (reconnect.backoff.ms: 50 to 100)."""
_LAST: Final = 1 << 31
"""Stands for the bootstrap port in place of a node id, so that its connections end last."""


class Relays:
    """The connections of one worker.

    Args:
        config: The first configuration; see `reload`.
        advertised_at: Returns what the client behind a socket is told in place of the brokers' addresses.
        turns: The turns of the worker; None: nobody shares them.
        lease_seconds: The seconds for which this process may stand still before others continue without it.
        on_woken: Called when the process has stood still for longer, before all connections end.
    """

    def __init__(
        self,
        config: Config,
        tally: Tally,
        topology: Topology,
        advertised_at: Callable[[socket.socket], Advertised],
        *,
        journal: Journal = NO_JOURNAL,
        turns: Turns | None = None,
        lease_seconds: float = inf,
        on_woken: Callable[[], None] = lambda: None,
    ) -> None:
        self.memory = HeldMemory(lambda: self._shared.config.limits.held_bytes, self._shed)
        self.wakefulness = Wakefulness(lease_seconds, self._wake)
        self._shared = Shared(
            config=config,
            tally=tally,
            topology=topology,
            dialer=Dialer(topology, tally),
            advertised_at=advertised_at,
            journal=journal,
            turns=turns or Turns(tally),
            memory=self.memory,
            wakefulness=self.wakefulness,
        )
        self._on_woken = on_woken
        self._live: set[Relay] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._by_client: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._live)

    @property
    def has_tls(self) -> bool:
        """Whether clients speak TLS."""
        return self._shared.downstream_tls is not None

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Has clients that come from now on speak TLS by this context."""
        self._shared.downstream_tls = context

    def reload(self, config: Config) -> None:
        """Takes another configuration over; open connections keep their limits."""
        self._shared.config = config

    def accept(self, services: Services[Client] | None, listener: Listener, sock: socket.socket, client: str) -> None:
        """Lets a client in and leads it to its broker, or turns it away.

        Args:
            services: The services that decide on its requests about managed topics, and answer them; None: nothing is
                managed.
            sock: The accepted socket, which the relay owns from now on.
        """
        relay = Relay(self._shared, services or NothingManaged(), listener, sock, client, on_gone=self.remove)
        refusal = self.admit(relay)
        if refusal is not None:
            relay.close(*refusal)
        else:
            relay.start()

    def admit(self, relay: Relay) -> tuple[CloseCause, str] | None:
        """Counts a connection; returns why it is to be closed again, None if it may stay."""
        limits, client = self._shared.config.limits, relay.record.client
        relay.record.accepted()
        self._live.add(relay)
        self.memory.join(relay)
        self._empty.clear()
        self._by_client[client] += 1
        if len(self._live) > limits.connections:
            return CloseCause.CONNECTION_LIMIT, f"limits.connections ({limits.connections}) are open"
        if limits.connections_per_address and self._by_client[client] > limits.connections_per_address:
            detail = f"limits.connections_per_address ({limits.connections_per_address}) are open"
            return CloseCause.ADDRESS_LIMIT, detail
        return None

    def remove(self, relay: Relay) -> None:
        """Takes a connection out that is gone."""
        if relay not in self._live:
            return
        client = relay.record.client
        self.memory.leave(relay)
        self._live.remove(relay)
        relay.record.gone()
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]
        if not self._live:
            self._empty.set()

    async def sweep(self) -> None:
        """Looks after timeouts, memory, gauges and suppressed log lines forever."""
        tally = self._shared.tally
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.wakefulness.look()
            now = monotonic()
            for relay in list(self._live):
                relay.tick(now)
                relay.note_held()
            self._shed()
            tally.in_flight = sum(relay.core.in_flight for relay in self._live)
            tally.held_bytes = self.memory.bytes
            log_limits.limits.tell()

    def _wake(self, slept_seconds: float) -> None:
        """Ends all connections: what came before may concern a topic that is managed by now (LIVE-LEASE)."""
        self._on_woken()
        for relay in list(self._live):
            relay.close(CloseCause.SLEPT, f"this process was suspended for {slept_seconds:.1f} s")
            relay.abort()

    def _shed(self) -> None:
        """Closes connections until all together hold at most `limits.held_bytes`.

        Those go first whose broker has not accepted them yet, and of these and of the others those that hold most.
        """
        limit = self._shared.config.limits.held_bytes
        if self.memory.bytes <= limit:
            return
        held = [relay for relay in self._live if relay.noted_bytes]
        for relay in sorted(held, key=lambda each: (each.core.proven, -each.noted_bytes)):
            if self.memory.bytes <= limit:
                break
            detail = f"it held {relay.noted_bytes} of the {limit} bytes of limits.held_bytes"
            self.memory.note(relay, 0)
            relay.close(CloseCause.MEMORY_LIMIT, detail)
            relay.abort()

    def close_node(self, node_id: int) -> None:
        """Ends the connections that lead to a broker the cluster no longer has."""
        for relay in [relay for relay in self._live if relay.node_id == node_id]:
            relay.close(CloseCause.BROKER_REMOVED, f"broker {node_id} is no longer part of the cluster")

    async def settle(self) -> None:
        """Returns when what clients have written, or asked to read or to be told before, is answered.

        No Fetch session continues. All but reads are waited for as long as it takes. Who waits for records to come for
        longer than a moment is cut, and asks again: its broker would give it records that are another virtual
        partition's by then (TAKEOVER-WAITS).
        """
        waits = {relay: relay.core.unanswered(_SETTLED) for relay in self._live}
        for relay in waits:
            relay.core.requests.whole.end_sessions()
        until = monotonic() + _LONGEST_POLL_SECONDS
        while waits := _still(waits, self._live):
            for relay, left in waits.items() if monotonic() > until else ():
                if all(each.route.api.polls for each in left):
                    relay.close(
                        CloseCause.TAKEN_OVER,
                        "a topic is being taken over, and a Fetch request still waits for its records",
                    )
            await asyncio.sleep(_SETTLE_SECONDS)

    async def renew_views(self, topic: str) -> None:
        """Ends the connections of clients that may have asked for a topic before, each after its last response.

        Clients that have lost one ask for Metadata; librdkafka does if another one is there to ask by, so they end
        broker by broker. Returns when those that had nothing under way have had time to ask.
        """
        why = Drain(CloseCause.TAKEN_OVER, f"{topic} is managed now, and clients have to ask for its partitions again")
        by_broker: dict[int, list[Relay]] = {}
        for relay in self._live:
            if relay.core.requests.frames:
                by_broker.setdefault(_LAST if relay.node_id is None else relay.node_id, []).append(relay)
        for _, relays in sorted(by_broker.items()):
            for relay in relays:
                relay.drain(why)
            await asyncio.sleep(min(_RECONNECT_SECONDS, _RENEW_SECONDS / len(by_broker)))

    async def drain(self, timeout_seconds: float, spread_seconds: float) -> int:
        """Ends all connections step by step, each after its last response.

        Args:
            timeout_seconds: The seconds after which the connections that are left are cut.
            spread_seconds: The seconds over which the connections are asked to end.

        Returns:
            The number of connections that had to be cut.
        """
        live = list(self._live)
        deadline = monotonic() + timeout_seconds
        step = min(spread_seconds, timeout_seconds) / max(len(live), 1)
        due = monotonic()
        for relay in live:
            relay.drain(Drain())
            due += step
            if due - monotonic() > 0.01:
                await asyncio.sleep(due - monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline - monotonic()):
                await self._empty.wait()
        cut = list(self._live)
        for relay in cut:
            relay.close(CloseCause.DRAINED, "drain.timeout_ms is over")
            relay.abort()
        await self._shared.tasks.stop()
        return len(cut)


def _still(waits: Mapping[Relay, set[PendingRequest]], live: Collection[Relay]) -> dict[Relay, set[PendingRequest]]:
    """Returns what of these is unanswered still, by connections that live."""
    left = {relay: asked & relay.core.unanswered(_SETTLED) for relay, asked in waits.items() if relay in live}
    return {relay: asked for relay, asked in left.items() if asked}
