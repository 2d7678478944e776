"""`kordon audit report`."""

from __future__ import annotations

import sys
import time
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kordon.codecs.moments import moment_ms
from kordon.codecs.shown_text import shown
from kordon.spark_jobs.errors import MissingPart, need_packages

if TYPE_CHECKING:
    from kordon.spark_jobs.report import Report
    from kordon.spark_jobs.report.compare import Former
    from kordon.spark_jobs.report.tables import Row

_NEEDED: Final = ("pyarrow", "jinja2")
_NOT_MADE: Final = 2
_CODES: Final = {"pass": 0, "fail": 1}
"""Of verdicts with --fail-on-new; of all others 3."""
_MOST_TOLD: Final = 20
"""Findings that are told in a line each."""


@click.command()
@click.option(
    "--from",
    "folder",
    metavar="DIR",
    default="audit",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the audit writes (`kordon audit run --out`).",
)
@click.option(
    "--out",
    metavar="FILE",
    default="report.html",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The page to write.",
)
@click.option(
    "--since",
    metavar="TIME|DIR",
    help="Say what is new since then (24h, 7d, 2026-11-22T09:30), or since another audit, whose folder this is.",
)
@click.option("--fail-on-new", is_flag=True, help="With --since: the exit code is the verdict of what is new.")
@click.option("--open", "is_shown", is_flag=True, help="Show it in the browser.")
def report(folder: Path, out: Path, *, since: str | None, fail_on_new: bool, is_shown: bool) -> None:
    """Write what an audit has found as one HTML page.

    The audit may be at work meanwhile. The page needs no network and no server: mail it, print it, keep it.

    \b
    Examples:
      kordon audit report --from audit --open
      kordon audit report --from audit --since 24h --fail-on-new
      kordon audit report --from audit --since audit-yesterday

    \b
    Exit codes:
      0  the page is written; with --fail-on-new: what is new was judged, and it holds
      1  with --fail-on-new: there is new proof that a promise was broken
      2  the page could not be written
      3  with --fail-on-new: not all that is new could be judged, or nothing is new
    """  # noqa: D301  (\b is click's mark for a paragraph that keeps its lines)
    if fail_on_new and since is None:
        raise click.UsageError("--fail-on-new needs --since: say since when")
    try:
        need_packages(*_NEEDED)
        made = _write(folder, out, since)
    except (MissingPart, OSError) as error:
        click.echo(str(error), err=True)
        sys.exit(_NOT_MADE)
    for line in _told(made, out):
        click.echo(shown(line))
    if is_shown:
        webbrowser.open(out.resolve().as_uri())
    if fail_on_new and made.comparison is not None:
        sys.exit(_CODES.get(made.comparison.verdict.value, 3))


def _write(folder: Path, out: Path, since: str | None) -> Report:
    from kordon.spark_jobs.report import write  # noqa: PLC0415 - help needs none of its packages

    return write(folder, out, None if since is None else _former(folder, since))


def _former(folder: Path, since: str) -> Former:
    """Returns the audit to compare with: the same one as it was at a time, or that of another folder."""
    from kordon.spark_jobs.report.compare import Former  # noqa: PLC0415
    from kordon.spark_jobs.report.tables import read_judged  # noqa: PLC0415
    from kordon.spark_jobs.report.words import moment  # noqa: PLC0415

    try:
        at_ms = moment_ms(since, round(time.time() * 1000))
    except ValueError as error:
        if not Path(since).is_dir():
            problem = f"{since!r} is neither a time (24h, 7d, 2026-11-22T09:30) nor the folder of an audit"
            raise click.BadParameter(problem, param_hint="--since") from error
        return Former(name=f"the audit in {since}", tables=read_judged(Path(since)), is_itself=False)
    return Former(name=f"{moment(at_ms)} UTC", tables=read_judged(folder, at_ms), is_itself=True)


def _told(made: Report, out: Path) -> Iterator[str]:
    """Yields what is printed, line by line."""
    from kordon.spark_jobs.report.words import several  # noqa: PLC0415

    yield f"{out}: {made.headline} {several(made.findings_count, 'finding')}."
    if (new := made.comparison) is not None:
        yield f"since {new.former.name}: {new.words}"
        yield from (f"  {rule.now.name}: {rule.then.verdict} then, {rule.now.verdict} now" for rule in new.changed)
        marked = [(finding.mark.value, finding.row) for finding in made.findings if finding.mark]
        yield from _lines(marked, len(new.marks))
        yield from _lines([("gone", gone.row) for gone in new.gone], len(new.gone))


def _lines(findings: Sequence[tuple[str, Row]], count: int) -> Iterator[str]:
    """Yields the first of some findings, a line each."""
    for mark, row in findings[:_MOST_TOLD]:
        yield f"  {mark}: {row['verdict']}, {row['name']} {row['kind']}{_where(row)}"
    if count > _MOST_TOLD:
        yield f"  and {count - _MOST_TOLD:,} more"


def _where(row: Row) -> str:
    first, last = row["first_offset"], row["last_offset"]
    topic = f" in {row['topic']}" if row["topic"] is not None else ""
    partition = f"-{row['partition']}" if row["partition"] is not None else ""
    offsets = f", offsets {first} to {first if last is None else last}" if first is not None else ""
    return topic + partition + offsets
