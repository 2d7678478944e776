"""What producer and consumer do alike when they are used by `async with`."""

from __future__ import annotations

from typing import Protocol


class Startable(Protocol):
    """A client."""

    async def start(self) -> None:
        """Connects."""
        ...

    async def stop(self) -> None:
        """Closes all connections."""
        ...


async def start_or_stop(client: Startable) -> None:
    """Starts a client; what cannot be started is stopped, since `async with` comes to no end where it has no body."""
    try:
        await client.start()
    except BaseException:
        await client.stop()
        raise
