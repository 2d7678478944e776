"""A real `kordon run` on its bad days: no cluster, no port, no certificate, changed files, and its signals."""

import http.client
import json
import os
import queue
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import psutil
import pytest
import trustme

from kordon.testing.ports import free_ports

pytestmark = pytest.mark.slow

SECONDS = 90.0


class Run:
    """A `kordon run` process whose log is read as it comes."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kordon.proxy", "run", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "KORDON_LOG__FORMAT": "json", **environment},
        )
        self.heard: list[dict[str, Any]] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, event: str, **facts: object) -> dict[str, Any]:
        """The next line of an event with these facts; fails with the log when it does not come."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                text = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                text = None
            assert text is not None, f"{event} did not come; the log is {self.heard}"
            line: dict[str, Any] = json.loads(text)
            self.heard.append(line)
            if line["event"] == event and facts.items() <= line.items():
                return line

    def end(self) -> int:
        """The exit code, after all of the log has been heard."""
        code = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        while (text := self._lines.get_nowait()) is not None:
            self.heard.append(json.loads(text))
        return code

    def events(self) -> list[str]:
        return [line["event"] for line in self.heard]


def page(address: str, path: str) -> tuple[int, Any]:
    """Status and JSON of an admin page."""
    connection = http.client.HTTPConnection(address, timeout=SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.fixture
def addresses() -> tuple[str, str, str]:
    """A bootstrap address where nobody is, and free ones to listen on and for the admin pages."""
    first = free_ports(3)
    return f"127.0.0.1:{first}", f"127.0.0.1:{first + 1}", f"127.0.0.1:{first + 2}"


@pytest.fixture
def flags(addresses: tuple[str, str, str]) -> list[str]:
    """The flags of a run without a cluster."""
    bootstrap, listen, admin = addresses
    return ["--bootstrap", bootstrap, "--listen", listen, "--admin", admin]


def test_cluster_that_is_not_there_is_waited_for(flags: list[str], addresses: tuple[str, str, str]) -> None:
    """The process lives, is not ready and says why, in the log once; SIGTERM ends it with 0."""
    with Run(*flags) as run:
        unreachable = run.wait_for("cluster_unreachable")
        assert addresses[0] in unreachable["error"]
        run.wait_for("proxy_started")
        assert page(addresses[2], "/livez") == (200, {"live": True})
        status, body = page(addresses[2], "/readyz")
        assert (status, body["ready"]) == (503, False)
        assert addresses[0] in body["reasons"][0]
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 0
    assert run.events().count("cluster_unreachable") == 1
    assert run.events()[-3:] == ["stopping", "draining", "stopped"]


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("option", ["listen", "admin"])
def test_port_in_use_is_one_line(flags: list[str], addresses: tuple[str, str, str], option: str, workers: str) -> None:
    """A port that is taken ends the start with 1 and a line that names the option and the address."""
    taken = addresses[1 if option == "listen" else 2]
    with socket.create_server(("127.0.0.1", int(taken.split(":")[1]))), Run(*flags, "--workers", workers) as run:
        assert run.end() == 1
    (line,) = [line for line in run.heard if line["level"] == "error"]
    assert line["event"] == "cannot_start"
    assert f"{option}.address {taken}: " in line["error"]
    assert "in use" in line["error"]


def replace(file: Path, text: str) -> None:
    """Changes a file as a whole: one that is being written may be read while it is still empty, and that is valid."""
    written = file.with_suffix(".new")
    written.write_text(text)
    written.replace(file)


def test_file_that_changes_is_reloaded(tmp_path: Path, flags: list[str]) -> None:
    """What can be taken over is, what cannot is named, and a mistake leaves everything as it was."""
    file = tmp_path / "k.yaml"
    file.write_text("limits: {idle_ms: 5000}\n")
    with Run(*flags, "--config", str(file)) as run:
        run.wait_for("proxy_started")
        replace(file, "limits: {idle_ms: 60000}\ndrain: {spread_ms: 1}\n")
        assert set(run.wait_for("reloaded")["changed"]) == {"limits.idle_ms", "drain.spread_ms"}
        replace(file, "limits: {idle_ms: soon}\n")
        refused = run.wait_for("reload_refused")
        assert refused["problem"].startswith(f"{file}:1:19: limits.idle_ms: must be a whole number")
        replace(file, "listen: {base_port: 19999}\nlog: {level: debug}\n")
        assert run.wait_for("restart_needed")["options"] == ["listen.base_port"]


def test_hang_up_reloads(flags: list[str], addresses: tuple[str, str, str]) -> None:
    """SIGHUP reads everything again, and the process goes on."""
    with Run(*flags) as run:
        run.wait_for("proxy_started")
        run.process.send_signal(signal.SIGHUP)
        run.wait_for("reloaded", changed=[])
        assert page(addresses[2], "/livez")[0] == 200


def test_certificate_that_is_replaced_is_shown_to_new_clients(tmp_path: Path, flags: list[str]) -> None:
    """A renewed pair of files takes effect without a restart, and its metric follows."""
    authority = trustme.CA()

    def renew() -> None:
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(str(tmp_path / "k.key"))
        issued.cert_chain_pems[0].write_to_path(str(tmp_path / "k.pem"))

    def serial() -> bytes:
        return ssl_certificate(flags[3])

    renew()
    tls = {
        "KORDON_LISTEN__TLS__CERTIFICATE": str(tmp_path / "k.pem"),
        "KORDON_LISTEN__TLS__KEY": str(tmp_path / "k.key"),
    }
    with Run(*flags, **tls) as run:
        run.wait_for("proxy_started")
        first = serial()
        assert serial() == first
        renew()
        run.wait_for("reloaded")
        assert serial() != first
        (tmp_path / "k.pem").write_text("damaged")
        assert "holds no PEM certificate" in run.wait_for("reload_refused")["problem"]


def ssl_certificate(address: str) -> bytes:
    """The certificate that is shown at an address, as DER."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), SECONDS) as plain, context.wrap_socket(plain) as secured:
        return secured.getpeercert(binary_form=True) or b""


@pytest.fixture
def descendants() -> Iterator[Callable[[Run], list[psutil.Process]]]:
    """Finds the worker processes of a run, and makes sure that none outlives its test."""
    found: list[psutil.Process] = []

    def find(run: Run) -> list[psutil.Process]:
        found[:] = psutil.Process(run.process.pid).children()
        return list(found)

    yield find
    for process in found:
        if process.is_running():
            process.kill()


def test_workers_serve_and_stop_together(
    flags: list[str], addresses: tuple[str, str, str], descendants: Callable[[Run], list[psutil.Process]]
) -> None:
    """Two real workers share the port; the supervisor's page shows both; SIGTERM ends all with 0."""
    with Run(*flags, "--workers", "2") as run:
        for _ in range(2):
            run.wait_for("proxy_started")
        rows = page(addresses[2], "/status")[1]["workers"]
        children = descendants(run)
        assert sorted(row["pid"] for row in rows) == sorted(child.pid for child in children)
        assert [row["state"] for row in rows] == ["running", "running"]
        run.process.send_signal(signal.SIGHUP)
        assert {run.wait_for("reloaded")["worker"] for _ in range(2)} == {0, 1}
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 0
        gone, left = psutil.wait_procs(children, SECONDS)
        assert (len(gone), left) == (2, [])


def test_workers_end_with_their_supervisor(
    flags: list[str], descendants: Callable[[Run], list[psutil.Process]]
) -> None:
    """Workers whose supervisor was killed without a word drain and end, instead of keeping the ports for ever."""
    with Run(*flags, "--workers", "2") as run:
        for _ in range(2):
            run.wait_for("proxy_started")
        children = descendants(run)
        run.process.kill()
        _, left = psutil.wait_procs(children, SECONDS)
        assert left == []
