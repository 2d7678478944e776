"""The container image, really built and run in front of the embedded broker, with Docker or with buildah.

Without a Docker engine, buildah builds it on a base made of Debian's packages (debootstrap) and runs it in a
chroot. What a chroot cannot show, a read-only root and a process id of 1, is shown by its cause: that nothing is
written, and that kordon replaces the entry point's shell.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from kordon.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kordon.testing.cluster import Cluster

pytestmark = [pytest.mark.image, pytest.mark.beside, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "image"
TAG = "kordon:test"
MAX_IMAGE_MB = 250
STOP_SECONDS = 40
PORTS = 10
"""Admin, bootstrap, and brokers with node ids below 8."""


class Engine(Protocol):
    """What the tests ask of Docker or buildah."""

    name: str

    def config(self) -> dict[str, Any]:
        """The image's configuration, in Docker's words."""
        ...

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Starts a container with these arguments, as `docker run kordon ARGUMENTS` does."""
        ...

    def inside(self, *command: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Runs a command in the container; its exit code and output."""
        ...

    def stop(self, running: subprocess.Popen[str]) -> None:
        """Sends what `docker stop` sends to the container's first process, SIGTERM."""
        ...

    def files(self) -> dict[str, tuple[float, int]]:
        """What the container has written so far, by path."""
        ...

    def clean(self) -> None:
        """Removes the container."""
        ...


def flags(environment: Mapping[str, str] | None) -> list[str]:
    """Variables as Docker and buildah take them."""
    return [word for name, value in (environment or {}).items() for word in ("--env", f"{name}={value}")]


def captured(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


class Docker:
    """A Docker engine; the container's network is the host's, so that it reaches the embedded broker."""

    name = "docker"

    def __init__(self) -> None:
        self.container = f"kordon-test-{uuid.uuid4().hex[:8]}"

    def config(self) -> dict[str, Any]:
        """See `Engine`."""
        found = json.loads(captured(["docker", "image", "inspect", TAG]).stdout)[0]
        return {**found["Config"], "size": found["Size"]}

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """See `Engine`; with the restrictions that docs/deployment.md recommends."""
        locked = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        command = ["docker", "run", "--rm", "--name", self.container, "--network", "host", *locked]
        return started([*command, *flags(environment), TAG, *arguments])

    def inside(self, *command: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
        """See `Engine`."""
        done = captured(["docker", "exec", *flags(environment), self.container, *command])
        return done.returncode, done.stdout + done.stderr

    def stop(self, running: subprocess.Popen[str]) -> None:
        """See `Engine`."""
        captured(["docker", "kill", "--signal", "TERM", self.container])

    def files(self) -> dict[str, tuple[float, int]]:
        """See `Engine`: with a read-only root there is nothing to find."""
        return {}

    def clean(self) -> None:
        """See `Engine`."""
        captured(["docker", "rm", "--force", self.container])


class Buildah:
    """buildah with chroot isolation: no engine, no privileges, the host's network and processes."""

    name = "buildah"
    base = ("buildah", "--root", f"{CACHE}/storage", "--runroot", f"{CACHE}/run", "--storage-driver", "vfs")

    def __init__(self) -> None:
        self.container = "kordon-test"
        self.clean()  # what an interrupted run has left
        made = captured([*self.base, "from", "--name", self.container, TAG])
        assert made.returncode == 0, made.stderr
        self.tree = Path(captured([*self.base, "mount", self.container]).stdout.strip())
        # buildah writes /etc/hosts and the like at the first run; from then on, only Kordon could.
        assert self.inside("true") == (0, "")

    def config(self) -> dict[str, Any]:
        """See `Engine`."""
        found = json.loads(captured([*self.base, "inspect", "--type", "image", TAG]).stdout)
        size = sum(path.lstat().st_size for path in self.tree.rglob("*") if not path.is_dir())
        return {**found["Docker"]["config"], "size": size}

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """See `Engine`; `buildah run` leaves the entry point out, so it is put before the arguments."""
        command = [*self.config()["Entrypoint"], *arguments]
        return started([*self._run(environment), *command])

    def inside(self, *command: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
        """See `Engine`."""
        done = captured([*self._run(environment), *command])
        errors = [line for line in done.stderr.splitlines() if not line.startswith(("subprocess ", "Error: exit"))]
        return done.returncode, done.stdout + "\n".join(errors)

    def _run(self, environment: Mapping[str, str] | None) -> list[str]:
        isolated = ["run", "--isolation", "chroot", *flags(environment)]
        return [*self.base, *isolated, self.container, "--"]

    def stop(self, running: subprocess.Popen[str]) -> None:
        """See `Engine`: the first process of the container is the last of buildah's chain of children."""
        process = psutil.Process(running.pid)
        while children := process.children():
            process = children[0]
        words = process.cmdline()
        assert any(word.endswith("/kordon") for word in words), f"the entry point left {words} in between"
        process.send_signal(signal.SIGTERM)

    def files(self) -> dict[str, tuple[float, int]]:
        """See `Engine`."""
        return {
            str(path.relative_to(self.tree)): (path.lstat().st_mtime, path.lstat().st_size)
            for path in self.tree.rglob("*")
            if not path.is_dir()
        }

    def clean(self) -> None:
        """See `Engine`."""
        captured([*self.base, "umount", self.container])
        captured([*self.base, "rm", self.container])


def started(command: list[str]) -> subprocess.Popen[str]:
    """Starts a command whose output is kept for the test."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def choose_engine() -> str:
    """The engine that is here; skips, with the cure, where there is none."""
    if shutil.which("docker") and captured(["docker", "version"]).returncode == 0:
        return "docker"
    missing = [program for program in ("buildah", "debootstrap") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"no Docker engine answers, and {', '.join(missing)} is not here (Debian: apt install)")
    if os.geteuid() != 0:
        pytest.skip("no Docker engine answers, and debootstrap needs root to make a base image")
    return "buildah"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The image, built by the script that `make image` runs, and a container of it."""
    name = choose_engine()
    environment = os.environ | {"BUILDER": name} | ({"BASE": "debootstrap"} if name == "buildah" else {})
    built = subprocess.run(
        [ROOT / "deploy" / "build-image", TAG],
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert built.returncode == 0, built.stdout[-4000:] + built.stderr[-4000:]
    chosen: Engine = Docker() if name == "docker" else Buildah()
    yield chosen
    chosen.clean()


@contextmanager
def running(engine: Engine, *arguments: str, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A container that runs until the block ends, and never longer."""
    process = engine.run(*arguments, environment=environment)
    try:
        yield process
    finally:
        for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
            child.kill()
        process.kill()
        process.communicate()


def wait_until_ready(engine: Engine, process: subprocess.Popen[str], environment: Mapping[str, str]) -> None:
    """Waits until the image's own health check says that clients can be served."""
    deadline = time.monotonic() + 60
    said = ""
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        code, said = engine.inside("python3", "/usr/local/bin/kordon-healthcheck", "/readyz", environment=environment)
        if code == 0:
            return
        time.sleep(0.2)
    pytest.fail(f"not ready after 60 s: {said}")


def test_image_is_small_has_no_root_and_asks_for_its_health(engine: Engine) -> None:
    """The image is under 250 MB, runs as nobody in particular, is stopped by SIGTERM and checks /livez."""
    config = engine.config()
    assert config["size"] < MAX_IMAGE_MB * 1_000_000
    assert config["User"] == "65532:65532"
    assert config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"] == ["CMD", "python3", "/usr/local/bin/kordon-healthcheck", "/livez"]
    assert {"9092/tcp", "8080/tcp"} <= config["ExposedPorts"].keys()
    assert not [entry for entry in config["Env"] if "PIP_" in entry], "settings of the build stayed in the image"


def test_a_mistake_is_told_in_one_line_and_with_an_exit_code(engine: Engine) -> None:
    """Without a cluster the container ends at once with code 2 and the cure, not with a traceback."""
    with running(engine, "check", environment={}) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 2, output
    assert "upstream.bootstrap: is required" in output
    assert "Traceback" not in output


@pytest.mark.broker
def test_image_serves_real_clients_and_drains_on_sigterm(engine: Engine, cluster: Cluster) -> None:
    """`docker run kordon --bootstrap …` carries a real client's records to a real broker and back.

    The client is given the container's addresses only; the container says that it is well, shows its status,
    writes nothing, and ends with code 0 when it is told to stop.
    """
    admin = free_ports(PORTS)
    listen = range(admin + 1, admin + PORTS)
    environment = {
        "KORDON_LISTEN__ADDRESS": f"127.0.0.1:{listen[0]}",
        "KORDON_ADMIN__ADDRESS": f"127.0.0.1:{admin}",
    }
    before = engine.files()
    with running(engine, "--bootstrap", cluster.bootstrap(), environment=environment) as process:
        wait_until_ready(engine, process, environment)
        carry_records(f"127.0.0.1:{listen[0]}", listen)
        code, table = engine.inside("kordon-entrypoint", "status", environment=environment)
        assert (code, "Traceback" in table) == (0, False), table
        engine.stop(process)
        output, _ = process.communicate(timeout=STOP_SECONDS)
        assert process.returncode == 0, output
    assert engine.files() == before, "Kordon wrote into its image's file system"


def carry_records(bootstrap: str, listen: range) -> None:
    """Produces and consumes 100 records and checks that no address but Kordon's was told."""
    topic = f"image-{uuid.uuid4().hex[:8]}"
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).brokers
    assert brokers
    assert {broker.port for broker in brokers.values()} <= set(listen)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(100):
        producer.produce(topic, value=str(number))
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read: list[int] = []
    deadline = time.monotonic() + 60
    while len(read) < 100 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read.append(int(message.value() or b"-1"))
    consumer.close()
    assert read == list(range(100))
