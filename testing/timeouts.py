"""How long a test may take: a plugin of pytest that counts the processor time of those that wait for nobody.

Tests without brokers and programs run at a low priority, beside all others. A busy machine may leave them no processor
for minutes, and a test that goes on for ever uses it up all the same. So pytest-timeout's seconds are processor time
for them, and time by the clock for all others. One that waits for what never comes ends by the clock, too, but later.

Where uvloop runs, what a timer raises goes no further than a callback, and the test goes on. So a minute later its
process tells where all its threads stand, and exits.
"""

from __future__ import annotations

import faulthandler
import signal
from types import FrameType
from typing import Final, Protocol

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

from kordon.testing.lanes import PLAIN, lane_of

TIMES_BY_THE_CLOCK: Final = 4
"""So many times as long as it may take of the processor, a test may take by the clock."""
GRACE_SECONDS: Final = 60.0
"""For a test that was told to end."""
_SIGNALS: Final[dict[int, signal.Signals]] = {signal.ITIMER_PROF: signal.SIGPROF, signal.ITIMER_REAL: signal.SIGALRM}
"""By timer, what it sends."""


class Settings(Protocol):
    """What pytest-timeout tells of a test."""

    timeout: float
    """Seconds."""


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> bool | None:
    """Sets the timers of a test that waits for nobody; pytest-timeout sets those of the others."""
    seconds = settings.timeout
    by_clock = seconds * (TIMES_BY_THE_CLOCK if lane_of(item) == PLAIN else 1)
    if not _has_an_end_of_its_own(item):
        told_to = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(by_clock + GRACE_SECONDS, exit=True, file=told_to)
    if lane_of(item) != PLAIN:
        return None
    _set(signal.ITIMER_PROF, seconds, f"The test has used more than {seconds:g} s of processor time.")
    _set(signal.ITIMER_REAL, by_clock, f"The test has not come to its end in {by_clock:g} s: it waits for something.")
    return True


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    """Stops them; where they are not set, this changes nothing."""
    if not _has_an_end_of_its_own(item):
        faulthandler.cancel_dump_traceback_later()
    for timer, sent in _SIGNALS.items():
        signal.setitimer(timer, 0)
        signal.signal(sent, signal.SIG_DFL)


def _has_an_end_of_its_own(item: pytest.Item) -> bool:
    """Says whether a run has left pytest's faulthandler out, and ends its process itself (`forked_pytest.py`)."""
    return fault_handler_stderr_fd_key not in item.config.stash


def _set(timer: int, seconds: float, words: str) -> None:
    def fail(_: int, __: FrameType | None) -> None:
        pytest.fail(words)

    signal.signal(_SIGNALS[timer], fail)
    signal.setitimer(timer, seconds)
