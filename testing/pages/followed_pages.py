"""Follows pages on a network of their own: types their commands, one after the other, as a reader would.

`python -m kordon.testing.pages.followed_pages PAGE…` makes namespaces for users, networks, mounts and processes, which
needs no root. In them are two hosts with a cable between them. One has brokers at the addresses that the pages print.
On the other one a shell runs the commands of a page, with `kordon` and Kafka's tools on its path. So a page may use
whatever port and name it likes. Each page finds a cluster without topics. It prints a line of JSON for each page.

Kordons have leases of seconds (`short_leases.py`), as pages kill some.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import yaml

from kordon.testing import forked_commands
from kordon.testing.cluster import Cluster
from kordon.testing.emptied import emptied
from kordon.testing.folders import make_folder, remove_folder
from kordon.testing.jars import DEFAULT, PROJECT
from kordon.testing.java_process import DIES_WITH_PARENT
from kordon.testing.kafka_tools import TOOLS, tool_command
from kordon.testing.pages import compose_stand_in
from kordon.testing.pages.page_commands import FIRST, ON_A_NETWORK, Block, Step, blocks, is_shown, steps
from kordon.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

IN_NAMESPACES: Final = (
    *("unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
)
BROKERS_HOST: Final = "10.77.0.1"
READERS_HOST: Final = "10.77.0.2"
_HOSTS: Final = {
    "127.0.0.1": ["localhost"],
    BROKERS_HOST: ["broker-1", "broker-2", "kafka"],
    READERS_HOST: ["kordon", "kordon.example.com", "kafka.example.com"],
    "10.77.0.3": ["proxy-1", "proxies"],
    "10.77.0.4": ["proxy-2", "proxies"],
}
_DEATH: Final = re.compile(r"^.*/command: line \d+: +\d+ Killed .*\n", re.MULTILINE)
"""The shell's own word on what was killed."""
_SIDES: Final = 2
_SOCKET: Final = "kordon.socket"
_SECONDS: Final = 300.0
"""For a page."""
_STEP_SECONDS: Final = 60.0
_READY_SECONDS: Final = 30.0
_MODULE: Final = "kordon.testing.pages.followed_pages"
_INSIDE: Final = "--inside"


class StepFailed(AssertionError):  # noqa: N818 - says what happened
    """A command of a page failed, or said something else than the page shows."""


class Followed(NamedTuple):
    """What became of a page."""

    page: str
    commands: int
    problem: str | None


def refusal() -> str | None:
    """Returns why such namespaces cannot be had on this machine, None if they can."""
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} missing (Debian: util-linux, iproute2)"
    cable = ("ip", "link", "add", "name", "veth-here", "type", "veth", "peer", "name", "veth-there")
    tried = subprocess.run([*IN_NAMESPACES, *cable], capture_output=True, text=True, timeout=30, check=False)
    cure = "Ubuntu: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    return f"the kernel refuses namespaces: {tried.stderr.strip()} ({cure})" if tried.returncode else None


def follow(pages: Sequence[Path]) -> list[Followed]:
    """Follows pages, on some networks side by side, as much of the time is waiting.

    Raises:
        OSError: A network or its brokers could not be started, or a page took too long.
    """
    # what lasts longest begins first, and whichever network is free takes the next one
    longest_first = sorted(pages, key=lambda page: page.read_text().count("\n$ "), reverse=True)
    left, sides = iter(longest_first), min(len(pages), _SIDES)
    with ThreadPoolExecutor(sides) as threads:
        return [each for side in threads.map(_follow_next, [left] * sides) for each in side]


def _follow_next(left: Iterator[Path]) -> list[Followed]:
    """Follows pages on a network of its own as long as there are any."""
    command = [*DIES_WITH_PARENT, *IN_NAMESPACES, sys.executable, "-m", _MODULE, _INSIDE]
    followed: list[Followed] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as side:
        if side.stdin is None or side.stdout is None:
            raise OSError("a network cannot be told what to follow")
        for page in left:
            side.stdin.write(f"{page}\n")
            if not select.select([side.stdout], [], [], _SECONDS)[0] or not (line := side.stdout.readline()):
                side.kill()
                raise OSError(f"{page.name} was not followed to its end")
            followed.append(Followed(**json.loads(line)))
        side.stdin.close()
    if side.returncode:
        raise OSError(f"a network ended with exit code {side.returncode}")
    return followed


