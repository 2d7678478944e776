"""How a client gets in: a step that fails turns it away with a cause."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

from kordon.proxy.config.config import Upstream
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.tally import Tally
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.relay.entrance import Dialer, TurnedAway, hear, know_managed
from kordon.proxy.relay.listener import Target


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client's socket and the accepted one."""
    client, accepted = socket.socketpair()
    accepted.setblocking(False)
    with client, accepted:
        yield client, accepted


async def test_a_clients_first_byte_is_heard_and_left_there(pair: tuple[socket.socket, socket.socket]) -> None:
    """The transport that is made later reads it."""
    client, accepted = pair
    client.sendall(b"hello")
    await hear(accepted, 60)
    assert accepted.recv(10) == b"hello"


async def test_a_client_that_says_nothing_is_turned_away(pair: tuple[socket.socket, socket.socket]) -> None:
    """In time, or when it is gone: these are two causes."""
    client, accepted = pair
    with pytest.raises(TurnedAway) as late:
        await hear(accepted, 0.01)
    client.close()
    with pytest.raises(TurnedAway) as gone:
        await hear(accepted, 60)
    assert [each.value.cause for each in (late, gone)] == [CloseCause.HANDSHAKE_TIMEOUT, CloseCause.CLIENT_CLOSED]


async def test_a_client_waits_until_it_is_known_what_is_managed() -> None:
    """For as long as a handshake may take."""

    class Service:
        def __init__(self) -> None:
            self.known = asyncio.Event()

        async def ready(self) -> None:
            await self.known.wait()

    service = Service()
    with pytest.raises(TurnedAway):
        await know_managed(cast("Any", service), 0.01)
    service.known.set()
    await know_managed(cast("Any", service), 60)


class Dialled(asyncio.BufferedProtocol):
    """Can hang up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.abort = cast("asyncio.Transport", transport).abort


async def test_addresses_are_dialled_in_turn() -> None:
    """The first that takes the connection is the one; each that does not is counted."""
    made: list[Dialled] = []

    def factory() -> Dialled:
        made.append(Dialled())
        return made[-1]

    with socket.socket() as closed, socket.create_server(("127.0.0.1", 0)) as server:
        closed.bind(("127.0.0.1", 0))
        nobody, somebody = HostPort(*closed.getsockname()), HostPort(*server.getsockname())
        tally = Tally()
        dialer = Dialer(Topology(Upstream(bootstrap=(somebody,)), lambda _: None, lambda _: None), tally)
        await dialer.dial(Target(None, [nobody, somebody], ""), factory)
        assert (len(made), tally.upstream_connect_failures) == (1, 1)
        made[0].abort()
        with pytest.raises(TurnedAway, match=str(nobody)) as refused:
            await dialer.dial(Target(None, [nobody], ""), factory)
        with pytest.raises(TurnedAway, match="not known yet"):
            await dialer.dial(Target(7, [], "its address is not known yet"), factory)
        assert refused.value.cause is CloseCause.UPSTREAM_UNREACHABLE
