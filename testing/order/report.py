"""A verdict and the pauses as tables for a terminal of 80 columns."""

from __future__ import annotations

import statistics

from rich import box
from rich.table import Table

from kordon.testing.order.findings import WRITES, Anomaly, Verdict
from kordon.testing.order.pauses import Gaps, Pauses

_ABOUT_WRITES = frozenset({Anomaly.NONMONOTONIC_SEND, Anomaly.INVERSION})
_ABOUT_BOTH = frozenset({Anomaly.INCONSISTENT_OFFSETS})
_ABOUT_CALLBACKS = frozenset({Anomaly.UNFLUSHED, Anomaly.UNLOADED})


def verdict_table(verdict: Verdict, title: str) -> Table:
    """Draws how often each anomaly was found, in the writes and in each group."""
    drawn = _table(title, ["", *verdict.accounts])
    accounts = verdict.accounts.items()
    drawn.add_row("records", *(f"{account.records:,}" for _, account in accounts))
    drawn.add_row("failed sends", *(_only(name == WRITES, account.failed) for name, account in accounts))
    drawn.add_row("allowed again", *(_only(name != WRITES, account.again) for name, account in accounts))
    stints = [_only(name != WRITES, account.stints) for name, account in accounts]
    has_callbacks = any(account.has_callbacks for _, account in accounts)
    drawn.add_row("partitions assigned", *stints)
    torn = [_only(name != WRITES, account.torn) for name, account in accounts]
    drawn.add_row("torn by the client", *torn, end_section=not has_callbacks)
    if has_callbacks:
        moved = [_only(account.has_callbacks, account.moved) for _, account in accounts]
        drawn.add_row("keys moved", *moved, end_section=True)
    for anomaly in Anomaly:
        if anomaly in _ABOUT_CALLBACKS and not has_callbacks:
            continue
        cells = [_cell(verdict, anomaly, name) for name in verdict.accounts]
        drawn.add_row(str(anomaly), *cells)
    return drawn


def pauses_table(pauses: Pauses) -> Table:
    """Draws the longest gaps between acknowledgements around each action, in milliseconds."""
    rows = [(pause.done.what, pause.gaps) for pause in pauses.pauses] + [("at other times", pauses.usual)]
    producers = sorted({name for _, gaps in rows for name in gaps.by_producer})
    title = "Longest gaps between acknowledgements, ms"
    drawn = _table(title, ["during", *producers, "partitions\nmedian", "partitions\nworst"])
    for name, gaps in rows:
        drawn.add_row(name, *(_ms(gaps.by_producer.get(producer)) for producer in producers), *_over_partitions(gaps))
    return drawn


def _table(title: str, columns: list[str]) -> Table:
    drawn = Table(title=title, title_style="bold", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    drawn.add_column(columns[0], no_wrap=True)
    for name in columns[1:]:
        drawn.add_column(name, justify="right")
    return drawn


def _cell(verdict: Verdict, anomaly: Anomaly, place: str) -> str:
    count = verdict.count(anomaly, place)
    applies = anomaly in _ABOUT_BOTH or (anomaly in _ABOUT_WRITES) == (place == WRITES)
    if anomaly in _ABOUT_CALLBACKS:
        applies = verdict.accounts[place].has_callbacks
    if count:
        return f"[red]{count:,}[/]"
    return "[green]0[/]" if applies else ""


def _only(applies: bool, count: int) -> str:
    return f"{count:,}" if applies else ""


def _ms(gap_us: float | None) -> str:
    return "" if gap_us is None else f"{gap_us / 1000:,.0f}"


def _over_partitions(gaps: Gaps) -> tuple[str, str]:
    found = list(gaps.by_partition.values())
    return (_ms(statistics.median(found)), _ms(max(found))) if found else ("", "")
