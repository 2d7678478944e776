"""The proxy of one worker: its parts put together, started, reloaded, drained, and asked how it is."""

from __future__ import annotations

import asyncio
import socket
import time
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from math import inf
from typing import Final

import structlog

import kordon
from kordon.proxy.config.config import Config
from kordon.proxy.config.config_options import differences
from kordon.proxy.config.host_port import WILDCARD_HOSTS
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.causes import LIMITS
from kordon.proxy.core.tally import Tally
from kordon.proxy.decisions.families import DECISIONS
from kordon.proxy.decisions.journal import NO_JOURNAL
from kordon.proxy.decisions.recorder import make_recorder
from kordon.proxy.handlers.introductions import OnlyRecorded
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.member.membership import new_incarnation
from kordon.proxy.process.explain import Facts
from kordon.proxy.process.managed_families import MANAGED, ManagedLook
from kordon.proxy.process.managed_worker import ManagedWorker
from kordon.proxy.relay.listener import remember_server_name
from kordon.proxy.relay.listeners import Listeners
from kordon.proxy.relay.relays import Relays
from kordon.proxy.runtime import log_limits
from kordon.proxy.runtime.families import FamilySource
from kordon.proxy.runtime.metrics import Metrics
from kordon.proxy.runtime.tasks import FAILURES, Tasks
from kordon.proxy.runtime.tls import downstream_context, upstream_context
from kordon.proxy.runtime.turns import Turns

log = structlog.get_logger(__name__)

_FIRST_REFRESH_SECONDS: Final = 2.0
"""How long a start waits for the cluster, so that brokers' ports are open before the bootstrap port is."""
_UPKEEP_SECONDS: Final = 1.0


