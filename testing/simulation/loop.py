"""The event loop of a simulated process: asyncio in the world's time, so that the product's own shell runs there."""

# asyncio gives a loop to run by these names alone.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from math import inf
from random import Random
from typing import Any, Never, TypeVar, TypeVarTuple, Unpack
from unittest.mock import patch

from kordon.testing.simulation.world import World

_Answer = TypeVar("_Answer")
_Told = TypeVarTuple("_Told")


class _Handle(asyncio.Handle):
    """A callback; made in fewer calls than asyncio makes one, as a cluster has tens of thousands of them."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: Sequence[Any], loop: Loop, context: Context) -> None:
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled = False

    def _run(self) -> None:
        self._context.run(self._callback, *self._args)


class Loop(asyncio.BaseEventLoop):
    """Runs the tasks of one process: not while it is stopped, and never again when it is dead.

    Args:
        world: Tells the time.
        name: The name of the process.
        runs_from: Returns from when on the process runs; infinite: it is dead.
    """

    def __init__(self, world: World, name: str, runs_from: Callable[[], float]) -> None:
        super().__init__()
        self.name = name
        self.dial: Callable[[Callable[[], Any], str, int], Awaitable[tuple[asyncio.Transport, Any]]] = _nobody_there
        """Makes a connection: of what makes its protocol, host and port."""
        self._world = world
        self._runs_from = runs_from
        self._handles: deque[asyncio.Handle] = deque()
        """Callbacks that are ready to run."""
        self._slept_through: list[asyncio.TimerHandle] = []
        """Timers that were due while the process was stopped."""
        self._is_woken = False

    def time(self) -> float:
        """Returns the world's seconds."""
        return self._world.now

    def call_soon(
        self, callback: Callable[[Unpack[_Told]], object], *args: *_Told, context: Context | None = None
    ) -> asyncio.Handle:
        """Runs a callback behind all that is ready."""
        handle = _Handle(callback, args, self, copy_context() if context is None else context)
        self._handles.append(handle)
        if not self._is_woken:
            self._wake()
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Told]], object],
        *args: *_Told,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Runs a callback at a time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._world.at(when, lambda: None if handle.cancelled() else self._due(handle))
        return handle

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Connects to whoever is there."""
        return await self.dial(protocol_factory, host, port)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Finds it cancelled when its time has come."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Raises what a callback has raised; tasks that end with their process are nobody's concern."""
        if "handle" in context:
            raise context["exception"]

    def run(self, what: Callable[[], _Answer]) -> _Answer:
        """Runs something at once, as a part of the process."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            return what()
        finally:
            asyncio._set_running_loop(before)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work until it ends, or the process does; a failure is one of the simulation."""
        self.create_task(work).add_done_callback(lambda task: None if task.cancelled() else task.result())

    def end(self) -> None:
        """Ends all tasks of a process that runs no more."""
        for task in asyncio.all_tasks(self):
            task.cancel()
        self.run(self._run_all)
        self.close()

    def _due(self, handle: asyncio.TimerHandle) -> None:
        if self._runs_from() <= self._world.now:
            self._handles.append(handle)
            self._wake()
        else:  # what comes over connections meanwhile is seen first, as by any loop that polls, and then its timers
            self._slept_through.append(handle)
            self._wake()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._world.at(self._world.now, self._turn)

    def _turn(self) -> None:
        runs_from = self._runs_from()
        if runs_from <= self._world.now:
            self._handles.extend(self._slept_through)
            self._slept_through.clear()
            self.run(self._run_all)
            self._is_woken = False
        elif runs_from < inf:
            self._world.at(runs_from, self._turn)

    def _run_all(self) -> None:
        handles = self._handles
        while handles:
            handle = handles.popleft()
            if not handle._cancelled:
                handle._run()


async def _nobody_there(_: object, host: str, port: int) -> Never:
    raise ConnectionRefusedError(f"nobody is at {host}:{port}")


def running() -> str:
    """Returns the name of the process that runs just now; empty: none does."""
    loop = asyncio._get_running_loop()
    return loop.name if isinstance(loop, Loop) else ""


@contextmanager
def clocks_of(world: World) -> Iterator[None]:
    """Has all clocks tell the world's time, and names that nobody else has come from its seed."""
    names = Random(world.seed)  # noqa: S311 - chance that can be repeated

    def now(*_: object) -> float:
        return world.now

    def now_ns() -> int:
        return round(world.now * 1_000_000_000)

    def name() -> uuid.UUID:
        return uuid.UUID(int=names.getrandbits(128), version=4)

    with (
        patch.object(time, "time", now),
        patch.object(time, "time_ns", now_ns),
        patch.object(time, "monotonic", now),
        patch.object(time, "clock_gettime", now),
        patch.object(uuid, "uuid4", name),
    ):
        yield
