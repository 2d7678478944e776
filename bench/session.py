"""A whole run: cluster and contenders up, plan measured with its progress shown, results saved after every figure."""

from __future__ import annotations

import ssl
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from kordon.bench import results
from kordon.bench.acknowledging import CASE as ACKNOWLEDGING
from kordon.bench.contenders import Contender, Peer, start_floor, stop_process
from kordon.bench.loads import TOOL_SECONDS, Tool, ToolError
from kordon.bench.plan import Memory, Part, Plan
from kordon.bench.requests import CASES as REQUEST_CASES
from kordon.bench.results import Measurement, Results
from kordon.bench.runner import Runner, idle_figures
from kordon.bench.scale import PARTS, PROXIES
from kordon.bench.sdk import WORKER_CASES
from kordon.testing.broker_config import KAFKAS_OWN_THREADS
from kordon.testing.certificates import make_certificates
from kordon.testing.cluster import Cluster
from kordon.testing.java_process import OPTIMISED
from kordon.testing.ports import free_ports
from kordon.testing.proxy_process import ProxyProcess

_FLOOR_LISTENER: Final = "FLOOR"


def measure(plan: Plan, profile: str, peers: Sequence[Peer], console: Console, save_to: Path) -> Results:
    """Runs a plan on a fresh cluster.

    Args:
        save_to: The JSON file, written anew after each figure, so that a run that is cut short is not lost.
    """
    began = time.monotonic()
    with ExitStack() as stack:

        def shown(case: str, contender: str, number: int = 1) -> None:
            console.log(f"{case}, round {number}: {contender}", highlight=False)

        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kordon-bench-")))
        floor_port = free_ports(1)
        extra = {_FLOOR_LISTENER: floor_port, **{peer.listener: peer.port for peer in peers}}
        # nobody is held to ACLs, or else topics cannot be managed
        config = {"authorizer.class.name": "", **KAFKAS_OWN_THREADS}
        cluster = stack.enter_context(
            Cluster.start(brokers=1, config=config, extra_listeners=extra, jvm=OPTIMISED, on_disk=True)
        )
        figures = _empty(plan, profile, cluster)

        def keep(measurement: Measurement) -> None:
            figures.measurements.append(measurement)
            figures.took_seconds = time.monotonic() - began
            figures.save(save_to)

        with _contenders(cluster, floor_port, peers, logs) as (contenders, managed):
            Runner(contenders, managed, tool=_tool(cluster), progress=shown, keep=keep).run(plan)
        if plan.with_tls and Part.MEMORY in plan.parts:
            shown(figures.memory_tls, results.KORDON)
            keep(_idle_tls(plan.memory, figures.memory_tls, cluster.bootstrap("PLAINTEXT"), logs))
        return figures


@contextmanager
def _contenders(
    cluster: Cluster, floor_port: int, peers: Sequence[Peer], logs: Path
) -> Generator[tuple[list[Contender], Contender], None, None]:
    """Starts all of them, and says which one is Kordon with managed topics.

    They stay, for an idle proxy takes nothing from the one that is measured.
    """
    bootstrap = cluster.bootstrap("PLAINTEXT")
    with ExitStack() as stack:
        floor = start_floor(floor_port, cluster.bootstrap(_FLOOR_LISTENER), logs / "floor")
        stack.callback(stop_process, floor)
        kordon = stack.enter_context(ProxyProcess.start(bootstrap=bootstrap))
        contenders = [
            Contender(results.DIRECT, bootstrap),
            Contender(results.FLOOR, f"127.0.0.1:{floor_port}", floor.pid),
            Contender(results.KORDON, kordon.bootstrap, kordon.pid),
        ]
        for peer in peers:
            process = peer.start(bootstrap, cluster.bootstrap(peer.listener), logs / peer.listener)
            stack.callback(stop_process, process)
            contenders.append(Contender(peer.name, f"127.0.0.1:{peer.port}", process.pid))
        yield contenders, Contender(results.MANAGED, kordon.bootstrap, kordon.pid, kordon.metrics)


def _tool(cluster: Cluster) -> Tool:
    """Runs Kafka's tools as their scripts do: with the optimising compiler, which short commands are spared."""

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [word for word in cluster.tool_command(name, *arguments) if "TieredStopAtLevel" not in word]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
        if done.returncode:
            raise ToolError(f"{name} failed:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
        return done

    return run


def _idle_tls(case: Memory, name: str, bootstrap: str, directory: Path) -> Measurement:
    """Measures idle connections over TLS, with a Kordon of its own."""
    files = make_certificates(directory)
    tls = {"certificate": str(files.server), "key": str(files.server_key)}
    with ProxyProcess.start(bootstrap=bootstrap, config={"listen": {"tls": tls}}) as kordon:
        contender = Contender(results.KORDON, kordon.bootstrap, kordon.pid)
        context = ssl.create_default_context(cafile=files.ca)
        return Measurement(name, contender.name, 1, idle_figures(case, contender, context))


def _empty(plan: Plan, profile: str, cluster: Any) -> Results:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return Results(
        profile=profile,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        rounds=plan.rounds,
        base=plan.base.name,
        latency=plan.latency.name,
        memory=plan.memory.name,
        memory_tls=f"{plan.memory.name} over TLS",
        managed=tuple(case.name for case in plan.managed),
        log=plan.log.name,
        resizes=tuple(case.name for case in plan.resizes),
        holding=tuple(case.name for case in plan.holding),
        requests=REQUEST_CASES,
        live=tuple(case.name for case in plan.live),
        sdk=(plan.sdk.name, *WORKER_CASES),
        transactions=tuple(case.name for case in plan.transactions),
        sources=(plan.sources.name, plan.sources.rebalance, plan.sources.takeover),
        cooperative=(*(case.name for case in plan.cooperative), ACKNOWLEDGING),
        audit=tuple(case.name for case in plan.audit),
        scale=(*PARTS, PROXIES),
        machine=results.machine_facts(cluster.version, java.splitlines()[0] if java else "unknown"),
    )
