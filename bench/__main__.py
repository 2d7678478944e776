"""`python -m kordon.bench`: measures, and writes BENCHMARKS.md."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from kordon.bench.contenders import Peer, PeerError
from kordon.bench.loads import ToolError
from kordon.bench.picture import draw
from kordon.bench.plan import PROFILES, Part
from kordon.bench.report import report
from kordon.bench.results import Results
from kordon.bench.verdicts import verdicts


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    default="quick",
    show_default=True,
    help="About six minutes (smoke), forty (quick), or three hours (full).",
)
@click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="NAME=PORT=COMMAND",
    help="Measures another proxy too: its command, with {bootstrap} and {advertising} filled in, serves PORT.",
)
@click.option(
    "--only",
    "parts",
    multiple=True,
    type=click.Choice([part.value for part in Part]),
    help="Measures this part alone; may be given more than once.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for BENCHMARKS.md and docs/; default: here, or bench-results/ with --only or the smoke profile.",
)
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measures nothing: writes the page anew from the raw figures of an earlier run.",
)
def main(
    profile: str, peers: tuple[str, ...], parts: tuple[str, ...], output: Path | None, source: Path | None
) -> None:
    """Direct, a bare relay and Kordon in turn, with real clients on a real broker."""
    console = Console()
    folder = output or Path("bench-results" if profile == "smoke" or parts else ".")
    raw = folder / "docs" / "benchmarks.json"
    try:
        figures = Results.load(source) if source else _measured(profile, peers, parts, console, raw)
    except (PeerError, ToolError) as error:
        raise click.ClickException(str(error)) from None
    figures.save(raw)
    picture = folder / "docs" / "benchmarks.svg"
    draw(figures, picture)
    page = folder / "BENCHMARKS.md"
    page.write_text(report(figures, os.path.relpath(picture, folder)))
    _show(console, figures)
    console.print(f"{page}, {picture}, {raw}")


def _measured(profile: str, peers: tuple[str, ...], parts: tuple[str, ...], console: Console, raw: Path) -> Results:
    from kordon.bench.session import measure  # noqa: PLC0415 # drawing an old run anew needs no cluster

    plan = PROFILES[profile]
    if parts:
        plan = replace(plan, parts=frozenset(map(Part, parts)))
    told = [Peer.parse(peer) for peer in peers]
    return measure(plan, profile, told, console, raw)


def _show(console: Console, figures: Results) -> None:
    table = Table(title="Kordon against the bar")
    for name in ("", "wanted", "measured", ""):
        table.add_column(name)
    for verdict in verdicts(figures):
        outcome = "[green]reached[/]" if verdict.reached else "[red]not reached[/]"
        table.add_row(verdict.what, verdict.wanted, verdict.got, outcome)
    console.print(table)


if __name__ == "__main__":
    main()
