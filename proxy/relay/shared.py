"""What the connections of one worker share."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from socket import socket

from kordon.proxy.config.config import Config
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.tally import Tally
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.relay.entrance import Dialer
from kordon.proxy.relay.held_memory import HeldMemory
from kordon.proxy.relay.socket_end import ReadBuffer
from kordon.proxy.relay.wakefulness import Wakefulness
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.runtime.turns import Turns


@dataclass(slots=True)
class Shared:
    """The parts that every connection of a worker uses."""

    config: Config
    """As it stands; a reload replaces it, open connections keep their limits."""
    tally: Tally
    topology: Topology
    """The addresses of brokers."""
    dialer: Dialer
    advertised_at: Callable[[socket], Advertised]
    """Returns what the client behind a socket is told in place of the brokers' addresses."""
    journal: Journal
    turns: Turns
    memory: HeldMemory
    wakefulness: Wakefulness
    downstream_tls: ssl.SSLContext | None = None
    """For new clients; None: they speak without TLS."""
    buffer: ReadBuffer = field(default_factory=ReadBuffer)
    tasks: Tasks = field(default_factory=Tasks)
