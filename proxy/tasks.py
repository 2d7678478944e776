"""Background work with an owner: nothing runs that nobody would stop, and no failure goes unheard."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

import structlog

log = structlog.get_logger(__name__)


class Tasks:
    """The tasks of one owner: held while they run, reported when they fail, ended together."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(
        self, work: Coroutine[Any, Any, Any], *, name: str, heard: type[Exception] | tuple[type[Exception], ...] = ()
    ) -> asyncio.Task[Any]:
        """Runs `work` in the background.

        Args:
            work: What to run; ends by itself or by `stop`.
            name: Stands in the log when it fails.
            heard: Failures that whoever awaits the task hears of and deals with; they are not reported here.
        """
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(partial(self._done, heard))
        return task

    async def stop(self) -> None:
        """Cancels what still runs, and waits for its end."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _done(self, heard: type[Exception] | tuple[type[Exception], ...], task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, heard):
            log.error("task_failed", task=task.get_name(), error=str(error), exc_info=error)
