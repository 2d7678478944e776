"""The supervisor keeps its workers: real processes, whose proxy is replaced by a few lines that answer pages."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kordon.proxy.config.config_load import Loaded, load
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.process import workers
from kordon.proxy.process.admin import fetch_page
from kordon.proxy.process.exit_codes import EXIT_FAILED, EXIT_OK
from kordon.proxy.process.lifecycle import Stop
from kordon.proxy.process.workers import Supervisor, WorkerProcess
from kordon.testing.ports import free_ports
from kordon.testing.waiting import until

WORKER = """
import asyncio, json, signal, sys
from pathlib import Path
from kordon.proxy.process.admin import AdminServer

class Fake:
    def __init__(self):
        self.configs = [json.loads(sys.stdin.readline())]
    async def unready(self):
        return ["it is young"] if number == 1 else []
    async def notes(self):
        return ["it is watched"] if number == 1 else []
    async def metrics(self):
        return b"# TYPE kordon_held_bytes gauge\\nkordon_held_bytes 5.0\\n"
    async def status(self):
        return {"version": "x", "started_at": "2026", "uptime_seconds": 1, "state": "running", "worker": number,
                "upstream": {"configs": self.configs}, "listeners": [], "connections": {"open": 2},
                "requests": {}, "bytes": {}, "limits": {}, "unready": [], "ordering": {"enabled": False}}
    async def topics(self):
        return {"enabled": True, "control": self.control(), "topics": [], "worker": number}
    async def topic(self, name):
        return {"topic": name, "control": self.control(), "worker": number} if name == "orders" and number else None
    def control(self):
        return {"procedures": [] if number else None, "serves": True, "layouts_position": 0}

async def serve():
    fake = Fake()
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    def more():
        line = sys.stdin.readline()
        fake.configs.append(json.loads(line)) if line else stop.set()
    loop.add_reader(sys.stdin, more)
    server = AdminServer(fake)
    await server.listen_unix(Path(sys.argv[2]))
    await stop.wait()

number = int(sys.argv[1])
asyncio.run(serve())
"""
"""Takes configurations as lines, answers the admin pages, ends on SIGTERM and at the end of its input."""


def a_configuration(**environment: str) -> Loaded:
    """Two workers on a free port, with a short patience."""
    given = {
        "KORDON_UPSTREAM__BOOTSTRAP": "127.0.0.1:1",
        "KORDON_LISTEN__ADDRESS": f"127.0.0.1:{free_ports(1)}",
        "KORDON_WORKERS": "2",
        "KORDON_DRAIN__TIMEOUT_MS": "1",
    }
    return load(None, given | environment)


def command(code: str) -> Callable[[int, Path], list[str]]:
    """Runs a few lines of Python in place of a worker."""
    return lambda number, admin_socket: [sys.executable, "-c", code, str(number), str(admin_socket)]


@asynccontextmanager
async def supervised(folder: Path, loaded: Loaded | None = None, code: str = WORKER) -> AsyncIterator[Supervisor]:
    """A supervisor whose workers answer; stopped at the end, with exit code 0 and no process left."""
    supervisor, stop = Supervisor(loaded or a_configuration(), folder, command(code)), Stop()
    running = asyncio.ensure_future(supervisor.run(stop))

    async def all_answer() -> bool:
        return all(worker["state"] == "running" for worker in (await supervisor.status())["workers"])

    try:
        await until("all answer", all_answer)
        yield supervisor
    finally:
        pids = [worker.process.pid for worker in supervisor.workers if worker.process]
        stop.ask("test")
        assert await asyncio.wait_for(running, 60) == EXIT_OK
        assert not [pid for pid in pids if alive(pid)]


def alive(pid: int) -> bool:
    """Whether a process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def process_of(worker: WorkerProcess) -> asyncio.subprocess.Process:
    assert worker.process is not None
    return worker.process


async def test_pages_of_all_workers_are_one(tmp_path: Path) -> None:
    """Sums, a row for each worker, a label in each series, and reasons that say whose they are."""
    async with supervised(tmp_path) as supervisor:
        status = await supervisor.status()
        assert status["connections"] == {"open": 4}
        assert [(row["worker"], row["connections"], row["restarts"]) for row in status["workers"]] == [
            (0, 2, 0),
            (1, 2, 0),
        ]
        page = await supervisor.metrics()
        assert b'kordon_held_bytes{worker="0"} 5.0' in page
        assert b'kordon_held_bytes{worker="1"} 5.0' in page
        assert await supervisor.unready() == ["worker 1: it is young"]
        assert await supervisor.notes() == ["worker 1: it is watched"]


