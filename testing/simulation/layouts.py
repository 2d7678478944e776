"""The layouts topic as a proxy of the simulation has it: read on for ever, appended to, and written by a controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.own_topics.layouts_writer import COMMIT_SECONDS, OPEN_SECONDS, Fenced, OutcomeUnknown
from kordon.testing.simulation.kafka import CONTROLLERS_ID, read

if TYPE_CHECKING:
    from kordon.testing.simulation.proxies import Proxy

_MANY_SECONDS: Final = 1.0
"""How long it takes to write images of very many producers: proxies come and go meanwhile."""


class Layouts:
    """What `LayoutsLog` is to the product.

    Args:
        proxy: Whose.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._world = proxy.world
        self._log = proxy.cluster.layouts
        self.position = 0
        self._on_record: Callable[[Record], None] | None = None
        self._moved = asyncio.Event()

    async def exists(self) -> bool:
        """There is one from the beginning."""
        return True

    async def faces(self) -> list[str]:
        """None has been lost."""
        return []

    async def ready(self) -> None:
        """Is always ready to append."""

    async def follow(self, on_record: Callable[[Record], None]) -> None:
        """Gives all records, for ever."""
        self._on_record = on_record
        while True:
            self._take(await self._fetched())

    async def read_to_end(self) -> int:
        """Returns when all has been given that is written at the time of the call."""
        end = await self._proxy.asked(lambda: len(self._log.records))
        while self.position < end:
            await self._moved.wait()
        return self.position

    def take_all(self) -> None:
        """Gives all that there is now."""
        self._take(len(self._log.records))

    def rewind(self) -> None:
        """Has all be given again."""
        self.position = 0

    async def append(self, entries: Sequence[NewRecord], _: float = 0.0) -> int:
        """Writes records, as any proxy may."""
        return (await self._proxy.asked(lambda: self._log.append(entries)))[-1]

    async def _fetched(self) -> int:
        """Returns where the log ends, as soon as there is more than was given."""
        answer = self._proxy.loop.create_future()

        def there() -> None:
            if not self._proxy.alive:
                return
            end = len(self._log.records)
            if self._world.now < self._proxy.lags_until:
                self._world.at(self._proxy.lags_until, there)
            elif end <= self.position:
                self._log.when_written(lambda: self._world.soon(there))
            else:
                self._proxy.later(lambda: None if answer.done() else answer.set_result(end))

        self._proxy.later_there(there)
        found: int = await answer
        return found

    def _take(self, end: int) -> None:
        assert self._on_record is not None, "somebody follows"
        while self.position < end:
            record = self._log.records[self.position]
            self.position += 1
            self._on_record(record)
        self._moved.set()
        self._moved = asyncio.Event()


class Writer:
    """What `LayoutsWriter` is to the product's controller.

    Args:
        proxy: That leads.
    """

    producer_id: Final = CONTROLLERS_ID

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._cluster = proxy.cluster
        self._epoch = 0

    async def open(self) -> None:
        """Fences all former controllers."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                self._epoch = await self._proxy.asked(self._opened)
        except TimeoutError:
            raise UpstreamUnavailable("no answer") from None

    async def begin(self) -> None:
        """Saves nothing here."""

    async def close(self) -> None:
        """Leaves nothing open."""

    async def commit(self, entries: Sequence[NewRecord]) -> list[int]:
        """Writes one transaction."""
        if all(entry.key.startswith("image/") for entry in entries):
            await asyncio.sleep(_MANY_SECONDS)
        try:
            async with asyncio.timeout(2 * COMMIT_SECONDS):
                offsets = await self._sent(entries)
        except TimeoutError:
            raise OutcomeUnknown("no answer") from None
        if offsets is None:
            raise Fenced("another controller writes now")
        return offsets

    def _opened(self) -> int:
        self._cluster.nemesis.on_takeover(self._proxy)
        return self._cluster.layouts.open_writer()

    def _sent(self, entries: Sequence[NewRecord]) -> asyncio.Future[list[int] | None]:
        answer: asyncio.Future[list[int] | None] = self._proxy.loop.create_future()

        def write() -> None:
            offsets = self._written(entries)
            self._proxy.later(lambda: None if answer.done() else answer.set_result(offsets))

        def there() -> None:
            if not self._cluster.nemesis.keeps_layout(self._proxy, entries, write):
                write()

        self._proxy.later_there(there)
        return answer

    def _written(self, entries: Sequence[NewRecord]) -> list[int] | None:
        offsets = self._cluster.layouts.commit(self._epoch, entries)
        if offsets is not None:
            self._proxy.world.say(f"{self._proxy.name} commits {[entry.key for entry in entries]}")
            self._cluster.on_commit(self._proxy, tuple((entry.key, read(entry)) for entry in entries))
        return offsets
