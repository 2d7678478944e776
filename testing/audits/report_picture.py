"""The picture of a report in the README: its verdict and the first topic's timeline, what lies between left out.

`make demo` says where the report of its run is. Of that, `python -m kordon.testing.audits.report_picture REPORT PNG`
makes the picture.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from kordon.testing.pages.browser import Page, browser

WIDTH: Final = 1120
_NOT_SHOWN: Final = "#since, #rules, #findings, #decisions, .tools"
_LEAVE_OUT: Final = f"document.querySelectorAll('{_NOT_SHOWN}').forEach((each) => each.remove())"
_BOTTOM: Final = "Math.ceil(document.querySelector('svg.timeline').getBoundingClientRect().bottom) + 2"


def draw(report: Path, out: Path) -> None:
    """Writes the picture of a report, a PNG."""
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder)) as page:
        height, _ = _seen(page, report, 900)
        out.write_bytes(_seen(page, report, height)[1])


def _seen(page: Page, report: Path, height: int) -> tuple[int, bytes]:
    """Returns how high a window has to be, and what is seen in one of some height."""
    page.load(report, width=WIDTH, height=height)
    page.value(_LEAVE_OUT)
    return int(page.value(_BOTTOM)), page.picture()


if __name__ == "__main__":
    draw(*map(Path, sys.argv[1:3]))