async def test_worker_that_dies_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed, it comes back as another process with the same number and configuration; the other one stays."""
    monkeypatch.setattr(workers, "FIRST_BACKOFF_SECONDS", 0.01)
    async with supervised(tmp_path) as supervisor:
        first, other = supervisor.workers
        killed, kept = process_of(first).pid, process_of(other).pid
        os.kill(killed, signal.SIGKILL)

        async def row() -> dict[str, Any] | None:
            row: dict[str, Any] = (await supervisor.status())["workers"][0]
            return row if row["state"] == "running" and row["restarts"] else None

        back = await until("a row", row)
        assert (back["restarts"], back["pid"] != killed) == (1, True)
        assert process_of(other).pid == kept
        assert b'kordon_worker_restarts_total{worker="0"} 1.0' in await supervisor.metrics()


async def test_new_configuration_reaches_every_worker(tmp_path: Path) -> None:
    """A reload is one more line to each; a worker started later gets the newest only."""
    first = a_configuration()
    async with supervised(tmp_path, first) as supervisor:
        second = Loaded(first.config, (), {**first.values, "limits": {"idle_ms": 7}})
        await supervisor.reload(second)

        async def all_have_it() -> bool:
            pages = await asyncio.gather(*(fetch_page(w.admin_socket, "/status") for w in supervisor.workers))
            configs = [json.loads(page or b"{}").get("upstream", {}).get("configs") for page in pages]
            return configs == [[first.values, second.values]] * 2

        await until("all have it", all_have_it)


async def test_secrets_reach_workers_through_the_pipe_only(tmp_path: Path) -> None:
    """The password is in the configuration a worker reads, and not in what `ps` shows of it."""
    loaded = a_configuration(
        KORDON_UPSTREAM__SASL__MECHANISM="SCRAM-SHA-512",
        KORDON_UPSTREAM__SASL__USERNAME="kordon",
        KORDON_UPSTREAM__SASL__PASSWORD="hunter2",
    )
    async with supervised(tmp_path, loaded) as supervisor:
        page = await fetch_page(supervisor.workers[0].admin_socket, "/status") or b""
        assert json.loads(page)["upstream"]["configs"][0]["upstream"]["sasl"]["password"] == "hunter2"
    assert "hunter2" not in " ".join(workers.worker_command(0, tmp_path))


async def test_worker_that_cannot_start_ends_the_supervisor(tmp_path: Path) -> None:
    """When a worker says at its start that it cannot, starting it again would not help: exit code 1."""
    supervisor = Supervisor(a_configuration(), tmp_path, command("raise SystemExit(1)"))
    assert await asyncio.wait_for(supervisor.run(Stop()), 60) == EXIT_FAILED


async def test_worker_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker deaf to SIGTERM does not keep the supervisor from ending."""
    monkeypatch.setattr(workers, "KILL_GRACE_SECONDS", 0.2)
    deaf = WORKER.replace(
        "loop.add_signal_handler(signal.SIGTERM, stop.set)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    )
    async with supervised(tmp_path, code=deaf):
        pass


async def test_port_of_somebody_else_is_not_shared(tmp_path: Path) -> None:
    """Workers share ports among themselves; with another program they would split its connections unseen."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = HostPort("127.0.0.1", other.getsockname()[1])
        supervisor = Supervisor(a_configuration(KORDON_LISTEN__ADDRESS=str(address)), tmp_path, command(WORKER))
        assert await asyncio.wait_for(supervisor.run(Stop()), 60) == EXIT_FAILED
        assert all(worker.process is None for worker in supervisor.workers)


async def test_without_workers_nobody_is_ready(tmp_path: Path) -> None:
    """Before the first worker answers, the supervisor's pages answer, and say that there is none."""
    supervisor = Supervisor(a_configuration(), tmp_path)
    assert await supervisor.unready() == ["no worker is running"]
    assert (await supervisor.status())["state"] == "starting"


async def test_managed_topics_are_told_by_the_worker_that_knows_most(tmp_path: Path) -> None:
    """The supervisor shows the page of the worker that is the controller, and no page that none has."""
    async with supervised(tmp_path) as supervisor:
        assert (await supervisor.topics())["worker"] == 1
        assert (await supervisor.topic("orders") or {})["topic"] == "orders"
        assert await supervisor.topic("payments") is None


async def test_no_worker_tells_of_no_topic(tmp_path: Path) -> None:
    """Before any worker answers, the page of the topics is there and empty."""
    supervisor = Supervisor(a_configuration(), tmp_path, command("pass"))
    assert await supervisor.topics() == {"enabled": True, "control": None, "topics": []}
