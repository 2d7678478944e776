"""What an audit costs, as the bench measures it."""

from __future__ import annotations

import json
import subprocess
import sys

from kordon.bench.loads import ToolError
from kordon.bench.plan import Audited

_MOST_SECONDS = 7_200.0


def measure_audit(case: Audited) -> dict[str, float]:
    """Runs a case in a process of its own.

    Raises:
        ToolError: It failed, as where the auditor's extra is not installed.
    """
    command = [sys.executable, "-m", "kordon.bench.audit_cost", "--partitions", str(case.partitions)]
    command += ["--rounds", str(case.rounds), "--micro-batches", str(case.micro_batches)]
    command += ["--brief"] if case.is_brief else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_SECONDS, check=False)
    if done.returncode:
        raise ToolError(f"{case.name}: {done.stderr.strip()[-1000:]}")
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told
