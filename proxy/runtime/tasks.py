"""Background work with an owner: its owner stops it, and every failure is logged and counted.

What may end is started (`Tasks.start`); what others rely on is kept (`Tasks.keep`): when it fails it is begun again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

import structlog

_T = TypeVar("_T")
Work: TypeAlias = Coroutine[object, None, _T]
"""What a coroutine function returns."""

log = structlog.get_logger(__name__)

FIRST_RETRY_SECONDS: Final = 0.2
LAST_RETRY_SECONDS: Final = 10.0
STEADY_SECONDS: Final = 60.0
"""Kept work that has run for this long since it began again counts as sound."""
PASSING: Final = "passing"
"""The label under which failures are counted of work that is not kept."""


class _Failure(NamedTuple):
    at: float
    """Seconds of the monotonic clock."""
    text: str


class Failures:
    """The failures of the background work of this process, whoever owns it.

    Attributes:
        counts: The failures by the name of kept work. All other work is counted together under `PASSING`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[str] = Counter({PASSING: 0})
        self._clock = clock
        self._last: dict[str, _Failure] = {}

    def expect(self, name: str) -> None:
        """Counts failures of kept work from here on: from 0, so that the first one is seen as a rise."""
        self.counts.setdefault(name, 0)

    def note(self, name: str, error: BaseException) -> None:
        """Notes that kept work has failed and is begun again."""
        self.counts[name] += 1
        self._last[name] = _Failure(self._clock(), f"{type(error).__name__}: {error}"[:256])

    def recent(self) -> list[str]:
        """Says what kept work failed within the last minute, and why."""
        since = self._clock() - STEADY_SECONDS
        return [
            f"{name} failed and is begun again: {last.text}" for name, last in self._last.items() if last.at > since
        ]


FAILURES: Final = Failures()
"""Of this process: its workers are processes of their own."""


class Tasks:
    """The tasks of one owner: held while they run, reported when they fail, ended together."""

    def __init__(self, failures: Failures = FAILURES) -> None:
        self._running: set[asyncio.Task[object]] = set()
        self._failures = failures

    def start(
        self, work: Work[_T], *, name: str, heard: type[Exception] | tuple[type[Exception], ...] = ()
    ) -> asyncio.Task[_T]:
        """Runs `work` in the background; nobody relies on it for long if it fails.

        Args:
            work: The work to run. It ends by itself or by `stop`.
            name: The name that stands in the log when the work fails.
            heard: Failures that whoever awaits the task hears of and deals with; they are not reported here.
        """
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(partial(self._done, heard))
        return task

    def keep(self, work: Callable[[], Work[None]], *, name: str, of: str = "") -> asyncio.Task[None]:
        """Runs work in the background that others rely on; it begins again when it fails, a little later each time.

        Args:
            work: Called to begin the work. It may begin again after any failure, so it takes nothing for granted that
                it has left behind. When it returns its work is done.
            name: The name, which is a label of `kordon_task_failures_total`. There are only a few names.
            of: The one that it is, where there are several of a name. It stands in the log.
        """
        self._failures.expect(name)
        return self.start(self._kept(work, name, of), name=f"{name} {of}".rstrip())

    async def stop(self) -> None:
        """Cancels what still runs, and waits for its end."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _kept(self, work: Callable[[], Work[None]], name: str, of: str) -> None:
        wait = FIRST_RETRY_SECONDS
        while True:
            began = time.monotonic()
            try:
                return await work()
            except (Exception, asyncio.CancelledError) as error:  # the outermost edge: whatever it is, it has to go on
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise  # it is ended itself, and not what it has waited for
                if time.monotonic() - began > STEADY_SECONDS:
                    wait = FIRST_RETRY_SECONDS
                self._failures.note(name, error)
                log.exception("task_failed", task=f"{name} {of}".rstrip(), error=str(error)[:256], retry_seconds=wait)
            await asyncio.sleep(wait)
            wait = min(2 * wait, LAST_RETRY_SECONDS)

    def _done(self, heard: type[Exception] | tuple[type[Exception], ...], task: asyncio.Task[object]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, heard):
            self.report(task.get_name(), error)

    def report(self, name: str, error: BaseException) -> None:
        """Logs and counts a failure that nobody else reports.

        Args:
            name: The name of the work that failed.
        """
        self._failures.counts[PASSING] += 1
        log.error("task_failed", task=name, error=str(error), exc_info=error)
