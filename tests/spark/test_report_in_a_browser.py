"""The report as a real browser shows it: whole, still, readable, and deaf to what clients have put into their names."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kordon.spark_jobs import report
from kordon.spark_jobs.report.compare import Former
from kordon.spark_jobs.report.tables import read
from kordon.testing.audits import report_picture, report_sample
from kordon.testing.pages import browser
from kordon.testing.waiting import wait_until

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(
        browser.PROGRAM is None, reason="there is no Chromium here: install it (Debian: apt install chromium)"
    ),
]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the sample, compared with an audit that has not found it."""
    folder = tmp_path_factory.mktemp("report")
    report_sample.write(folder / "audit")
    report_sample.write(folder / "before", findings=[{**report_sample.FINDING, "finding_id": "gone"}])
    former = Former(name="yesterday", tables=read(folder / "before"), is_itself=False)
    report.write(folder / "audit", folder / "report.html", former)
    return folder / "report.html"


@pytest.fixture(scope="module")
def opened(page_file: Path) -> Iterator[browser.Page]:
    """A browser."""
    with browser.browser(page_file.parent) as started:
        yield started


@pytest.fixture
def page(opened: browser.Page, page_file: Path) -> browser.Page:
    """The report as it is when it has been loaded."""
    opened.load(page_file)
    return opened


def test_the_page_loads_without_an_error_and_asks_for_nothing_else(page: browser.Page, page_file: Path) -> None:
    """Its policy forbids every request, so a violation would be an entry of the browser's log."""
    assert page.value("document.readyState") == "complete"
    assert page.troubles == []
    assert page.requests == [page_file.as_uri()]


def test_names_that_clients_choose_are_text(page: browser.Page) -> None:
    """The sample's client id is a script and an image with an error handler."""
    assert page.value("document.title") == "Kordon audit: A promise was broken."
    assert page.value("document.images.length") == 0
    assert page.value("document.body.textContent.includes(\"<script>document.title='owned'\")") is True


def test_charts_are_drawn_within_their_frames_and_have_words(page: browser.Page) -> None:
    """Timeline, written and delivered: seen, with a title, a description and a caption."""
    charts: list[dict[str, Any]] = page.value(
        """[...document.querySelectorAll('figure > svg.chart')].map((svg) => {
             const box = svg.getBoundingClientRect();
             const shapes = [...svg.querySelectorAll('path, rect, text')].map((each) => each.getBoundingClientRect());
             return {
               width: box.width, height: box.height,
               outside: shapes.filter((each) => each.left < box.left - 1 || each.right > box.right + 8
                 || each.top < box.top - 1 || each.bottom > box.bottom + 1).length,
               paths: [...svg.querySelectorAll('path')].filter((path) => path.getTotalLength() > 100).length,
               title: svg.querySelector('title').textContent, words: svg.querySelector('desc').textContent,
               caption: svg.closest('figure').querySelector('figcaption').textContent,
             };
           })"""
    )

    assert [chart["title"] for chart in charts] == [
        "Layouts, fences, pauses, traffic and lag of orders",
        "Records written per virtual partition of orders",
        "Records delivered per virtual partition of orders",
    ]
    assert "3 → 4 → 5 → 6 → 5 → 4" in charts[0]["words"]
    for chart in charts:
        assert chart["width"] > 800
        assert chart["height"] > 200
        assert chart["outside"] == 0
        assert chart["paths"] >= 6
        assert chart["words"] in chart["caption"]


def test_numbers_are_shown_under_the_pointer(page: browser.Page) -> None:
    """In the middle of the timeline there are six partitions."""
    page.value("document.querySelector('svg.timeline').scrollIntoView({block: 'center'})")
    box = page.value("(({x, y, width, height}) => [x + width / 2, y + height / 2])"
                     "(document.querySelector('svg.timeline').getBoundingClientRect())")  # fmt: skip

    page.move_pointer(*box)

    assert page.value("document.getElementById('tip').hidden") is False
    assert "partitions 6" in page.value("document.getElementById('tip').textContent")


