"""No client fills the log: a cause has a few lines in each window, and one that counts the others."""

from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import LogCapture

from kordon.proxy.runtime import log_limits
from kordon.proxy.runtime.log_limits import LINES, WINDOW_SECONDS, LogLimits, client_log


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> LogLimits:
    return LogLimits(clock)


@pytest.fixture
def lines(limits: LogLimits) -> Iterator[LogCapture]:
    """What is logged, in a process with these limits."""
    captured = LogCapture()
    structlog.configure(processors=[limits, captured])
    yield captured
    structlog.reset_defaults()


def test_ten_thousand_refusals_are_a_few_lines(clock: Clock, limits: LogLimits, lines: LogCapture) -> None:
    """Ten thousand refusals over a minute give no more than twenty lines, which account for all of them."""
    log = client_log("test")
    for number in range(10_000):
        log.warning("group_refused", reason="virtual partitions", group=f"group-{number}")
        clock.now += 60 / 10_000
        if number % 100 == 0:
            limits.tell()
    limits.tell_all()
    assert len(lines.entries) <= 20
    more = [line["more"] for line in lines.entries if line["event"] == "repeated"]
    assert sum(more) + len(lines.entries) - len(more) == 10_000


def test_summary_names_what_was_left_out(clock: Clock, limits: LogLimits, lines: LogCapture) -> None:
    """The sum comes when the window is over, once, with the event and its cause."""
    for _ in range(LINES + 3):
        client_log("test").warning("connection_closed", cause="malformed_request")
    limits.tell()
    assert len(lines.entries) == LINES
    clock.now += WINDOW_SECONDS
    limits.tell()
    limits.tell()
    assert lines.entries[LINES:] == [
        {
            "event": "repeated",
            "of": "connection_closed",
            "cause": "malformed_request",
            "more": 3,
            "log_level": "warning",
        }
    ]


def test_causes_are_counted_apart(lines: LogCapture) -> None:
    """A flood of one cause hides no other."""
    for _ in range(100):
        client_log("test").warning("connection_closed", cause="malformed_request")
    client_log("test").warning("connection_closed", cause="memory_limit")
    assert lines.entries[-1]["cause"] == "memory_limit"


def test_words_of_clients_make_no_causes_of_their_own(limits: LogLimits, lines: LogCapture) -> None:
    """Facts that clients choose do not count as causes, so a client cannot have a line for each of its names."""
    for number in range(100):
        client_log("test").warning("join_refused", group=f"group-{number}", client=f"host-{number}")
    assert len(lines.entries) == LINES


def test_what_no_client_brings_about_is_not_limited(lines: LogCapture) -> None:
    """A change of a hundred topics is a hundred lines."""
    for number in range(100):
        structlog.get_logger("test").info("layout_changed", topic=f"topic-{number}")
    assert len(lines.entries) == 100


def test_the_process_has_one_set_of_limits() -> None:
    """All modules of a process count together."""
    assert isinstance(log_limits.limits, LogLimits)
