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
from kordon.codecs.decision import Kind
from kordon.proxy.config.config import Config, HostPort
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.causes import IN_FLIGHT, LIMIT_OF_CAUSE, ORDINARY, CloseCause
from kordon.proxy.core.events import Drain
from kordon.proxy.core.interception import NothingManaged, Services
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.waiting import Waiting
from kordon.proxy.decisions.journal import Journal, NoJournal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.relay.relay import ReadBuffer, Relay
from kordon.proxy.runtime import log_limits
from kordon.proxy.runtime.clock import clock
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.runtime.turns import Turns

log = log_limits.client_log(__name__)

SWEEP_SECONDS: Final = 1.0
"""How often timeouts and memory are looked at."""
_SETTLED: Final = frozenset({apis.PRODUCE, apis.FETCH, apis.METADATA, apis.DESCRIBE_TOPIC_PARTITIONS})
_SETTLE_SECONDS: Final = 0.01
_LONGEST_POLL_SECONDS: Final = 0.7
"""Longer than clients let brokers wait for records by default (500 ms), and well below what a fence may take."""
_RENEW_SECONDS: Final = 8.0
"""Most time for ending the connections of clients that are to see a topic anew."""
_RECONNECT_SECONDS: Final = 1.0
"""Much longer than clients take to connect again and to ask for Metadata (reconnect.backoff.ms: 50 to 100)."""
_LAST: Final = 1 << 31
"""In place of a node id, behind all of them: of connections to the bootstrap port."""