def test_a_link_to_a_decision_unfolds_it(page: browser.Page) -> None:
    """It lies in view, below the bar."""
    assert page.value("document.querySelector('details.proof').open") is False

    page.value("document.querySelector('.proofs a').click()")

    def is_seen() -> bool:
        top = page.value("document.getElementById('decision-1').getBoundingClientRect().top")
        return bool(page.value("document.querySelector('.bar').getBoundingClientRect().bottom") <= top < 900)

    wait_until("the decision is seen", is_seen)
    assert page.value("document.querySelector('details.proof').open") is True


def test_a_command_is_chosen_by_its_button(page: browser.Page) -> None:
    """Where the browser gives a page no clipboard, the keyboard copies what is selected."""
    chosen = page.value(
        """(() => {
             const boxes = [...document.querySelectorAll('.finding .copied')];
             return boxes.map((box) => {
               box.querySelector('button').click();
               return [getSelection().toString(), box.querySelector('pre').textContent];
             });
           })()"""
    )

    assert [command.split()[0] for command, _ in chosen] == ["kordon", "kafka-console-consumer.sh"]
    assert all(selected == command for selected, command in chosen)


def test_tables_are_sorted_by_a_click_on_a_heading(page: browser.Page) -> None:
    """Numbers by their size; a screen reader is told."""
    written = page.value(
        """(() => {
             const tables = [...document.querySelectorAll('table.sortable')];
             const table = tables.find((each) => each.tBodies[0].rows.length === 24);
             const head = table.tHead.rows[0].cells[3];
             head.querySelector('button').click();
             const cells = [...table.tBodies[0].rows].map((row) => row.cells[3]);
             return [head.getAttribute('aria-sort'), ...cells.map((cell) => +cell.dataset.sort)];
           })()"""
    )

    assert written[0] == "ascending"
    assert written[1:] == sorted(written[1:])


_CONTRAST = """(() => {
  const parse = (color) => color.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const color = parse(getComputedStyle(each).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const bad = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || ['SCRIPT', 'STYLE', 'title', 'desc'].includes(node.tagName)) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(parse(node.closest('svg.chart') ? style.fill : style.color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.add(`${node.tagName}.${node.getAttribute('class')} ${ratio.toFixed(1)}`);
  }
  return [...bad];
})()"""


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_in_light_and_in_dark(opened: browser.Page, page_file: Path, *, is_dark: bool) -> None:
    """All text has a contrast of 4.5 at least (WCAG AA); the browser's preference decides which it is."""
    opened.load(page_file, is_dark=is_dark)

    assert opened.value(_CONTRAST) == []
    assert opened.value("getComputedStyle(document.documentElement).colorScheme") == ("dark" if is_dark else "light")
    assert opened.troubles == []


def test_the_page_prints(page: browser.Page) -> None:
    """With everything that is folded on the screen."""
    paper = page.paper()

    assert paper.startswith(b"%PDF")
    assert len(paper) > 50_000
    assert page.troubles == []


def test_the_picture_of_the_manual_shows_the_verdict_and_a_topic(page_file: Path, tmp_path: Path) -> None:
    """It ends with the timeline, wherever that ends."""
    report_picture.draw(page_file, tmp_path / "picture.png")

    told = (tmp_path / "picture.png").read_bytes()
    width, height = struct.unpack(">II", told[16:24])
    assert told.startswith(b"\x89PNG")
    assert width == report_picture.WIDTH
    assert 800 < height < 1600


def test_a_phone_shows_it_without_scrolling_sideways(opened: browser.Page, page_file: Path) -> None:
    """Wide tables and charts scroll within themselves."""
    opened.load(page_file, width=390, height=800)

    assert opened.value("document.documentElement.scrollWidth") <= 390
