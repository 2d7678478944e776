"""The end of `make demo`: Spark audits what Kordon has decided there, and then a run in which a promise is broken.

The auditor reads the decision log and the topics from the broker, not through Kordon. Its report stays behind, so that
it can be looked at.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from kordon.spark_jobs.report import Report, write
from kordon.testing.audits.fault_plays import PLAYS, Stage
from kordon.testing.audits.faults import Fault
from kordon.testing.folders import make_folder
from kordon.testing.proxy_process import ProxyProcess

RECORDED: Final = {"decisions": {"to": "topic"}}
"""The configuration of a Kordon whose decisions are audited."""
FAULT: Final = Fault.DOUBLED_SEQUENCE
BROKEN: Final = "broken-on-purpose"
"""The topic of the fault."""
AUDIT_SECONDS: Final = 1200.0
_FOLDER_PREFIX: Final = "kordon-demo-audit-"
_ALL_KEYS: Final = ("--sample-batches", "1")
"""There is so little data that the keys of all batches are looked at."""
_COLOURS: Final[Mapping[str, str]] = {"pass": "green", "fail": "red"}


class AuditFailed(RuntimeError):  # noqa: N818 - says what happened
    """The auditor ended with an error; the message has its output."""


def audit_and_break(console: Console, bootstrap: str) -> list[str]:
    """Audits what was decided on a cluster, then a run in which a promise is broken.

    Args:
        bootstrap: Of the cluster; no Kordon is in front of it any more.

    Returns:
        What is wrong.
    """
    folder = make_folder(_FOLDER_PREFIX)
    told = f"one in which a promise is broken on purpose ({FAULT.value})"
    with (
        console.status("Spark audits this run; meanwhile a Kordon breaks a promise on purpose"),
        _audit("this run", folder / "run", "--bootstrap", bootstrap) as run,
    ):
        source = ("--bootstrap", bootstrap, "--files", str(_break(bootstrap, folder)))
        with _audit(told, folder / "broken", *source) as fault:
            clean, broken = run.report(console), fault.report(console)
    console.print(_table(clean))
    console.print(f"findings: {clean.findings_count}", highlight=False)
    for each in broken.findings:
        text = f"{each.row['name']}, {each.row['kind']}: {each.row['text']}"
        console.print(text, style="yellow", markup=False, highlight=False)
    kinds = [each.row["kind"] for each in broken.findings]
    wrong = [f"the audit found: {each.row['text']}" for each in clean.findings]
    return wrong if kinds == [FAULT.value] else [*wrong, f"the fault {FAULT.value} gave the findings {kinds}"]


def _break(bootstrap: str, folder: Path) -> Path:
    """Has a Kordon break a promise; returns the folder of its decisions, which alone are audited for it."""
    decisions = folder / "decisions"
    decisions.mkdir()
    recorded = {"decisions": {"to": "files", "folder": str(decisions)}}
    with ProxyProcess.start(bootstrap, config=recorded, fault=FAULT) as faulty:
        PLAYS[FAULT](Stage(faulty.bootstrap, bootstrap, BROKEN))
    return decisions


@dataclass(frozen=True, slots=True)
class _Audit:
    """An audit at work on what was on record when it began."""

    what: str
    out: Path
    process: subprocess.Popen[str]
    began: float

    def report(self, console: Console) -> Report:
        """Waits for its end; returns what the report says, which stays in the folder; raises AuditFailed."""
        output, errors = self.process.communicate(timeout=AUDIT_SECONDS)
        if self.process.returncode not in (0, 1, 3):  # all is well, something is broken, something cannot be told
            raise AuditFailed(f"the audit of {self.what} failed:\n{output[-1500:]}{errors[-1500:]}")
        report = write(self.out, self.out / "report.html")
        console.print(f"Spark audited {self.what}: {time.monotonic() - self.began:.1f} s", highlight=False)
        console.print(f"  the report: {self.out / 'report.html'}", highlight=False, soft_wrap=True)
        return report


@contextmanager
def _audit(what: str, out: Path, *source: str) -> Iterator[_Audit]:
    told = [*source, "--out", str(out), "--once", "--findings-topic", "", *_ALL_KEYS]
    command = [str(Path(sys.executable).with_name("kordon")), "audit", "run", *told]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield _Audit(what, out, process, time.monotonic())
        finally:
            process.kill()


def _table(report: Report) -> Table:
    """Draws the verdicts, within the 80 columns of a plain terminal."""
    drawn = Table(title="What the audit says", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("rule", "verdict"):
        drawn.add_column(name, no_wrap=True)
    for name, verdict in report.verdicts.items():
        drawn.add_row(name, f"[{_COLOURS.get(verdict, 'yellow')}]{verdict}[/]")
    return drawn
