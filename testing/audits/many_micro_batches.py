"""`python -m kordon.testing.audits.many_micro_batches FILES OUT EVENTS`: an audit in tiny micro-batches.

Spark's event log of it is in EVENTS.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kordon.spark_jobs import files_source
from kordon.spark_jobs.audit import Audit, Options
from kordon.spark_jobs.engine import EngineParts
from kordon.spark_jobs.metrics import AuditMetrics
from kordon.spark_jobs.session import Setup, open_session
from kordon.spark_jobs.sources import Reading

BYTES = 100


def main(files: str, out: str, events: str) -> None:
    """Judges the files by GAPS alone: what Spark does is the same whatever the rules are."""
    files_source.MAX_BYTES = BYTES  # type: ignore[misc]
    logged = {"enabled": "true", "compress": "false", "dir": Path(events).as_uri()}
    settings = {f"spark.eventLog.{name}": value for name, value in logged.items()}
    session = open_session(Setup(master="local[1]", needs_kafka=False, settings=settings))
    options = Options(out=out, reading=Reading(folder=Path(files), is_pinned=True))
    Audit(session, options, AuditMetrics(), EngineParts(rules=(), summaries=())).once()
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
