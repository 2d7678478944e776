"""Pages that need brokers are followed from top to bottom: each command does what stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.pages.followed_pages import Followed, follow, is_on_a_network, refusal
from kordon.testing.pages.page_commands import Step, is_shown, steps

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] if is_on_a_network(page.read_text())
)


@pytest.fixture(scope="module")
def followed() -> dict[str, Followed]:
    """What became of each page, on a network of its own with brokers at the addresses that are printed."""
    if reason := refusal():
        pytest.skip(reason)
    if DESCRIBED_PRODUCERS.is_missing:
        pytest.skip(DESCRIBED_PRODUCERS.reason)
    return {each.page: each for each in follow(PAGES)}


@pytest.mark.broker
@pytest.mark.beside
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_a_page_that_is_followed_does_what_it_shows(page: str, followed: dict[str, Followed]) -> None:
    """Every command succeeds and says what stands below it."""
    assert followed[page].problem is None
    assert followed[page].commands > 0


def test_the_first_pages_of_a_reader_are_among_them() -> None:
    """No page stops being followed because its marks are gone."""
    first = {
        "README.md",
        "tutorial.md",
        "how-to.md",
        "managing.md",
        "taking-over.md",
        "compacted-topics.md",
        "sdk.md",
        "quickstart.md",
        "cli.md",
        "decisions.md",
    }
    assert first <= {page.name for page in PAGES}


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("orders has 6 partitions, 3 before (0.3 s)\n", "orders has 6 partitions, 3 before (12.7 s)\n"),
        ("…\nContinue? [y/N]: y\ndone\n", "It means:\n - much\n\nContinue? [y/N]: done\n"),
        ("still waiting: at most …\n", "still waiting: at most 30 s; see there\n"),
        ("before 2026-11-21 12:14:05Z, when\n", "before 2027-01-02 03:04:05Z, when\n"),
        ("first\n…\n", "first\nsecond\nthird\n"),
        ("orders has 6 partitions\n", "orders: growing 3 -> 6: writing the fence\norders has 6 partitions\n"),
        ("a is managed (0.2 s)\n", "a: serving 3: waits for the controller\na is managed (3.5 s)\n"),
        (
            "a is managed (0.2 s)\n",
            "a: serving 3 of 48: not by this proxy, a lease ended\na is managed (3.5 s)\n",
        ),
        ("a is managed (0.2 s)\n", "a: manage is under way: writing the layout\na is managed (3.5 s)\n"),
        (
            "…\nContinue? [y/N]: y\norders is managed\n",
            "It means\nContinue? [y/N]: orders: coming under management with 48 virtual partitions: writing\n"
            "orders is managed\n",
        ),
    ],
)
def test_times_and_what_is_left_out_may_differ(shown: str, said: str) -> None:
    """A page need not print what nobody can know."""
    assert is_shown(shown, said)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("orders has 6 partitions, 3 before (0.3 s)\n", "orders has 6 partitions, 4 before (0.3 s)\n"),
        ("good\n", "good\nbut\n"),
        ("good\n", ""),
        ("…\nlast\n", "first\nlast but one\n"),
    ],
)
def test_another_output_is_found_out(shown: str, said: str) -> None:
    """Whatever differs: a number, a line more, nothing at all."""
    assert not is_shown(shown, said)


def test_a_command_ends_with_its_line() -> None:
    """Unless that ends with a backslash; what stands below it is its output."""
    text = "$ one \\\n    two\nsaid\n$ three\n…\nContinue? [y/N]: y\n"
    first, second = steps(text)
    assert first == Step("one \\\n    two", "said\n")
    assert (second.command, second.answers) == ("three", "y\n")


def test_a_command_may_fail_if_its_exit_code_is_shown() -> None:
    """By `echo $?`; all others must succeed."""
    assert [each.may_fail for each in steps("$ one\n$ two\nno\n$ echo $?\n1\n$ three\n")] == [False, True, False, False]
