"""`python -m kordon.testing.audits.dying_audit FILES OUT STEP`: an audit that kills itself, by SIGKILL."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from kordon.spark_jobs.audit import Audit, Options
from kordon.spark_jobs.engine import EngineParts
from kordon.spark_jobs.metrics import AuditMetrics
from kordon.spark_jobs.session import Setup, open_session
from kordon.spark_jobs.sources import Reading


def main(files: str, out: str, at: str) -> None:
    """Judges the files by GAPS alone, up to a step of the engine."""

    def step(name: str) -> None:
        if name == at:
            os.kill(os.getpid(), signal.SIGKILL)

    session = open_session(Setup(master="local[1]", needs_kafka=False))
    reading = Reading(folder=Path(files), is_pinned=True)
    Audit(
        session, Options(out=out, reading=reading), AuditMetrics(), EngineParts(rules=(), summaries=(), step=step)
    ).once()


if __name__ == "__main__":
    main(*sys.argv[1:])
