"""The two small programs of the image: how its arguments are understood and how it is asked for its health."""

import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

IMAGE = Path(__file__).parents[2] / "deploy" / "image"


@pytest.fixture
def fake_kordon(tmp_path: Path) -> Path:
    """A folder with a `kordon` that only prints its own arguments and process id."""
    program = tmp_path / "kordon"
    program.write_text('#!/bin/sh\necho "$$ $*"\n')
    program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["--bootstrap", "a:9092"], "run --bootstrap a:9092"),
        ([], "run"),
        (["--help"], "run --help"),
        (["--version"], "--version"),
        (["run", "--bootstrap", "a:9092"], "run --bootstrap a:9092"),
        (["check", "/etc/kordon/kordon.yaml"], "check /etc/kordon/kordon.yaml"),
        (["status"], "status"),
        (["--advertise", "a name with spaces"], "run --advertise a name with spaces"),
    ],
)
def test_flags_alone_mean_run_and_words_are_commands(fake_kordon: Path, arguments: list[str], meant: str) -> None:
    """`docker run kordon --bootstrap …` runs the proxy; kordon replaces the shell, so signals reach it."""
    environment = os.environ | {"PATH": f"{fake_kordon}:{os.environ['PATH']}"}
    with subprocess.Popen(
        [IMAGE / "entrypoint.sh", *arguments], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        output, _ = process.communicate(timeout=60)
    assert output.strip() == f"{process.pid} {meant}".strip()


class _Admin(BaseHTTPRequestHandler):
    """Alive, but not ready: the difference between the two pages."""

    def do_GET(self) -> None:
        status, text = {"/livez": (200, "ok"), "/readyz": (503, "no broker reached")}[self.path]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name in the base class)
        """Keeps the requests out of the tests' output."""


@pytest.fixture
def admin() -> Iterator[HTTPServer]:
    """An admin server of a Kordon that is alive but not ready."""
    server = HTTPServer(("127.0.0.1", 0), _Admin)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def ask(address: str, *arguments: str) -> tuple[int, str]:
    """Runs the health check as the image does: its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, IMAGE / "healthcheck.py", *arguments],
        env=os.environ | {"KORDON_ADMIN__ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.strip()


def test_health_is_life_and_readiness_only_on_request(admin: HTTPServer) -> None:
    """Without brokers Kordon is healthy (no restart would help) but not ready, and says why."""
    address = f"0.0.0.0:{admin.server_port}"
    assert ask(address) == (0, "ok")
    assert ask(address, "/livez") == (0, "ok")
    assert ask(address, "/readyz") == (1, "no broker reached")


def test_nobody_at_the_admin_address_is_unhealthy(admin: HTTPServer) -> None:
    """A process that does not answer is unhealthy, with the reason and no traceback."""
    admin.server_close()
    code, said = ask(f"127.0.0.1:{admin.server_port}")
    assert (code, "refused" in said) == (1, True)
    code, said = ask("not-an-address")
    assert (code, said.startswith("not-an-address: ")) == (1, True)