class Relays:
    """The connections of one worker.

    Args:
        config: As it stands; a reload replaces it, open connections keep their limits.
        tally: What is counted.
        topology: Where brokers are.
        advertised: What clients are told instead.
        service: Decides on what concerns managed topics, and answers it.
        journal: Of the worker's decisions.
        turns: Of the worker; None: nobody shares them.
        lease_seconds: For how long this process may stand still before others go on without it.
        on_woken: Is called when it has stood still for longer.
    """

    def __init__(
        self,
        config: Config,
        tally: Tally,
        topology: Topology,
        advertised: Advertised,
        service: Services | None = None,
        *,
        journal: Journal | None = None,
        turns: Turns | None = None,
        lease_seconds: float = inf,
        on_woken: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config
        self.tally = tally
        self.topology = topology
        self.service: Services = service or NothingManaged()
        self.journal = journal or NoJournal()
        self.advertised = advertised
        self.advertised_by_connection = False
        """Whether clients are told the address that they connected to."""
        self.downstream_tls: ssl.SSLContext | None = None
        self.loop = asyncio.get_running_loop()
        self.buffer = ReadBuffer()
        self.tasks = Tasks()
        self.turns = turns or Turns(tally)
        self._live: set[Relay] = set()
        self._held_bytes = 0
        self.holds_too_much = False
        """Whether connections held more than `limits.held_bytes` when that was last counted."""
        self._empty = asyncio.Event()
        self._empty.set()
        self._by_client: Counter[str] = Counter()
        self._lease_seconds = lease_seconds
        self._on_woken = on_woken
        self._looked = clock()
        self.asleep_after = self._looked + lease_seconds
        """When nothing has run here for a whole lease, by `clock`, unless somebody looks before."""

    def __len__(self) -> int:
        return len(self._live)

    def admit(self, relay: Relay) -> tuple[CloseCause, str] | None:
        """Lets a connection in; otherwise says why not."""
        limits = self.config.limits
        self.tally.accepted += 1
        self._live.add(relay)
        self._empty.clear()
        self._by_client[relay.client] += 1
        self.tally.connections[relay.listener.role] += 1
        if len(self._live) > limits.connections:
            return CloseCause.CONNECTION_LIMIT, f"limits.connections ({limits.connections}) are open"
        if limits.connections_per_address and self._by_client[relay.client] > limits.connections_per_address:
            detail = f"limits.connections_per_address ({limits.connections_per_address}) are open"
            return CloseCause.ADDRESS_LIMIT, detail
        return None

    def remove(self, relay: Relay) -> None:
        """Takes a connection out that is gone."""
        if relay not in self._live:
            return
        self.note_held(relay, 0)
        self._live.remove(relay)
        self.tally.connections[relay.listener.role] -= 1
        self._by_client[relay.client] -= 1
        if not self._by_client[relay.client]:
            del self._by_client[relay.client]
        if not self._live:
            self._empty.set()

    def advertised_at(self, sock: socket.socket) -> Advertised:
        """Returns what the client behind a socket is told in place of the brokers' addresses."""
        return self.advertised.at(sock.getsockname()[0]) if self.advertised_by_connection else self.advertised

    def learn(self, nodes: dict[int, tuple[str, int]]) -> None:
        """Passes on what a response said about brokers."""
        self.topology.learn(nodes)

    def dialled(self, node_id: int | None, problem: str | None) -> None:
        """Notes that a broker was dialled, and what came of it."""
        if problem is not None:
            self.tally.upstream_connect_failures += 1
        if node_id is not None:
            self.topology.tried(node_id, problem)

    async def connect(self, address: HostPort, factory: Callable[[], asyncio.BufferedProtocol]) -> None:
        """Dials a broker.

        Raises:
            OSError: It is not reachable, or TLS fails.
            TimeoutError: `upstream.connect_timeout_ms` is over.
        """
        upstream, context = self.config.upstream, self.topology.context
        name = (upstream.tls.server_name if upstream.tls else None) or address.host
        async with asyncio.timeout(upstream.connect_timeout_ms / 1000):
            transport, _ = await self.loop.create_connection(
                factory, address.host, address.port, ssl=context, server_hostname=name if context else None
            )
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def note_closed(self, relay: Relay, cause: CloseCause, detail: str) -> None:
        """Counts and logs the one cause of a connection's end."""
        self.tally.closed[cause.value] += 1
        if cause in LIMIT_OF_CAUSE:
            self.tally.limit_hits[LIMIT_OF_CAUSE[cause]] += 1
        self._record_end(relay.peer, cause, detail)
        if cause not in ORDINARY:
            self.tally.errors[cause.value] += 1
        seconds = round(monotonic() - relay.opened, 3)
        (log.debug if cause in ORDINARY else log.warning)(
            "connection_closed",
            cause=cause.value,
            detail=detail,
            client=relay.client,
            listener=relay.listener.role,
            seconds=seconds,
        )

    def _record_end(self, peer: Client, cause: CloseCause, detail: str) -> None:
        """Has decisions say why a connection ended: if others name it, or it should not have ended so."""
        if cause in LIMIT_OF_CAUSE:
            self._record_limit(peer, LIMIT_OF_CAUSE[cause], detail)
        peer.recorded = peer.recorded or cause not in ORDINARY
        self.journal.closed(peer, cause.value)

    def _record_limit(self, peer: Client, option: str, detail: str) -> None:
        if self.journal.is_on:
            self.journal.note(peer.decision(Kind.LIMIT, rule=option, evidence={"detail": detail}))

    def note_waits(self, relay: Relay) -> None:
        """Notes that a client is read later as it has too much in flight: once, as it may do so all the time."""
        if not relay.waited:
            relay.waited = True
            limit = self.config.limits.requests_in_flight
            self._record_limit(relay.peer, IN_FLIGHT, f"limits.requests_in_flight ({limit}) had no response yet")

    async def sweep(self) -> None:
        """Looks after timeouts, memory, gauges and suppressed log lines for ever."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.look_awake()
            now = monotonic()
            for relay in list(self._live):
                relay.tick(now)
                relay.note_held()
            self.bound_memory()
            self.tally.in_flight = sum(relay.core.in_flight for relay in self._live)
            self.tally.held_bytes = self._held_bytes
            log_limits.limits.tell()

    def look_awake(self) -> bool:
        """Whether this process has run all the while; if not, all connections end (LIVE-LEASE).

        Others do not wait for longer than a lease for one that is stopped or starved. What its clients sent before,
        and what brokers have answered, may concern a topic that has come to be managed meanwhile.
        """
        now = clock()
        slept, self._looked, self.asleep_after = now - self._looked, now, now + self._lease_seconds
        if slept <= self._lease_seconds:
            return True
        log.warning("woke_up", seconds=round(slept, 1))
        self._on_woken()
        for relay in list(self._live):
            relay.close(CloseCause.SLEPT, f"Kordon has not run for {slept:.1f} s")
            relay.abort()
        return False

    def note_held(self, relay: Relay, held: int) -> None:
        """Counts what a connection holds now."""
        if relay in self._live:
            self._held_bytes += held - relay.noted_bytes
            relay.noted_bytes = held
            self.holds_too_much = self._held_bytes > self.config.limits.held_bytes

    def bound_memory(self) -> None:
        """Closes connections until all together hold at most `limits.held_bytes`.

        Those go first whose broker has not accepted them yet, and of these and of the others those that hold most.
        """
        limit = self.config.limits.held_bytes
        if self._held_bytes <= limit:
            return
        held = [relay for relay in self._live if relay.noted_bytes]
        for relay in sorted(held, key=lambda each: (each.core.proven, -each.noted_bytes)):
            if self._held_bytes <= limit:
                break
            detail = f"it held {relay.noted_bytes} of the {limit} bytes of limits.held_bytes"
            self.note_held(relay, 0)
            relay.close(CloseCause.MEMORY_LIMIT, detail)
            relay.abort()

    def close_node(self, node_id: int) -> None:
        """Ends the connections that lead to a broker the cluster no longer has."""
        for relay in [relay for relay in self._live if relay.node_id == node_id]:
            relay.close(CloseCause.BROKER_REMOVED, f"broker {node_id} is no longer part of the cluster")

    async def settle(self) -> None:
        """Returns when what clients have written, or asked to read or to be told before, is answered.

        No Fetch session goes on. All but reads are waited for as long as it takes. Who waits for records to come for
        longer than a moment is cut, and asks again: its broker would give it records that are another virtual
        partition's by then (TAKEOVER-WAITS).
        """
        waits = {relay: relay.core.unanswered(_SETTLED) for relay in self._live}
        for relay in waits:
            relay.core.end_sessions()
        until = monotonic() + _LONGEST_POLL_SECONDS
        while waits := _still(waits, self._live):
            for relay, left in waits.items() if monotonic() > until else ():
                if all(each.route.api.key == apis.FETCH for each in left):
                    relay.close(
                        CloseCause.TAKEN_OVER, "a topic is taken over, and its Fetch waits for records of before"
                    )
            await asyncio.sleep(_SETTLE_SECONDS)

    async def renew_views(self, topic: str) -> None:
        """Ends the connections of clients that may have seen a topic before, each after its last response.

        Clients that have lost one ask for Metadata; librdkafka does if another one is there to ask by, so they end
        broker by broker. Returns when those that had nothing under way have had time to ask.
        """
        why = Drain(CloseCause.TAKEN_OVER, f"{topic} has come to be managed, and its clients are to see that")
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
            timeout_seconds: What is left then is cut.
            spread_seconds: Time over which they are asked to end.

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
        await self.tasks.stop()
        return len(cut)


def _still(waits: Mapping[Relay, set[Waiting]], live: Collection[Relay]) -> dict[Relay, set[Waiting]]:
    """Returns what of these is unanswered still, by connections that live."""
    left = {relay: asked & relay.core.unanswered(_SETTLED) for relay, asked in waits.items() if relay in live}
    return {relay: asked for relay, asked in left.items() if asked}
