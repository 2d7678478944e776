"""Stands for `docker compose` while pages are followed: runs the services of deploy/compose.yaml on this host.

Kordons and the load run with the environment and command that stand there. Each has the name of its service as its
address, as it has in Docker's network. The broker is there already; Prometheus and Grafana are left out.

    docker compose up … | exec [-T] SERVICE COMMAND … | kill SERVICE | logs SERVICE --tail 1 | down …
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import yaml

from kordon.testing import short_leases
from kordon.testing.jars import PROJECT
from kordon.testing.waiting import wait_until

_IMAGE: Final = "kordon:latest"
_DEPLOY: Final = PROJECT / "deploy"
_WAIT_SECONDS: Final = 40


class Stack:
    """The services that run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        """With a log and a process id for each."""
        folder.mkdir(exist_ok=True)
        self._services: dict[str, Any] = yaml.safe_load((_DEPLOY / "compose.yaml").read_text())["services"]

    def up(self) -> None:
        """Starts what the profiles in COMPOSE_PROFILES name, and waits until it is healthy."""
        asked = os.environ.get("COMPOSE_PROFILES", "").split(",")
        ours = {name: one for name, one in self._services.items() if one["image"] == _IMAGE}
        wanted = [name for name, one in ours.items() if set(one.get("profiles", asked)) & set(asked)]
        proxies = [name for name in wanted if "entrypoint" not in ours[name]]
        for name in proxies:
            self._start(name, [sys.executable, "-m", short_leases.PROGRAM, "run"])
        wait_until("they are healthy", lambda: all(_is_ready(name) for name in proxies), _WAIT_SECONDS)
        for name in set(wanted) - set(proxies):
            self._start(name, [sys.executable, *ours[name]["entrypoint"][1:], *ours[name]["command"]])

    def _start(self, name: str, command: Sequence[str]) -> None:
        with (self._folder / f"{name}.log").open("wb") as output:
            process = subprocess.Popen(
                command, env=self.environment(name), stdout=output, stderr=output, start_new_session=True
            )
        (self._folder / f"{name}.pid").write_text(str(process.pid))

    def environment(self, name: str) -> dict[str, str]:
        """Returns the variables in a service's container."""
        given = {key: str(value) for key, value in self._services[name].get("environment", {}).items()}
        given |= {"KORDON_CONFIG": str(_DEPLOY / "kordon.yaml"), "KORDON_ADMIN__ADDRESS": f"{name}:8080"}
        given["KORDON_LISTEN__ADDRESS"] = f"{name}:9092"
        if given.get("KORDON_LISTEN__ADVERTISE", "").startswith("$"):
            given["KORDON_LISTEN__ADVERTISE"] = name
        return {**os.environ, **given}

    def execute(self, name: str, command: Sequence[str]) -> int:
        """Runs a command as in a service's container, where Kafka's tools have a folder of their own."""
        program = command[0].removeprefix("/opt/kafka/bin/")
        return subprocess.run([program, *command[1:]], env=self.environment(name), check=False).returncode

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Ends a service, and waits for its end."""
        file = self._folder / f"{name}.pid"
        pid = int(file.read_text())
        file.unlink()
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        wait_until(f"{name} has ended", lambda: not _runs(pid), _WAIT_SECONDS)

    def logs(self, name: str) -> None:
        """Prints the last line that a service has written, and waits for the first."""
        log = self._folder / f"{name}.log"
        wait_until("there is a line", lambda: bool(log.read_text()), _WAIT_SECONDS)
        sys.stdout.write(f"{name}-1  | {log.read_text().splitlines()[-1]}\n")

    def down(self) -> None:
        """Ends all services in order."""
        for each in sorted(self._folder.glob("*.pid")):
            self.kill(each.stem, signal.SIGTERM)


def _is_ready(name: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://{name}:8080/readyz", timeout=5):
        return True
    return False


def _runs(pid: int) -> bool:
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    return False


def main() -> int:
    stack = Stack(Path(sys.argv[1]))
    command, *words = [word for word in sys.argv[3:] if word != "-T"]
    if command == "exec":
        return stack.execute(words[0], words[1:])
    if command == "up":
        stack.up()
    elif command == "kill":
        stack.kill(words[0])
    elif command == "logs":
        stack.logs(words[0])
    elif command == "down":
        stack.down()
    else:
        sys.stderr.write(f"no docker compose {command} here\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
