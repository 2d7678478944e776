"""A forked `kordon` is to its shell what the usual one is."""

import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

import kordon
from kordon.testing import forked_commands
from kordon.testing.java_process import DIES_WITH_PARENT
from kordon.testing.ports import free_ports
from kordon.testing.waiting import wait_until


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Generator[list[str]]:
    """How it is started."""
    place = tmp_path_factory.mktemp("forked") / "socket"
    with subprocess.Popen([*DIES_WITH_PARENT, sys.executable, "-m", forked_commands.PROGRAM, str(place)]) as server:
        wait_until("commands can be forked", place.exists)
        yield [sys.executable, "-IS", str(forked_commands.CLIENT), str(place)]
        server.kill()


def test_what_it_says_and_its_exit_code_are_the_same(command: Sequence[str], tmp_path: Path) -> None:
    """On either output, from the folder in which it was typed."""
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert (done.stdout.strip().split()[-1], done.stderr) == (kordon.__version__, "")
    (tmp_path / "wrong.yaml").write_text("upstream: 5")
    done = subprocess.run([*command, "check", "wrong.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, "wrong.yaml:1:11: upstream: " in done.stderr) == (2, "", True), done


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_it_ends_by_the_signal_that_its_shell_sends(
    command: Sequence[str], number: signal.Signals, code: int, tmp_path: Path
) -> None:
    """In order, or at once: nobody listens any more."""
    port = free_ports(2)
    admin, listen = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"
    arguments = ["run", "--bootstrap", "127.0.0.1:1", "--listen", listen, "--admin", admin]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen([*command, *arguments], stdout=log, stderr=log) as one:
        wait_until("it runs", lambda: listens(admin))
        one.send_signal(number)
        assert one.wait(60) == code
    wait_until("it has ended", lambda: not listens(admin))


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as tried:
        return tried.connect_ex((host, int(port))) == 0
