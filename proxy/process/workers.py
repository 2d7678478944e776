"""Several workers on the same ports, and the supervisor that keeps them.

    supervisor ──stdin──> worker 0, 1, …    the configuration, one JSON line each time it changes
               ──SIGTERM─> workers          drain; once more: stop at once
               <──Unix socket── workers     their admin pages, which the supervisor serves merged

A worker is a whole proxy process; the kernel spreads connections over them (SO_REUSEPORT). A worker whose
supervisor has died sees the end of its standard input and drains. One that dies is started again, later each
time it does not live long.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import time
import urllib.parse
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from kordon.proxy.process.admin import TOPIC_PREFIX, AdminServer, fetch_page
from kordon.proxy.process.exit_codes import EXIT_FAILED, EXIT_OK
from kordon.proxy.process.lifecycle import Stop, explain_os_error, log_warnings, naming, reloading, watched_files
from kordon.proxy.process.merge import NO_WORKER, best_view, merge_metrics, merge_status
from kordon.proxy.runtime.logs import configure_logging
from kordon.proxy.runtime.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kordon.proxy.config.config_load import Loaded
    from kordon.proxy.config.host_port import HostPort
    from kordon.proxy.process.explain import Facts

FIRST_BACKOFF_SECONDS: Final = 0.5
LONGEST_BACKOFF_SECONDS: Final = 30.0
LONG_LIFE_SECONDS: Final = 60.0
"""A worker that lived so long did not die of its configuration; it is started again at once."""
KILL_GRACE_SECONDS: Final = 10.0
"""Beyond drain.timeout_ms, before a worker that does not end is killed."""

log = structlog.get_logger(__name__)


def worker_command(number: int, admin_socket: Path) -> list[str]:
    """The command line of a worker."""
    return [sys.executable, "-m", "kordon.proxy", "worker", str(number), str(admin_socket)]


@dataclass(slots=True)
class WorkerProcess:
    """A worker as its supervisor knows it."""

    number: int
    admin_socket: Path
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0
    served: bool = False
    """Whether its admin pages have answered since it was started last."""


class Supervisor:
    """Keeps `workers` processes running; it is what its admin pages show.

    Args:
        loaded: The configuration for all of them.
        folder: The folder of the workers' admin sockets. Only this user may enter it.
        command: Makes the command line of a worker.
    """

    def __init__(
        self, loaded: Loaded, folder: Path, command: Callable[[int, Path], Sequence[str]] = worker_command
    ) -> None:
        self.loaded = loaded
        self.workers = [WorkerProcess(n, folder / f"worker-{n}.sock") for n in range(loaded.config.workers)]
        self._command = command
        self._tasks = Tasks()
        self._failed = asyncio.Event()
        self._stopping = False

    async def run(self, stop: Stop) -> int:
        """Runs the workers until asked to stop, or until none of them can start.

        Returns:
            An exit code; what went wrong has been logged.
        """
        admin = AdminServer(self, probes_alone=self.loaded.config.admin.pages == "probes")
        try:
            _check_port_is_free(self.loaded.config.listen.address)
            if (address := self.loaded.config.admin.address) is not None:
                with naming(f"admin.address {address}"):
                    await admin.listen(address)
        except OSError as error:
            log.error("cannot_start", error=explain_os_error(error))
            return EXIT_FAILED
        keepers = [
            self._tasks.keep(partial(self._keep, worker), name="keep a worker", of=str(worker.number))
            for worker in self.workers
        ]
        asked = self._tasks.start(stop.asked.wait(), name="wait for the wish to stop")
        failed = self._tasks.start(self._failed.wait(), name="wait for a start that fails")
        await asyncio.wait({asked, failed}, return_when=asyncio.FIRST_COMPLETED)
        await self._stop_workers(keepers, stop)
        await admin.close()
        await self._tasks.stop()
        log.info("stopped")
        return EXIT_FAILED if self._failed.is_set() else EXIT_OK

    async def reload(self, loaded: Loaded) -> None:
        """Hands a new configuration to every worker; each logs what it took over."""
        if loaded.config.workers != len(self.workers):
            log.warning(
                "restart_needed",
                options=["workers"],
                cure="restart Kordon; until then the number of workers stays as it is",
            )
        self.loaded = loaded
        for worker in self.workers:
            if worker.process is not None:
                await _send_config(worker.process, loaded)

    async def unready(self) -> list[str]:
        """The reasons why clients cannot be served, as living workers give them, or that there is none."""
        answers = await self._ask_all("/readyz")
        return _said(answers, "reasons") if answers else ["no worker is running"]

    async def notes(self) -> list[str]:
        """Faults for which clients need not go elsewhere."""
        return _said(await self._ask_all("/readyz"), "notes")

    async def metrics(self) -> bytes:
        """The metrics of all workers, told apart by the label `worker`."""
        restarts = {worker.number: worker.restarts for worker in self.workers}
        return merge_metrics(await self._ask_all("/metrics"), restarts)

    async def status(self) -> Facts:
        """The statuses of all workers in one: sums, and a row for each worker."""
        answers = {number: json.loads(body) for number, body in (await self._ask_all("/status")).items()}
        rows = [
            {
                "worker": worker.number,
                "pid": worker.process.pid if worker.process else None,
                "state": answers.get(worker.number, {}).get("state", "not running"),
                "connections": answers.get(worker.number, {}).get("connections", {}).get("open", 0),
                "restarts": worker.restarts,
            }
            for worker in self.workers
        ]
        return merge_status(list(answers.values())) | {"pid": os.getpid(), "workers": rows}

    async def topics(self) -> Facts:
        """The managed topics, from the worker that knows most."""
        pages = await self._ask_all("/topics")
        return best_view([json.loads(body) for body in pages.values()]) or NO_WORKER

    async def topic(self, name: str) -> Facts | None:
        """A managed topic, from the worker that knows most; None: no worker knows it."""
        pages = await self._ask_all(f"{TOPIC_PREFIX}{urllib.parse.quote(name, safe='')}")
        return best_view([json.loads(body) for body in pages.values()])

    async def _ask_all(self, path: str) -> dict[int, bytes]:
        """A page of every worker that answers, by its number."""
        answers = await asyncio.gather(*(fetch_page(worker.admin_socket, path) for worker in self.workers))
        pages = {worker.number: body for worker, body in zip(self.workers, answers, strict=True) if body}
        for number in pages:
            self.workers[number].served = True
        return pages

    async def _keep(self, worker: WorkerProcess) -> None:
        """Runs a worker, again and again, until the supervisor stops."""
        backoff = FIRST_BACKOFF_SECONDS
        while not self._stopping:
            began = time.monotonic()
            try:
                code = await self._run_once(worker)
            except OSError as error:  # no process to be had: out of memory, of processes, of descriptors
                log.error("worker_impossible", worker=worker.number, error=explain_os_error(error))
                code = EXIT_FAILED
            lived = time.monotonic() - began
            if self._stopping:
                return
            if code == EXIT_FAILED and not worker.served and not worker.restarts:
                log.error("worker_cannot_start", worker=worker.number, cure="see what this worker has logged before")
                self._failed.set()
                return
            backoff = FIRST_BACKOFF_SECONDS if lived > LONG_LIFE_SECONDS else backoff
            log.error("worker_died", worker=worker.number, exit_code=code, lived_seconds=round(lived, 3),
                      restart_in_seconds=backoff)  # fmt: skip
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, LONGEST_BACKOFF_SECONDS)
            worker.restarts += 1

    async def _run_once(self, worker: WorkerProcess) -> int:
        worker.admin_socket.unlink(missing_ok=True)
        worker.served = False
        process = await asyncio.create_subprocess_exec(
            *self._command(worker.number, worker.admin_socket),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,  # the terminal's Ctrl-C is for the supervisor, which passes it on once
        )
        worker.process = process
        log.info("worker_started", worker=worker.number, pid=process.pid)
        await _send_config(process, self.loaded)
        code = await process.wait()
        worker.process = None
        return code

    async def _stop_workers(self, keepers: list[asyncio.Task[None]], stop: Stop) -> None:
        self._stopping = True
        self._signal(signal.SIGTERM)
        ends = asyncio.gather(*(worker.process.wait() for worker in self.workers if worker.process))
        hurry = self._tasks.start(stop.at_once.wait(), name="wait for a second signal")
        patience = self.loaded.config.drain.timeout_ms / 1000 + KILL_GRACE_SECONDS
        either: set[asyncio.Future[list[int]] | asyncio.Task[bool]] = {ends, hurry}
        await asyncio.wait(either, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if not ends.done():
            self._signal(signal.SIGTERM)
            await asyncio.wait({ends}, timeout=KILL_GRACE_SECONDS)
        if not ends.done():
            log.warning("worker_killed", reason="it did not end in time")
            self._signal(signal.SIGKILL)
            await ends
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)

    def _signal(self, number: signal.Signals) -> None:
        for worker in self.workers:
            if worker.process is not None:
                with suppress(ProcessLookupError):
                    worker.process.send_signal(number)


async def _send_config(process: asyncio.subprocess.Process, loaded: Loaded) -> None:
    """Writes the configuration as one line: through a pipe, because command lines are for all to see."""
    assert process.stdin is not None
    line = json.dumps(loaded.values, default=str).encode() + b"\n"
    with suppress(ConnectionError):
        process.stdin.write(line)
        await process.stdin.drain()


def _said(answers: dict[int, bytes], what: str) -> list[str]:
    """Returns what workers say on /readyz."""
    return [f"worker {number}: {each}" for number, body in answers.items() for each in json.loads(body)[what]]


def _check_port_is_free(address: HostPort) -> None:
    """Workers share their ports, so they would share them with another Kordon as well, without a word.

    Raises:
        OSError: Another process already listens there.
    """
    family, kind, protocol, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with naming(f"listen.address {address}"):
            probe.bind(where)


async def run_workers(loaded: Loaded, load_again: Callable[[], Loaded], file: Path | None) -> int:
    """Runs a supervisor with its workers; reloads on SIGHUP and when a file changes.

    Args:
        file: The configuration file, watched together with certificates and keys.

    Returns:
        An exit code.
    """
    configure_logging(loaded.config.log)
    log_warnings(loaded)
    stop = Stop()
    stop.on_signals()
    with tempfile.TemporaryDirectory(prefix="kordon-", ignore_cleanup_errors=True) as folder:
        supervisor = Supervisor(loaded, Path(folder))

        def refuse(problems: list[str]) -> None:
            for problem in problems:
                log.error("reload_refused", problem=problem)

        def files() -> list[Path]:
            return watched_files(supervisor.loaded.config, file)

        async with reloading(loaded, load_again, files, supervisor.reload, refuse):
            return await supervisor.run(stop)
