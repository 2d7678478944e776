"""Keeps clients from filling the log: each cause gets a few lines, and one that counts the rest."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

log = structlog.get_logger(__name__)

WINDOW_SECONDS: Final = 30.0
"""How long the lines of one cause are counted together."""
LINES: Final = 5
"""Lines of one cause that are written in a window; `repeated` counts the others."""
_MARK: Final = "by_clients"
_CAUSES: Final = ("cause", "reason", "kind")
"""Facts whose values Kordon chooses, so that there are few of them."""


def client_log(name: str) -> FilteringBoundLogger:
    """Returns a logger for events that a client can bring about as often as it likes."""
    logger: FilteringBoundLogger = structlog.get_logger(name, **{_MARK: True})
    return logger


class LogLimits:
    """A processor of structlog that drops the lines of a cause which has had its share.

    Args:
        clock: A monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._windows: dict[tuple[str, ...], _Window] = {}

    def __call__(self, _: WrappedLogger, __: str, event: EventDict) -> EventDict:
        """Lets a line pass.

        Raises:
            structlog.DropEvent: The cause of the line has had its share of lines.
        """
        if not event.pop(_MARK, False):
            return event
        key = (str(event["event"]), *(str(event[name]) for name in _CAUSES if name in event))
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(self._clock())
        window.lines += 1
        if window.lines > LINES:
            raise structlog.DropEvent
        return event

    def tell(self) -> None:
        """Ends the windows whose time is over, and says how many lines each has dropped; to be called now and then."""
        now = self._clock()
        over = [key for key, window in self._windows.items() if now - window.began >= WINDOW_SECONDS]
        for key in over:
            self._sum_up(key)

    def tell_all(self) -> None:
        """Ends all windows, at the end of a process."""
        for key in list(self._windows):
            self._sum_up(key)

    def _sum_up(self, key: tuple[str, ...]) -> None:
        more = self._windows.pop(key).lines - LINES
        if more > 0:
            event, *causes = key
            why = {"cause": ", ".join(causes)} if causes else {}
            log.warning("repeated", of=event, **why, more=more)


class _Window:
    """The lines that one cause has had in its window."""

    __slots__ = ("began", "lines")

    def __init__(self, began: float) -> None:
        self.began = began
        self.lines = 0


limits: Final = LogLimits()
"""Those of this process, whose lines all go to one place."""
