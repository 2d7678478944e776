"""One proxy process from start to end: proxy, admin pages, signals, reloads, and a stop that loses no answer."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from kordon.proxy.config.certificates import read_certificates
from kordon.proxy.config.config import Config
from kordon.proxy.config.config_options import differences
from kordon.proxy.config.config_source import dotted
from kordon.proxy.process.admin import AdminServer
from kordon.proxy.process.exit_codes import EXIT_FAILED, EXIT_OK
from kordon.proxy.process.explain import NOT_ENABLED, Facts
from kordon.proxy.process.lifecycle import (
    Stop,
    explain_os_error,
    log_warnings,
    naming,
    raise_file_limit,
    reloading,
    watched_files,
)
from kordon.proxy.process.server import Proxy
from kordon.proxy.runtime.logs import configure_logging
from kordon.proxy.runtime.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kordon.proxy.config.config_load import Loaded

CONFIG_LINE_BYTES: Final = 16 * 2**20

log = structlog.get_logger(__name__)


class ProxyService:
    """A proxy with everything around it; it is what its admin pages show.

    Args:
        worker: The worker's number if there are several; None: it is the only process.
    """

    def __init__(self, config: Config, worker: int | None = None) -> None:
        self.config = config
        self._worker = worker
        self._proxy = Proxy(config, worker or 0)
        self._metrics = self._proxy.metrics
        # a worker's supervisor asks for all of its pages, and decides itself what of them is shown
        self._admin = AdminServer(self, probes_alone=worker is None and config.admin.pages == "probes")
        self._note_certificates()

    async def unready(self) -> list[str]:
        """The reasons why clients cannot be served now; empty: they can."""
        return self._proxy.unready()

    async def notes(self) -> list[str]:
        """Faults for which clients need not go elsewhere."""
        return self._proxy.notes()

    async def metrics(self) -> bytes:
        """The page that Prometheus gets."""
        return self._metrics.render()

    async def status(self) -> Facts:
        """The object of /status."""
        pages = self._proxy.pages
        ordering = pages.sum() if pages is not None else {"enabled": False}
        return {**self._proxy.status(), "ordering": ordering, "pid": os.getpid()}

    async def topics(self) -> Facts:
        """The object of /topics."""
        return self._proxy.pages.all() if self._proxy.pages is not None else NOT_ENABLED

    async def topic(self, name: str) -> Facts | None:
        """The object of /topics/NAME; None: no such topic is managed."""
        return self._proxy.pages.topic(name) if self._proxy.pages is not None else None

    async def run(self, stop: Stop, admin_socket: Path | None = None) -> int:
        """Serves until asked to stop.

        Args:
            admin_socket: The Unix socket on which a worker serves its pages; None: they are on `admin.address`.

        Returns:
            An exit code; what went wrong has been logged.
        """
        raise_file_limit(self.config.limits.connections)
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
            log.warning(
                "restart_needed",
                options=sorted(fixed),
                cure="restart Kordon; until then these options keep their old values",
            )

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
            with naming(f"admin.address {address}"):
                await self._admin.listen(address)
        with naming(f"listen.address {self.config.listen.address}"):
            await self._proxy.start()
        gc.collect()
        gc.freeze()  # what is there after the start stays forever; the collector need not look at it again

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


async def run_alone(loaded: Loaded, load_again: Callable[[], Loaded], file: Path | None) -> int:
    """Runs the only proxy process; reloads on SIGHUP and when a file changes.

    Args:
        file: The configuration file, watched together with certificates and keys.

    Returns:
        An exit code.
    """
    configure_logging(loaded.config.log)
    log_warnings(loaded)
    service, stop = ProxyService(loaded.config), Stop()
    stop.on_signals()

    async def take(again: Loaded) -> None:
        await service.reload(again.config)

    def files() -> list[Path]:
        return watched_files(service.config, file)

    async with reloading(loaded, load_again, files, take, service.refuse_reload):
        return await service.run(stop)


async def run_worker(number: int, admin_socket: Path) -> int:
    """Runs one of several workers; its configuration comes from its supervisor, on standard input.

    Args:
        number: The worker's number, from 0.
        admin_socket: The Unix socket on which to serve the admin pages.

    Returns:
        An exit code.
    """
    configs = asyncio.StreamReader(limit=CONFIG_LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(configs), sys.stdin)
    first = await configs.readline()
    if not first:
        return EXIT_OK  # the supervisor was gone before there was anything to do
    config = Config.model_validate(json.loads(first))
    configure_logging(config.log, worker=number)
    service, stop, tasks = ProxyService(config, number), Stop(), Tasks()
    stop.on_signals()
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # reloading is the supervisor's work

    async def take_configs() -> None:
        while line := await configs.readline():
            await service.reload(Config.model_validate(json.loads(line)))
        if not stop.asked.is_set():
            stop.ask("the supervisor is gone")

    tasks.keep(take_configs, name="take configurations")
    try:
        return await service.run(stop, admin_socket)
    finally:
        await tasks.stop()
