"""Records of the layouts that nobody needs after a while; the controller removes them.

    outcome/<id>                once whoever wished has long been told, or has given up waiting
    gone/<incarnation>          once its lease would have ended anyway
    ack/<fence>/<incarnation>   once its fence has ended; those that came in time go with it

Ages count from when this proxy read a record, so none goes too early, whoever's clock is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from typing import Final

from kordon.proxy.ordering.records import kind_of

MOST_KEPT: Final = 50_000
"""Of a kind; of what is more, the oldest is forgotten here, and found again by a proxy that starts."""
GONE: Final = "gone"


class Leftovers:
    """Keeps how old such records are.

    Args:
        seconds: The age from which on a record is no longer needed, by kind.
    """

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds
        self._read: dict[str, dict[str, float]] = {kind: {} for kind in seconds}
        """By kind and key, when it was read; the oldest first."""

    def __len__(self) -> int:
        return sum(map(len, self._read.values()))

    def clear(self) -> None:
        """Forgets all, as the log is read again from its beginning."""
        for kept in self._read.values():
            kept.clear()

    def on_record(self, key: str, now: float, *, is_tombstone: bool) -> None:
        """Takes in a record of the layouts; of other kinds, nothing."""
        kept = self._read.get(kind_of(key))
        if kept is None:
            return
        kept.pop(key, None)
        if not is_tombstone:
            kept[key] = now
            if len(kept) > MOST_KEPT:
                del kept[next(iter(kept))]

    def due(self, now: float, members: Collection[str], most: int) -> list[str]:
        """Returns the keys of what nobody needs any more.

        Args:
            now: Seconds on the clock of `on_record`.
            members: Incarnations of the proxies' group, whose word that they go is needed still.
        """
        standing = {f"{GONE}/{each}" for each in members}
        found: list[str] = []
        for kind, kept in self._read.items():
            found += [key for key in _old(kept, now - self._seconds[kind]) if key not in standing]
        return found[:most]


def _old(kept: Mapping[str, float], until: float) -> Iterator[str]:
    return takewhile(lambda key: kept[key] <= until, kept)
