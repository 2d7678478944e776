"""A worker's reading of the layouts: it follows them forever, and after a failure reads all of them again.

Topics stay managed while all is read again, but unserved; what the records amount to is taken up at once, at their end.
So no layout that has ended long ago is adopted on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import Record
from kordon.proxy.kafka.internal_topic_log import LogLost
from kordon.proxy.own_topics.layouts_log import LayoutsLog
from kordon.proxy.runtime.tasks import Tasks

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 1.0
_KNOW_RETRY_SECONDS: Final = 0.1


class LayoutsFollower:
    """Reads the layouts for a worker.

    Args:
        tasks: The tasks that read all layouts again. Whoever made them ends them.
        take_up: Called when all records are read, with the offset of each key's last one.
        on_known: Called whenever the layouts have been read to their end for `know`.

    Attributes:
        lost: The reason why the layouts can no longer be followed. Only a restart helps. Empty: they can.
    """

    def __init__(
        self,
        layouts: LayoutsLog,
        tasks: Tasks,
        *,
        on_record: Callable[[Record], None],
        forget: Callable[[], None],
        take_up: Callable[[Mapping[str, int]], None],
        on_known: Callable[[], None],
    ) -> None:
        self._layouts = layouts
        self._tasks = tasks
        self._on_record = on_record
        self._forget = forget
        self._take_up = take_up
        self._on_known = on_known
        self.lost = ""
        self._has_begun = False
        self._replayed: dict[str, int] | None = None
        """While the layouts are read again, the offset of each key's last record."""
        self._replay_task: asyncio.Task[None] | None = None
        self._whole = asyncio.Event()
        """Set unless the layouts are being read again."""
        self._whole.set()

    async def run(self) -> None:
        """Takes in the layouts until they are lost; when it is called again, after a failure, from their beginning."""
        if self._has_begun:
            self._rewind()
        self._has_begun = True
        try:
            await self._layouts.follow(self._on_record)
        except LogLost as error:
            self.lost = str(error)
            log.error("layouts_lost", error=self.lost, cure="restart, then: kordon layouts import")

    def _rewind(self) -> None:
        self._replayed = {}
        self._whole.clear()
        self._forget()
        self._layouts.rewind()
        if self._replay_task is not None:
            self._replay_task.cancel()
        self._replay_task = self._tasks.keep(self._replay, name="read the layouts again")

    async def _replay(self) -> None:
        while True:
            if await self._is_read_to_end():
                break
            await asyncio.sleep(RETRY_SECONDS)
        self._take_up(self._replayed or {})
        self._replayed = None
        self._whole.set()

    def withholds(self, record: Record) -> bool:
        """Whether nothing is to be done by a record yet, because it is read again."""
        if self._replayed is None:
            return False
        self._replayed[record.key] = record.offset
        return True

    async def know(self) -> None:
        """Returns when the layouts have been read to their end, or when there are none; `run` has to run."""
        while True:
            try:
                if await self._layouts.exists():
                    await self.read_to_end()
            except UpstreamUnavailable:
                await asyncio.sleep(_KNOW_RETRY_SECONDS)
            except LogLost:
                await asyncio.sleep(RETRY_SECONDS)  # for good, and said by `run`
            else:
                self._on_known()
                return

    async def read_to_end(self) -> None:
        """Returns when everything that was committed at the time of the call is taken in.

        Raises:
            UpstreamUnavailable: The layouts topic cannot be read now.
            LogLost: The layouts topic can no longer be read.
        """
        await self._layouts.read_to_end()
        await self._whole.wait()

    async def reaches_end(self) -> bool:
        """Whether everything that was committed at the time of the call could be read, and is taken in."""
        if not await self._is_read_to_end():
            return False
        await self._whole.wait()
        return True

    async def _is_read_to_end(self) -> bool:
        try:
            await self._layouts.read_to_end()
        except (UpstreamUnavailable, LogLost) as error:
            log.warning("layouts_unreadable", error=str(error))
            return False
        return True
