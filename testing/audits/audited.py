"""An audit of decision files and of a cluster's topics, for tests that play something and then look what is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kordon.codecs.decision import Entry
from kordon.spark_jobs.audit import Audit, Options
from kordon.spark_jobs.metrics import AuditMetrics
from kordon.spark_jobs.session import Setup, open_session
from kordon.spark_jobs.sources import Reading


def findings_of(broker: str, folder: Path, out: Path) -> list[dict[str, Any]]:
    """Audits all there is, once; returns the newest row of each finding."""
    session = open_session(Setup(master="local[1]", needs_kafka=False))
    reading = Reading(bootstrap=broker, folder=folder, is_pinned=True)
    audit = Audit(session, Options(out=str(out), reading=reading), AuditMetrics())
    audit.once()
    rows = [row for found in audit.storage.tables("findings") for row in found.to_dicts()]
    return [*{row["finding_id"]: row for row in rows}.values()]


def workers_of(folder: Path) -> set[str]:
    """Returns the incarnations that wrote decisions into a folder."""
    return {Entry.load(line).worker for path in folder.glob("*.jsonl") for line in path.read_bytes().splitlines()[:1]}
