"""What a lone proxy and a supervisor of workers have in common: the wish to stop, and reloads."""

from __future__ import annotations

import asyncio
import resource
import signal
import ssl
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from kordon.proxy.config.config_load import ConfigError
from kordon.proxy.config.config_options import options, value_of
from kordon.proxy.process.watch import FileWatch, watch_files
from kordon.proxy.runtime.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

    from kordon.proxy.config.config import Config
    from kordon.proxy.config.config_load import Loaded

SAME_WISH_SECONDS: Final = 0.5
"""A second signal so soon is the same wish: `timeout`, make and terminals signal a process and its whole group."""
SPARE_FILES: Final = 256
"""Listeners, logs, the event loop's own."""

log = structlog.get_logger(__name__)


class Stop:
    """The wish to stop: the first one drains, the second one does not wait for it."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()
        self._asked_at = 0.0

    def ask(self, why: str) -> None:
        """Asks to stop, or to hurry when that was asked before."""
        now = asyncio.get_running_loop().time()
        if not self.asked.is_set():
            log.info("stopping", why=why, again="a second signal stops at once")
            self._asked_at = now
            self.asked.set()
        elif now - self._asked_at > SAME_WISH_SECONDS:
            log.warning("stopping_at_once", why=why)
            self.at_once.set()

    def on_signals(self) -> None:
        """Lets SIGTERM and SIGINT ask."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ask, number.name)


@asynccontextmanager
async def reloading(
    loaded: Loaded,
    load_again: Callable[[], Loaded],
    files: Callable[[], list[Path]],
    take: Callable[[Loaded], Awaitable[None]],
    refuse: Callable[[list[str]], None],
) -> AsyncGenerator[None, None]:
    """Reloads on SIGHUP and when a file has changed, one reload after the other, until the block ends.

    Args:
        loaded: The configuration in force; certificates have not been read yet.
        take: Called with a configuration that is usable.
        refuse: Called with the mistakes of one that is not.
    """
    tasks, turn = Tasks(), asyncio.Lock()

    async def reload() -> None:
        async with turn:
            try:
                loaded = load_again()
            except ConfigError as error:
                refuse([str(problem) for problem in error.problems])
            else:
                log_warnings(loaded)
                await take(loaded)

    def hang_up() -> None:
        tasks.start(reload(), name="reload on SIGHUP")

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up)
    watch = FileWatch(files())
    if _has_changed(loaded, load_again):
        tasks.start(reload(), name="reload what has changed since")
    tasks.keep(partial(watch_files, watch, files, reload), name="watch files")
    try:
        yield
    finally:
        await tasks.stop()


def _has_changed(loaded: Loaded, load_again: Callable[[], Loaded]) -> bool:
    """Whether the configuration was written between its reading and the first look at its file."""
    try:
        return load_again().config != loaded.config
    except ConfigError:
        return True


def watched_files(config: Config, file: Path | None) -> list[Path]:
    """The files that are read again when they change: the configuration and all certificates and keys."""
    values = [value_of(config, key) for key, option in options().items() if option.reloads]
    return [path for path in (file, *values) if isinstance(path, Path)]


def explain_os_error(error: OSError) -> str:
    """The operating system's words, without Python's number and tuple around them."""
    return (error.strerror or str(error)) + (f": {error.filename}" if error.filename else "")


@contextmanager
def naming(what: str) -> Generator[None, None, None]:
    """Puts an option and its address before a system's error; an error about a file already names the file.

    Raises:
        OSError: The same error, with the option and the address in its message.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or isinstance(error, ssl.SSLError):
            raise
        raise OSError(error.errno, f"{what}: {explain_os_error(error)}") from error


def raise_file_limit(connections: int) -> None:
    """Lets the process open as many files as the system allows, and warns when they are too few.

    Args:
        connections: The most clients of one process. Each has a socket of its own and one to a broker.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + SPARE_FILES
    if soft < wanted and soft != resource.RLIM_INFINITY:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < 2 * connections:
            log.warning("few_files", limit=soft, wanted=wanted, cure="raise ulimit -n, or lower limits.connections")


def log_warnings(loaded: Loaded) -> None:
    """Logs what an operator should know about a configuration that is usable."""
    for warning in loaded.warnings:
        log.warning("configuration", problem=str(warning))