def is_on_a_network(page: str) -> bool:
    """Says whether a page has commands that need brokers."""
    return any(block.mark == ON_A_NETWORK for block in blocks(page))


@contextmanager
def _network() -> Generator[Sequence[str]]:
    """Connects this host with another one, and gives both names; yields what runs a command on the other."""
    folder = make_folder("kordon-pages-")
    hosts = folder / "hosts"
    hosts.write_text("".join(f"{address} {' '.join(names)}\n" for address, names in _HOSTS.items()))
    _run("mount", "--bind", str(hosts), "/etc/hosts")
    command = [*DIES_WITH_PARENT, "unshare", "--net", "sh", "-c", "echo begun; exec sleep infinity"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        if other.stdout is None or not other.stdout.readline():
            raise OSError("no second network")
        there = ["nsenter", f"--net=/proc/{other.pid}/ns/net"]
        peer = ("peer", "name", "veth-there", "netns", str(other.pid))
        _run("ip", "link", "add", "name", "veth-here", "type", "veth", *peer)
        for prefix, device in ((), "veth-here"), (there, "veth-there"):
            for address in _HOSTS:
                if not address.startswith("127.") and (address == BROKERS_HOST) == (device == "veth-here"):
                    _run(*prefix, "ip", "address", "add", f"{address}/24", "dev", device)
            for each in ("lo", device):
                _run(*prefix, "ip", "link", "set", each, "up")
        yield there
        other.kill()
    remove_folder(folder)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=30)


class _Shell:
    """A reader's shell in a folder of its own, with the tools of pages on its path."""

    def __init__(self, prefix: Sequence[str], tools: Path) -> None:
        self.folder = make_folder("kordon-page-")
        (self.folder / "deploy").symlink_to(PROJECT / "deploy")
        self._count, self._code = 0, "0"
        self._told, told = os.pipe()
        given = {name: value for name, value in os.environ.items() if not name.startswith("KORDON_")}
        given["PATH"] = f"{tools}:{Path(sys.executable).parent}:{given['PATH']}"
        command = [*DIES_WITH_PARENT, *prefix, "bash"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.folder, env=given, pass_fds=[told]
        )
        self._end = f"; echo $? >&{told}\n"
        os.close(told)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._say("[ -e $(dirname $(command -v docker))/compose ] && docker compose down; kill $(jobs -p); wait")
        self._process.kill()
        self._process.wait()
        os.close(self._told)
        remove_folder(self.folder)

    def type(self, step: Step) -> None:
        """Runs a command to its end; raises StepFailed."""
        self._count += 1
        own = self.folder / f".step-{self._count}"
        own.mkdir()
        (own / "command").write_text(f"{step.command}\n")
        (own / "in").write_text(step.answers)
        self._code = self._say(f"(exit {self._code}); source {own}/command < {own}/in > {own}/out 2>&1")
        if re.search(r"\bkordon run\b.*&", step.command):
            self._wait_ready(step.command, own / "out")
        output = _DEATH.sub("", (own / "out").read_text(errors="replace"))
        if self._code != "0" and not step.may_fail:
            raise StepFailed(f"$ {step.command}\nexit code {self._code}\n{output}")
        if step.shown and not is_shown(step.shown, output):
            raise StepFailed(f"$ {step.command}\n{output}\nThe page shows:\n{step.shown}")

    def _wait_ready(self, command: str, log: Path) -> None:
        """Waits until the Kordon that a command began can serve clients, as a reader looks for it."""
        host, _, port = self._admin_of(command).partition(":")
        ask = f"exec 3<>/dev/tcp/{host}/{port} && printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3"
        ask += " && head -1 <&3 | grep -q ' 200 '"
        deadline = time.monotonic() + _READY_SECONDS
        while self._say(f"{{ {ask}; }} 2>/dev/null") != "0":
            if time.monotonic() > deadline:
                raise StepFailed(f"$ {command}\nis not ready:\n{log.read_text(errors='replace')}")
            time.sleep(0.1)

    def _admin_of(self, command: str) -> str:
        """Returns the admin address of the Kordon that a command starts: by its flag, or by its configuration."""
        if flag := re.search(r"--admin (\S+)", command):
            return flag[1]
        file = re.search(r"--config (\S+)", command)
        if file is None:
            raise StepFailed(f"$ {command}\nnames no admin address")
        return str(yaml.safe_load((self.folder / file[1]).read_text())["admin"]["address"])

    def _say(self, line: str) -> str:
        if self._process.stdin is None:
            raise StepFailed("the shell takes no commands")
        self._process.stdin.write(f"{line}{self._end}".encode())
        self._process.stdin.flush()
        if not select.select([self._told], [], [], _STEP_SECONDS)[0]:
            raise StepFailed(f"{line}: not done after {_STEP_SECONDS} s")
        return os.read(self._told, 64).decode().strip()