class ProxyState(Enum):
    """The state of a proxy in its life. The value stands in /status."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"


class Proxy:
    """A whole proxy in one process; it is made in the event loop that serves it.

    Args:
        worker: The worker's number among the processes that share the ports, from 0.
    """

    def __init__(self, config: Config, worker: int = 0) -> None:
        self.config = config
        self.worker = worker
        self.state = ProxyState.STARTING
        self._started = time.time()
        self._drained = False
        """Whether all that clients had asked for was answered before the end."""
        self._tasks = Tasks()
        self._topology = Topology(config.upstream, self._on_node, self._on_node_gone)
        incarnation = new_incarnation()
        self.recorder = make_recorder(config.decisions, self._topology, incarnation)
        """The recorder of the worker's decisions; None: they are not recorded."""
        journal = self.recorder.journal if self.recorder is not None else NO_JOURNAL
        tally = Tally()
        turns = Turns(tally)
        self._advertised = advertised(config)
        self._relays = Relays(
            config,
            tally,
            self._topology,
            self._advertised_at if by_connection(config) else lambda _: self._advertised,
            journal=journal,
            turns=turns,
            lease_seconds=config.ordering.lease_ms / 1000 if config.ordering.enabled else inf,
            on_woken=lambda: None if self.managed is None else self.managed.doubt(),
        )
        self.managed = (
            ManagedWorker(config, self._topology, journal, incarnation, turns, passed=lambda: self._relays)
            if config.ordering.enabled
            else None
        )
        self.metrics = Metrics(
            tally,
            FamilySource(MANAGED, lambda: ManagedLook.at(self.managed) if self.managed is not None else None),
            FamilySource(DECISIONS, lambda: self.recorder),
        )
        self.pages = self.managed.pages if self.managed is not None else None
        """What the admin pages show of managed topics; None: they are switched off."""
        recorded = OnlyRecorded(journal, config.decisions.oauth_claim) if journal.is_on else None
        service = self.managed.service if self.managed is not None else recorded
        self._listeners = Listeners(
            config.listen,
            self._topology,
            self._advertised,
            partial(self._relays.accept, service),
            shared=config.workers > 1,
        )

    async def start(self) -> None:
        """Opens the ports and begins to serve; a cluster that cannot be reached is no failure, it is waited for.

        Raises:
            OSError: The bootstrap port cannot be opened, or a TLS file cannot be used.
        """
        config = self.config
        upstream_tls = upstream_context(config.upstream.tls) if config.upstream.tls is not None else None
        self._set_downstream_tls(config)
        self._listeners.open_bootstrap()
        if self.recorder is not None:
            self.recorder.start()
        self._topology.reload(config.upstream, upstream_tls)
        first = self._tasks.start(self._topology.refresh(), name="first look at the cluster")
        await asyncio.wait({first}, timeout=_FIRST_REFRESH_SECONDS)
        self._tasks.keep(self._topology.follow, name="follow the cluster")
        self._tasks.keep(self._relays.sweep, name="sweep connections")
        self._tasks.keep(self._upkeep, name="upkeep")
        if self.managed is not None:
            self.managed.start()
        self.state = ProxyState.RUNNING
        log.info(
            "proxy_started", listen=str(config.listen.address), upstream=[str(a) for a in config.upstream.bootstrap]
        )

    async def drain(self) -> None:
        """Closes the ports, lets accepted requests get their responses, ends connections step by step."""
        self.state = ProxyState.DRAINING
        self._listeners.close()
        drain = self.config.drain
        log.info("draining", connections=len(self._relays), timeout_ms=drain.timeout_ms)
        cut = await self._relays.drain(drain.timeout_ms / 1000, drain.spread_ms / 1000)
        self._drained = not cut
        if cut:
            log.warning("drain_incomplete", cut=cut, cure="raise drain.timeout_ms")

    async def stop(self) -> None:
        """Ends everything at once; after `drain` there is little left."""
        self.state = ProxyState.STOPPED
        self._listeners.close()
        await self._relays.drain(0, 0)
        if self.managed is not None:
            await self.managed.close(in_order=self._drained)
        if self.recorder is not None:
            await self.recorder.close()
        await self._tasks.stop()
        log_limits.limits.tell_all()

    async def reload(self, config: Config) -> list[str]:
        """Takes over what a running proxy can: certificates, limits, upstream addresses, drain times.

        Returns:
            The options that differ but need a restart, by their path in the file.

        Raises:
            OSError: A TLS file cannot be used; the old configuration stays in force, whole.
        """
        left = [".".join(map(str, option.key)) for option in differences(self.config, config) if not option.reloads]
        if (self.config.listen.tls is None) != (config.listen.tls is None):
            left.append("listen.tls")
        upstream_tls = upstream_context(config.upstream.tls) if config.upstream.tls else None
        self._set_downstream_tls(config)
        self.config = config
        self._relays.reload(config)
        self._topology.reload(config.upstream, upstream_tls)
        return left

    def unready(self) -> list[str]:
        """Returns why no client should be sent here, in words; empty when all is well."""
        reasons: list[str] = []
        if self.state is not ProxyState.RUNNING:
            reasons.append(f"the proxy is {self.state.value}")
        if self._topology.error:
            reasons.append(f"upstream: {self._topology.error}")
        reasons += [each.error for each in self._listeners.by_role.values() if each.error]
        return reasons + (self.pages.unready() if self.pages is not None else [])

    def notes(self) -> list[str]:
        """Returns faults for which clients need not go elsewhere: all proxies share them, or they are being mended."""
        return [*(self.pages.notes() if self.pages is not None else []), *FAILURES.recent()]

    def status(self) -> Facts:
        """Returns what /status shows; JSON can take it."""
        tally, topology = self.metrics.tally, self._topology
        since = time.monotonic() - topology.refreshed if topology.refreshed is not None else None
        return {
            "version": kordon.__version__,
            "started_at": datetime.fromtimestamp(self._started, UTC).isoformat(timespec="seconds"),
            "uptime_seconds": round(time.time() - self._started, 3),
            "worker": self.worker,
            "state": self.state.value,
            "upstream": {
                "bootstrap": [str(address) for address in self.config.upstream.bootstrap],
                "cluster_id": topology.cluster_id,
                "nodes": self._node_rows(),
                "last_refresh_seconds_ago": None if since is None else round(since, 3),
            },
            "listeners": [
                {"address": each.address, "role": each.role, "connections": tally.connections[each.role]}
                for each in self._listeners.by_role.values()
            ],
            "connections": {"open": len(self._relays), "accepted": tally.accepted, "closed": dict(tally.closed)},
            "requests": {"total": sum(tally.requests), "in_flight": tally.in_flight},
            "bytes": {
                "received_downstream": tally.downstream.received_bytes,
                "sent_downstream": tally.downstream.sent_bytes,
                "received_upstream": tally.upstream.received_bytes,
                "sent_upstream": tally.upstream.sent_bytes,
                "held": tally.held_bytes,
            },
            "limits": {"hits": {name: tally.limit_hits[name] for name in sorted(LIMITS)}},
            "unready": self.unready(),
            "notes": self.notes(),
        }

    def _node_rows(self) -> list[Facts]:
        rows: list[Facts] = []
        for node_id, node in sorted(self._topology.nodes.items()):
            host, port = self._advertised.of(node_id)
            rows.append(
                {
                    "node_id": node_id,
                    "address": str(node.address),
                    "advertised": f"{host}:{port}",
                    "port": port,
                    "up": node.probed and node.error is None,
                    "error": node.error,
                }
            )
        return rows

    def _set_downstream_tls(self, config: Config) -> None:
        if config.listen.tls is None or (self.state is ProxyState.RUNNING and not self._relays.has_tls):
            return
        context = downstream_context(config.listen.tls)
        if config.listen.sni is not None:
            remember_server_name(context, config.listen.sni)
        self._relays.use_tls(context)

    def _advertised_at(self, sock: socket.socket) -> Advertised:
        """Returns the address by which a client has come, as no other is known."""
        return self._advertised.at(sock.getsockname()[0])

    def _on_node(self, node_id: int) -> None:
        self._listeners.open_node(node_id)

    def _on_node_gone(self, node_id: int) -> None:
        self._listeners.close_node(node_id)
        self._relays.close_node(node_id)
        self.metrics.upstream_up.pop(node_id, None)

    async def _upkeep(self) -> None:
        while True:
            for node_id, node in self._topology.nodes.items():
                self.metrics.upstream_up[node_id] = node.probed and node.error is None
            self._listeners.retry()
            self.metrics.ready = not self.unready()
            await asyncio.sleep(_UPKEEP_SECONDS)


def advertised(config: Config) -> Advertised:
    """Reads from the configuration what clients are told in place of the brokers' addresses."""
    listen = config.listen
    if listen.sni is not None:
        return Advertised(host="", base_port=listen.address.port, sni_pattern=listen.sni.broker)
    host = listen.advertise or listen.address.host
    return Advertised(host=host, base_port=listen.first_broker_port, ports=dict(listen.ports))


def by_connection(config: Config) -> bool:
    """Whether clients are told the address they connected to, because no other is known."""
    return (
        config.listen.advertise is None and config.listen.sni is None and config.listen.address.host in WILDCARD_HOSTS
    )
