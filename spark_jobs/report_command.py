"""`kordon audit report`."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Final

import click

from kordon.spark_jobs.errors import MissingPart, need_packages

_NEEDED: Final = ("pyarrow", "jinja2")
_NOT_MADE: Final = 2


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
@click.option("--open", "is_shown", is_flag=True, help="Show it in the browser.")
def report(folder: Path, out: Path, *, is_shown: bool) -> None:
    """Write what an audit has found as one HTML page.

    The audit may be at work meanwhile. The page needs no network and no server: mail it, print it, keep it.
    """
    try:
        need_packages(*_NEEDED)
    except MissingPart as error:
        click.echo(str(error), err=True)
        sys.exit(_NOT_MADE)
    from kordon.spark_jobs.report import write  # noqa: PLC0415 - help needs none of its packages
    from kordon.spark_jobs.report.words import several  # noqa: PLC0415

    try:
        made = write(folder, out)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{out}: {made.headline} {several(made.findings_count, 'finding')}.")
    if is_shown:
        webbrowser.open(out.resolve().as_uri())