@contextmanager
def _kordon_command(prefix: Sequence[str], folder: Path) -> Generator[list[str]]:
    """Yields the command line of a `kordon` that begins quickly, once the socket in the folder is there."""
    place = folder / _SOCKET
    command = [*DIES_WITH_PARENT, *prefix, sys.executable, "-m", forked_commands.PROGRAM, str(place)]
    given = {name: value for name, value in os.environ.items() if not name.startswith("KORDON_")}
    with subprocess.Popen(command, env=given) as server:
        yield [sys.executable, "-IS", str(forked_commands.CLIENT), str(place)]
        server.kill()


def _make_tools(folder: Path, kordon: list[str]) -> None:
    """Writes Kafka's scripts and `kordon` into a folder; pages show the options of the newest tools."""
    commands = {"kordon": kordon}
    commands["docker"] = [sys.executable, "-m", compose_stand_in.__name__, str(folder / "compose")]
    for name in TOOLS:
        try:
            commands[f"{name}.sh"] = tool_command(name, DEFAULT, folder)
        except LookupError:
            continue
    for name, command in commands.items():
        words = " ".join(f"'{word}'" for word in command)
        (folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (folder / name).chmod(0o755)


def _follow(page: Path, shell: _Shell) -> Followed:
    count = 0
    try:
        for block in blocks(page.read_text()):
            count += _run_block(block, shell)
    except StepFailed as failed:
        return Followed(page.name, count, str(failed))
    return Followed(page.name, count, None)


def _run_block(block: Block, shell: _Shell) -> int:
    """Does what a block says; returns how many commands a reader types."""
    if block.mark.startswith("file: "):
        (shell.folder / block.mark.removeprefix("file: ")).write_text(block.text)
    elif block.mark in {"run", ON_A_NETWORK, FIRST}:
        typed = list(steps(block.text))
        for step in typed:
            shell.type(step)
        return len(typed) if block.mark != FIRST else 0
    return 0


def _inside() -> None:
    """Follows the pages that standard input names."""
    with ExitStack() as stack:
        there = stack.enter_context(_network())
        tools = make_folder("kordon-tools-")
        stack.callback(remove_folder, tools)
        _make_tools(tools, stack.enter_context(_kordon_command(there, tools)))
        brokers = Cluster.start(config={"authorizer.class.name": ""}, known_as=("broker-1", 9092))
        cluster = stack.enter_context(brokers)
        wait_until("commands can be forked", (tools / _SOCKET).exists)
        for line in sys.stdin:
            page, began = Path(line.rstrip("\n")), time.monotonic()
            emptied(cluster)
            with _Shell(there, tools) as shell:
                followed = _follow(page, shell)
            print(f"{page.name}: {time.monotonic() - began:.1f} s", file=sys.stderr)
            print(json.dumps(followed._asdict()), flush=True)


def main() -> None:
    """Follows pages, and says what failed."""
    if sys.argv[1:2] == [_INSIDE]:
        _inside()
        return
    for each in follow([Path(each).absolute() for each in sys.argv[1:]]):
        print(f"{each.page}: {each.commands} commands; {each.problem or 'all is as it says'}")


if __name__ == "__main__":
    main()
