"""Figures and tables as BENCHMARKS.md has them."""

from __future__ import annotations

from kordon.bench.results import Spread


def shown(spread: Spread | None, digits: int) -> str:
    """Writes a figure as `median (least-most)`, a dash where there is none."""
    if spread is None:
        return "-"
    return f"{spread.median:.{digits}f} ({spread.least:.{digits}f}-{spread.most:.{digits}f})"


def middle(spread: Spread | None, digits: int) -> str:
    return "-" if spread is None else f"{spread.median:.{digits}f}"


def number(value: float | None) -> str:
    """Writes a ratio, a dash where there is none."""
    return "-" if value is None else f"{value:.2f}"


def section(title: str, names: list[str], rows: list[list[str]]) -> list[str]:
    """Draws a table below its title; nothing where there are no rows."""
    return [f"## {title}", "", *table(names, rows)] if rows else []


def table(names: list[str], rows: list[list[str]]) -> list[str]:
    """Draws a table in Markdown, with an empty line behind it."""
    ruler = ["---"] * len(names)
    return [*("| " + " | ".join(row) + " |" for row in [names, ruler, *rows]), ""]
