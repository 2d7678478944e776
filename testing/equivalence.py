"""Runs a client's script directly and through Kordon, and tells where the two differ.

A script (see `steps.py`) prints a JSON line for each step. What must differ is made equal first: the prefix in all
names, ids that the cluster or the client makes up, times, and the brokers' addresses, which have to be the proxy's.
"""

from __future__ import annotations

import difflib
import json
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from kordon.testing.socket_watch import SocketWatch

SCRIPT_SECONDS = 400
"""After this a script hangs."""

_VARYING = (
    # A broker's config and the quorum's voters tell the brokers' own listeners, to people, and nobody dials them.
    (re.compile(r"\b[A-Z_]+://[\w.]+:\d+"), "<listener>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    # A topic id in Kafka's base64; the lookarounds keep digests and long words out.
    (re.compile(r"(?<![\w/+=-])(?=[\w+/-]*[A-Z])(?=[\w+/-]*[a-z])[A-Za-z0-9_+/-]{22}(==)?(?![\w/+=-])"), "<id>"),
    (re.compile(r"\b1[789]\d{11}\b(?<!1700000000000)"), "<time>"),
    (re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?Z?"), "<time>"),
    (re.compile(r"0x[0-9a-f]{6,}"), "<address>"),
)
_SHOWN_LINES, _SHOWN_CHARACTERS = 60, 300
_VARYING_KEYS = frozenset({"producer_id", "producerId", "topic_id", "topicId", "throttle_time_ms", "UsableBytes"})


@dataclass(frozen=True, slots=True)
class Target:
    """Where a client is sent.

    Attributes:
        bootstrap: "host:port" for the client.
        addresses: Node ids by the "host:port" at which this target's nodes are to be found.
        forbidden_ports: Ports of the brokers, where nobody may show up by himself. Where there are none, nobody looks.
    """

    bootstrap: str
    addresses: Mapping[str, int]
    forbidden_ports: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Run:
    """What a script did.

    Attributes:
        lines: Its steps with answers, made comparable.
        trespassed: Forbidden ports it was connected to.
        samples: How often its sockets were looked at.
    """

    lines: list[str]
    errors: str
    exit_code: int
    trespassed: frozenset[int]
    samples: int


def run_script(command: Sequence[str], target: Target, prefix: str, cwd: Path, env: Mapping[str, str]) -> Run:
    """Runs a script against a target, looking at its sockets all the while where ports are forbidden.

    Args:
        prefix: Begins all names the script makes; of this run only.

    Raises:
        TimeoutError: The script did not end in `SCRIPT_SECONDS`.
    """
    with subprocess.Popen(
        [*command, target.bootstrap, prefix], cwd=cwd, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        timer = threading.Timer(SCRIPT_SECONDS, _kill_all, [process.pid])
        timer.start()
        watch = SocketWatch(process.pid)
        try:
            with watch if target.forbidden_ports else nullcontext():
                output, errors = process.communicate()
        finally:
            timer.cancel()
            process.kill()
    lines = [comparable(line, target, prefix) for line in output.splitlines()]
    if process.returncode < 0:
        raise TimeoutError(f"{' '.join(command)} did not end; it wrote\n" + "\n".join(lines) + errors[-4000:])
    trespassed = frozenset(watch.ports & target.forbidden_ports)
    return Run(lines, errors, process.returncode, trespassed, watch.samples)


def _kill_all(pid: int) -> None:
    """Ends a process and its children, who may hold its outputs open."""
    with suppress(psutil.NoSuchProcess):
        script = psutil.Process(pid)
        for process in [*script.children(recursive=True), script]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def comparable(line: str, target: Target, prefix: str) -> str:
    """Makes a script's line independent of the run.

    Addresses of other nodes than the target's own are left as they are, so that one that leaks through shows up.
    """
    return json.dumps(_settle(json.loads(line), target, prefix), sort_keys=True)


def _settle(value: Any, target: Target, prefix: str, key: str = "") -> Any:
    if isinstance(value, dict):
        return {_text(name, target, prefix): _settle(inner, target, prefix, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_settle(inner, target, prefix, key) for inner in value]
    if key in _VARYING_KEYS:
        return f"<{key}>"
    if key.lower() == "port" and not isinstance(value, bool):
        ports = {int(address.rpartition(":")[2]): node_id for address, node_id in target.addresses.items()}
        return f"<port of node {ports[int(value)]}>" if value and int(value) in ports else value
    if isinstance(value, str):
        return _text(value, target, prefix)
    if isinstance(value, int) and not isinstance(value, bool) and len(str(value)) == 13 and value != 1_700_000_000_000:
        return "<time>" if value > 1_700_000_100_000 else value
    return value


def _text(text: str, target: Target, prefix: str) -> str:
    text = _VARYING[0][0].sub(_VARYING[0][1], text.replace(prefix, "<run>"))
    for address, node_id in target.addresses.items():
        for written in (address, address.replace(":", " ")):
            text = text.replace(written, f"<node {node_id}>")
    text = text.replace(target.bootstrap, "<bootstrap>")
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text


def difference(direct: Sequence[str], proxied: Sequence[str], allowed: Mapping[str, str] | None = None) -> str:
    """Tells in which steps two runs differ; empty where they do not.

    Args:
        allowed: Reasons by name of steps that may differ. One that does not differ is told as well: it must go.
    """
    allowed = allowed or {}
    ours, theirs = _steps(proxied), _steps(direct)
    told = []
    for step in dict.fromkeys([*theirs, *ours]):
        equal = theirs.get(step) == ours.get(step)
        if equal and step in allowed:
            told.append(f"{step}: no longer differs, yet it is excused ({allowed[step]})")
        elif not equal and step not in allowed:
            told.append(_explain(step, theirs.get(step, ""), ours.get(step, "")))
    return "\n\n".join(told)


def _steps(lines: Sequence[str]) -> dict[str, str]:
    """Lines by step; a repeated step gets a number."""
    found: dict[str, str] = {}
    for line in lines:
        step = name = json.loads(line)["step"]
        number = 1
        while name in found:
            number += 1
            name = f"{step} ({number})"
        found[name] = line
    return found


def _explain(step: str, direct: str, proxied: str) -> str:
    diff = difflib.unified_diff(_pretty(direct), _pretty(proxied), "direct", "through Kordon", lineterm="", n=2)
    return f"{step}:\n  " + "\n  ".join(line[:_SHOWN_CHARACTERS] for line in list(diff)[:_SHOWN_LINES])


def _pretty(line: str) -> list[str]:
    """Breaks a step's line into many, long texts too, so that a diff points at the place."""
    if not line:
        return ["(no such step)"]
    return [piece for part in json.dumps(json.loads(line), indent=1).splitlines() for piece in part.split(", ")]
