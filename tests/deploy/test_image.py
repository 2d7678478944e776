"""The container image, really built and run in front of the embedded broker, with Docker or with buildah.

Without a Docker engine, buildah builds it on a base made of Debian's packages (debootstrap) and runs it in a
chroot. What a chroot cannot show, a read-only root and a process id of 1, is shown by its cause: that nothing is
written, and that kordon replaces the entry point's shell.
"""

import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from confluent_kafka.admin import AdminClient

from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import read, write
from kordon.testing.ports import free_ports

pytestmark = [pytest.mark.beside, pytest.mark.deep, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "image"
TAG = "kordon:test"
AUDIT_TAG = "kordon-audit:test"
MAX_IMAGE_MB = 250
MAX_AUDIT_IMAGE_MB = 1300
"""Java, PySpark and Arrow are most of it."""
STOP_SECONDS = 40
BUILD_SECONDS = 1800
AUDIT_SECONDS = 900
FIND_PARTS = "import importlib.util as u, sys; print(*(each for each in sys.argv[1:] if u.find_spec(each)))"
PORTS = 10
"""Admin, bootstrap, and brokers with node ids below 8."""


def flags(environment: Mapping[str, str] | None, volumes: Mapping[str, str] | None = None) -> list[str]:
    """Variables and volumes as Docker and buildah take them."""
    variables = [word for name, value in (environment or {}).items() for word in ("--env", f"{name}={value}")]
    return variables + [word for inside, here in (volumes or {}).items() for word in ("--volume", f"{here}:{inside}")]


def captured(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


class Docker:
    """A Docker engine; the container's network is the host's, so that it reaches the embedded broker."""

    name = "docker"

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.container = f"kordon-test-{uuid.uuid4().hex[:8]}"

    def config(self) -> dict[str, Any]:
        """The image's configuration, in Docker's words."""
        found = json.loads(captured(["docker", "image", "inspect", self.tag]).stdout)[0]
        return {**found["Config"], "size": found["Size"]}

    def run(
        self, *arguments: str, environment: Mapping[str, str] | None = None, volumes: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Starts a container as `docker run kordon ARGUMENTS` does, as restricted as docs/deployment.md recommends.

        Args:
            arguments: Behind the image's name.
            environment: Variables.
            volumes: By path in the container, a folder of this machine.
        """
        locked = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        command = ["docker", "run", "--rm", "--name", self.container, "--network", "host", *locked]
        return started([*command, *flags(environment, volumes), self.tag, *arguments])

    def inside(self, *command: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Runs a command in the container; its exit code and output."""
        done = captured(["docker", "exec", *flags(environment), self.container, *command])
        return done.returncode, done.stdout + done.stderr

    def stop(self, running: subprocess.Popen[str]) -> None:
        """Sends what `docker stop` sends to the container's first process, SIGTERM."""
        captured(["docker", "kill", "--signal", "TERM", self.container])

    def files(self) -> dict[str, tuple[float, int]]:
        """What the container has written so far, by path: with a read-only root there is nothing to find."""
        return {}

    def clean(self) -> None:
        captured(["docker", "rm", "--force", self.container])


class Buildah:
    """The same by buildah with chroot isolation: no engine, no privileges, the host's network and processes."""

    name = "buildah"
    base = ("buildah", "--root", f"{CACHE}/storage", "--runroot", f"{CACHE}/run", "--storage-driver", "vfs")

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.container = tag.replace(":", "-")
        self.clean()  # what an interrupted run has left
        made = captured([*self.base, "from", "--name", self.container, tag])
        assert made.returncode == 0, made.stderr
        self.tree = Path(captured([*self.base, "mount", self.container]).stdout.strip())
        # buildah writes /etc/hosts and the like at the first run; from then on, only Kordon could.
        assert self.inside("true") == (0, "")

    def config(self) -> dict[str, Any]:
        found = json.loads(captured([*self.base, "inspect", "--type", "image", self.tag]).stdout)
        size = sum(path.lstat().st_size for path in self.tree.rglob("*") if not path.is_dir())
        return {**found["Docker"]["config"], "size": size}

    def run(
        self, *arguments: str, environment: Mapping[str, str] | None = None, volumes: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """`buildah run` leaves the entry point out, so it is put before the arguments."""
        command = [*self.config()["Entrypoint"], *arguments]
        return started([*self._run(environment, volumes), *command])

    def inside(self, *command: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
        done = captured([*self._run(environment), *command])
        errors = [line for line in done.stderr.splitlines() if not line.startswith(("subprocess ", "Error: exit"))]
        return done.returncode, done.stdout + "\n".join(errors)

    def _run(self, environment: Mapping[str, str] | None, volumes: Mapping[str, str] | None = None) -> list[str]:
        isolated = ["run", "--isolation", "chroot", *flags(environment, volumes)]
        return [*self.base, *isolated, self.container, "--"]

    def stop(self, running: subprocess.Popen[str]) -> None:
        """The first process of the container is the last of buildah's chain of children."""
        process = psutil.Process(running.pid)
        while children := process.children():
            process = children[0]
        words = process.cmdline()
        assert any(word.endswith("/kordon") for word in words), f"the entry point left {words} in between"
        process.send_signal(signal.SIGTERM)

    def files(self) -> dict[str, tuple[float, int]]:
        return {
            str(path.relative_to(self.tree)): (path.lstat().st_mtime, path.lstat().st_size)
            for path in self.tree.rglob("*")
            if not path.is_dir()
        }

    def clean(self) -> None:
        captured([*self.base, "umount", self.container])
        captured([*self.base, "rm", self.container])


Engine = Docker | Buildah


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


def built(tag: str, **settings: str) -> Iterator[Engine]:
    """An image, built by the script that `make image` runs, and a container of it."""
    name = choose_engine()
    environment = os.environ | {"BUILDER": name} | ({"BASE": "debootstrap"} if name == "buildah" else {}) | settings
    done = subprocess.run(
        [ROOT / "deploy" / "build-image", tag],
        env=environment,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    chosen: Engine = Docker(tag) if name == "docker" else Buildah(tag)
    yield chosen
    chosen.clean()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    yield from built(TAG)


@pytest.fixture(scope="module")
def auditor() -> Iterator[Engine]:
    yield from built(AUDIT_TAG, TARGET="audit")


@contextmanager
def running(
    engine: Engine, *arguments: str, environment: Mapping[str, str], volumes: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A container that runs until the block ends, and never longer."""
    process = engine.run(*arguments, environment=environment, volumes=volumes)
    try:
        yield process
    finally:
        for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
            child.kill()
        process.kill()
        process.communicate()


def wait_until_ready(engine: Engine, process: subprocess.Popen[str], environment: Mapping[str, str]) -> None:
    """Waits until the image's own health check says that clients can be served."""
    deadline = time.monotonic() + 180
    said = ""
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        code, said = engine.inside("python3", "/usr/local/bin/kordon-healthcheck", "/readyz", environment=environment)
        if code == 0:
            return
        time.sleep(0.2)
    pytest.fail(f"not ready after 180 s: {said}")


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


def test_the_load_of_the_demo_is_in_the_image(engine: Engine) -> None:
    """The command of the compose file finds its program there, and what that imports."""
    load = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]["load"]
    code, said = engine.inside(*load["entrypoint"], "--help")
    assert (code, "--virtual" in said) == (0, True), said


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
        parts = ("kordon.proxy", "kordon.testing", "kordon.bench")
        code, found = engine.inside("/opt/kordon/bin/python", "-c", FIND_PARTS, *parts)
        assert (code, found.split()) == (0, ["kordon.proxy"]), "rigs are nothing for users"
        engine.stop(process)
        output, _ = process.communicate(timeout=STOP_SECONDS)
        assert process.returncode == 0, output
    assert engine.files() == before, "Kordon wrote into its image's file system"


def carry_records(bootstrap: str, listen: range) -> None:
    """Produces and consumes 100 records and checks that no address but Kordon's was told."""
    topic = f"image-{uuid.uuid4().hex[:8]}"
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).brokers
    assert brokers
    assert {broker.port for broker in brokers.values()} <= set(listen)
    client = {"bootstrap.servers": bootstrap}
    write({**client, "enable.idempotence": True}, topic, ({"value": str(number)} for number in range(100)))
    assert [int(message.value() or b"-1") for message in read(client, topic, 100)] == list(range(100))


@pytest.mark.timeout(3600)
def test_the_auditors_image_judges_decisions_and_writes_to_its_volume_only(auditor: Engine, tmp_path: Path) -> None:
    """As nobody in particular, with nothing fetched at run time; Spark's own files go to the other volume, /tmp."""
    config = auditor.config()
    assert config["size"] < MAX_AUDIT_IMAGE_MB * 1_000_000
    assert (config["User"], config["StopSignal"]) == ("65532:65532", "SIGTERM")
    with running(auditor, "audit", "run", "--help", environment={}) as process:
        assert "--late-minutes" in process.communicate(timeout=60)[0]
    state, files, scratch = (tmp_path / name for name in ("state", "files", "scratch"))
    for folder in (state, files, scratch):
        folder.mkdir()
        os.chown(folder, 65532, 65532)
    told = [{"schema": 1, "at_ms": 1000, "host": "h", "worker": "a", "number": n, "kind": "join"} for n in (0, 1, 4)]
    (files / "decisions-a-000000.jsonl").write_text("".join(json.dumps(each) + "\n" for each in told))
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    before = auditor.files()
    out = "/audit"  # where the image has a volume of its own, Buildah puts that over the one it is given
    arguments = ["--once", "--files", "/decisions", "--out", out, "--master", "local[1]"]
    volumes = {out: str(state), "/decisions": str(files), "/tmp": str(scratch)}
    with running(auditor, "audit", "run", *arguments, environment={}, volumes=volumes) as process:
        output, _ = process.communicate(timeout=AUDIT_SECONDS)
    assert process.returncode == 3, output[-4000:]
    assert "unknown: 1 unknown of GAPS; " in output
    assert auditor.files() == before, "the auditor wrote into its image's file system"
    with running(auditor, "audit", "report", "--from", out, "--out", f"{out}/report.html", environment={},
                 volumes=volumes) as process:  # fmt: skip
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output[-4000:]
    assert (state / "report.html").stat().st_size > 10_000
