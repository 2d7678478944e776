"""What parts of a proxy cost by their number, and what many proxies do in virtual time: measured, and on a page."""

import re
from pathlib import Path

from kordon.bench import results
from kordon.bench.report import scale_tables
from kordon.bench.results import Results
from kordon.bench.scale import PARTS, PROXIES, measure_scale, of_proxies

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


def test_a_small_run_has_all_figures_of_the_page() -> None:
    """Its tables have the columns of the page's, whose rows are numbers."""
    run = Results("smoke", "", 1, "", "", "", "", {}, scale=(*PARTS, PROXIES))
    run.measurements = list(measure_scale((5, 10), (3, 4)))
    tables = scale_tables(run)
    page = PAGE.read_text().splitlines()
    for line in tables:
        if line.startswith(("| what", "## ")):
            assert line.strip("# ") in page or line in page, line
    rows = [line for line in page if line.startswith(tuple(f"| {each}" for each in (*PARTS, PROXIES)))]
    assert len(rows) == 3 * len(PARTS) + 4
    assert all(re.fullmatch(r"\| [^|]+ \| [\d,]+ \|( [\d.]+ \|)+", line) for line in rows), rows


def test_a_change_takes_no_longer_with_more_proxies() -> None:
    """In virtual time, where machines are as fast as need be; the records that it takes are as many as proxies."""
    few, many = of_proxies(3), of_proxies(12)
    assert many[results.SCALE_FENCE_MS] < few[results.SCALE_FENCE_MS] + 500
    assert many[results.SCALE_RECORDS] - few[results.SCALE_RECORDS] <= 5 * (12 - 3)
