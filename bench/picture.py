"""The picture in BENCHMARKS.md: a bar for each contender, a line over it from the least to the most of all rounds."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

from kordon.bench import results
from kordon.bench.results import DIRECT, FLOOR, KORDON, MANAGED, Results

_COLOURS: Final = {
    DIRECT: "#8a8f98",
    FLOOR: "#c2c7cf",
    KORDON: "#1f6feb",
    MANAGED: "#8250df",
    results.AIOKAFKA_DIRECT: "#8a8f98",
    results.AIOKAFKA_MANAGED: "#8250df",
    results.SDK: "#1a7f37",
}
_MANAGED: Final = (
    ("produce, MB/s, V = 4U", results.PRODUCE_MB),
    ("consume, MB/s, V = 4U", results.CONSUME_MB),
    ("CPU s per GB produced, V = 4U", results.PRODUCE_CPU),
    ("CPU s per GB consumed, V = 4U", results.CONSUME_CPU),
)
_SDK: Final = (
    ("SDK: produce, MB/s", results.PRODUCE_MB),
    ("SDK: consume, MB/s", results.CONSUME_MB),
)
_COLUMNS: Final = 4
_PEER_COLOUR: Final = "#d29922"


def draw(figures: Results, path: Path) -> None:
    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 # only after the backend is chosen: no display is needed

    mpl.rcParams["svg.hashsalt"] = "kordon"  # the same figures give the same file
    panels = (
        ("produce, MB/s", figures.base, results.PRODUCE_MB),
        ("consume, MB/s", figures.base, results.CONSUME_MB),
        ("CPU seconds per GB produced", figures.base, results.PRODUCE_CPU),
        ("CPU seconds per GB consumed", figures.base, results.CONSUME_CPU),
        (f"p99 ms, {figures.latency}", figures.latency, results.P99_MS),
        *((title, case, figure) for case in figures.managed[:1] for title, figure in _MANAGED),
        *((title, case, figure) for case in figures.sdk[:1] for title, figure in _SDK),
    )
    rows = -(-len(panels) // _COLUMNS)
    most = max(len(figures.contenders(case)) for _, case, _ in panels)
    picture, axes = plt.subplots(rows, _COLUMNS, figsize=(3.1 * _COLUMNS, rows * (1.2 + 0.4 * most)))
    for axis, panel in zip_longest(axes.flat, panels):
        if panel is None:
            axis.set_axis_off()
        else:
            _panel(axis, figures, *panel)
    picture.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, format="svg", metadata={"Date": None})
    plt.close(picture)


def _panel(axis: Any, figures: Results, title: str, case: str, figure: str) -> None:
    spreads = {each: figures.spread(case, each, figure) for each in reversed(figures.contenders(case))}
    there = {name: spread for name, spread in spreads.items() if spread is not None}
    medians = [spread.median for spread in there.values()]
    reach = [
        [spread.median - spread.least for spread in there.values()],
        [spread.most - spread.median for spread in there.values()],
    ]
    colours = [_COLOURS.get(name, _PEER_COLOUR) for name in there]
    axis.barh(list(there), medians, xerr=reach, color=colours, ecolor="#444c56", capsize=2, height=0.6)
    axis.set_title(title, fontsize=9)
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
