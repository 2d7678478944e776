"""One proxy process from start to end: proxy, admin pages, signals, reloads, and a stop that loses no answer."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import structlog

from kordon.proxy.admin import AdminServer
from kordon.proxy.certificates import read_certificates
from kordon.proxy.config_load import ConfigError
from kordon.proxy.config_options import differences, options, value_of
from kordon.proxy.config_source import dotted
from kordon.proxy.logs import configure_logging
from kordon.proxy.metrics import Metrics
from kordon.proxy.server import Proxy
from kordon.proxy.tally import Tally
from kordon.proxy.tasks import Tasks
from kordon.proxy.watch import watch_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kordon.proxy.config import Config
    from kordon.proxy.config_load import Loaded

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

log = structlog.get_logger(__name__)


class Stop:
    """The wish to stop: the first one drains, the second one does not wait for it."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()

    def ask(self, why: str) -> None:
        """Asks to stop, or to hurry when that was asked before."""
        if self.asked.is_set():
            log.warning("stopping_at_once", why=why)
            self.at_once.set()
        else:
            log.info("stopping", why=why, again="a second signal stops at once")
            self.asked.set()

    def on_signals(self) -> None:
        """Lets SIGTERM and SIGINT ask."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ask, number.name)


class Service:
    """A proxy with everything around it; it is what its admin pages show.

    Args:
        config: The configuration to start with.
        worker: Its number when there are several, else None.
    """

    def __init__(self, config: Config, worker: int | None = None) -> None:
        self.config = config
        self._worker = worker
        self._metrics = Metrics(Tally())
        self._proxy = Proxy(config, self._metrics, worker or 0)
        self._admin = AdminServer(self)
        self._note_certificates()

    async def unready(self) -> list[str]:
        """Why clients cannot be served now; empty when they can."""
        return self._proxy.unready()

    async def metrics(self) -> bytes:
        """Everything Prometheus gets."""
        return self._metrics.render()

    async def status(self) -> dict[str, Any]:
        """The object of /status."""
        return {**self._proxy.status(), "pid": os.getpid()}

    async def run(self, stop: Stop, admin_socket: Path | None = None) -> int:
        """Serves until asked to stop.

        Args:
            stop: Ends it.
            admin_socket: Where a worker serves its pages; without it they are on `admin.address`.

        Returns:
            An exit code; what went wrong has been logged.
        """
        self._metrics.loop_lag.start(asyncio.get_running_loop())
        try:
            await self._start(admin_socket)
        except OSError as error:
            log.error("cannot_start", error=explain_os_error(error))
            return EXIT_FAILED
        else:
            await stop.asked.wait()
            await self._drain(stop)
            await self._proxy.stop()
        finally:
            self._metrics.loop_lag.stop()
            await self._admin.close()
        log.info("stopped")
        return EXIT_OK

    async def reload(self, config: Config) -> None:
        """Takes over what can be taken over while running, certificates included, and logs the rest."""
        changed = [dotted(option.key) for option in differences(self.config, config)]
        try:
            fixed = await self._proxy.reload(config)
        except OSError as error:
            self.refuse_reload([explain_os_error(error)])
            return
        configure_logging(self.config.log.model_copy(update={"level": config.log.level}), worker=self._worker)
        self.config = config
        self._note_certificates()
        self._metrics.reloads["partly" if fixed else "applied"] += 1
        log.info("reloaded", changed=[key for key in changed if key not in fixed])
        if fixed:
            log.warning("restart_needed", options=sorted(fixed), cure="these keep their old values until then")

    def refuse_reload(self, problems: list[str]) -> None:
        """Notes that a new configuration is not usable and the old one stays."""
        self._metrics.reloads["refused"] += 1
        for problem in problems:
            log.error("reload_refused", problem=problem)

    async def _start(self, admin_socket: Path | None) -> None:
        address = self.config.admin.address
        if admin_socket is not None:
            await self._admin.listen_unix(admin_socket)
        elif address is not None:
            try:
                await self._admin.listen(address)
            except OSError as error:
                raise OSError(error.errno, f"admin.address {address}: {explain_os_error(error)}") from error
        await self._proxy.start()

    async def _drain(self, stop: Stop) -> None:
        """Drains until done or until somebody is in a hurry; the proxy keeps `drain.timeout_ms` itself."""
        drain = asyncio.ensure_future(self._proxy.drain())
        hurry = asyncio.ensure_future(stop.at_once.wait())
        await asyncio.wait((drain, hurry), return_when=asyncio.FIRST_COMPLETED)
        for task in (drain, hurry):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _note_certificates(self) -> None:
        """Reads until when the certificates hold, for their metric."""
        self._metrics.certificate_expiry.clear()
        for side, tls in (("downstream", self.config.listen.tls), ("upstream", self.config.upstream.tls)):
            if tls is not None and tls.certificate is not None:
                with suppress(OSError, ValueError):
                    expiry = read_certificates(tls.certificate)[0].not_after
                    self._metrics.certificate_expiry[side] = expiry.timestamp()


def explain_os_error(error: OSError) -> str:
    """The operating system's words, without Python's number and tuple around them."""
    return (error.strerror or str(error)) + (f": {error.filename}" if error.filename else "")


def watched_files(config: Config, file: Path | None) -> list[Path]:
    """The files a running proxy reads again when they change: the configuration and all certificates and keys."""
    values = [value_of(config, key) for key, option in options().items() if option.type == "file"]
    return [path for path in (file, *values) if path is not None]  # type: ignore[misc]


async def run_alone(loaded: Loaded, load_again: Callable[[], Loaded], file: Path | None) -> int:
    """Runs the only proxy process; reloads on SIGHUP and when a file changes.

    Args:
        loaded: The configuration to start with.
        load_again: Reads it anew.
        file: The configuration file, watched together with certificates and keys.

    Returns:
        An exit code.
    """
    configure_logging(loaded.config.log)
    log_warnings(loaded)
    service, stop, tasks = Service(loaded.config), Stop(), Tasks()
    stop.on_signals()

    async def reload() -> None:
        try:
            again = load_again()
        except ConfigError as error:
            service.refuse_reload([str(problem) for problem in error.problems])
        else:
            log_warnings(again)
            await service.reload(again.config)

    def hang_up() -> None:
        tasks.start(reload(), name="reload on SIGHUP")

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up)
    tasks.start(watch_files(lambda: watched_files(service.config, file), reload), name="watch files")
    try:
        return await service.run(stop)
    finally:
        await tasks.stop()


def log_warnings(loaded: Loaded) -> None:
    """Logs what an operator should know about a configuration that is usable."""
    for warning in loaded.warnings:
        log.warning("configuration", problem=str(warning))


def fail_plainly(problems: list[str]) -> None:
    """Writes mistakes to standard error before logging is set up, one line each."""
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
