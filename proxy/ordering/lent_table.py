"""What one proxy knows of all transactional ids whose epochs Kordon lends, by the records that it has read.

The log is compacted, so a record that does not count must not stay the last of its key: its key is *spoilt* until one
that counts stands behind it. Whoever has written the former mends that, or after a while anybody.

An id is forgotten by a record without a value, which counts if the id had been silent for `FORGET_MS` by the times of
the two records. So all proxies agree on that, and a request that came meanwhile is not forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kordon.proxy.ordering import lent_epochs
from kordon.proxy.ordering.lent_epochs import TAKE_OVER_SECONDS, Lent

FORGET_MS: Final = 8 * 24 * 3_600_000
"""A day more than brokers keep an id that nobody uses (transactional.id.expiration.ms by default)."""
MOST_IDS: Final = 100_000
"""Ids that are known; more are not taken up. One takes about 1 KB of memory."""


@dataclass(slots=True)
class _KnownLent:
    lent: Lent | None
    """None: its last record is of a later version."""
    written_ms: int
    """When the last record that counts was written, as it says."""
    read_at: float
    """When that was read, in seconds of the caller's clock."""
    spoilt_at: float | None = None
    """When a record that does not count was read behind it; None: there is none."""


class LentTable:
    """What is known, by key (`lent_epoch_records.key_of`).

    Args:
        most_ids: Ids that are known at most.
    """

    def __init__(self, most_ids: int = MOST_IDS) -> None:
        self._known: dict[str, _KnownLent] = {}
        self._spoilt: dict[str, _KnownLent] = {}
        self._most_ids = most_ids

    def __len__(self) -> int:
        """Returns how many ids are known."""
        return len(self._known)

    def lent(self, key: str) -> Lent | None:
        """Returns what is known of an id; None: nothing."""
        known = self._known.get(key)
        return known.lent if known is not None else None

    def is_unreadable(self, key: str) -> bool:
        """Whether a later version of Kordon has written the last record of an id."""
        known = self._known.get(key)
        return known is not None and known.lent is None

    def is_full_for(self, key: str) -> bool:
        """Whether an id is not known, and is not to be taken up."""
        return key not in self._known and len(self._known) >= self._most_ids

    def may_take_over(self, key: str, now: float) -> bool:
        """Whether a claim has stood as the last record of an id for so long that its proxy has given up."""
        known = self._known.get(key)
        return known is not None and now - known.read_at >= TAKE_OVER_SECONDS

    def take_in(self, key: str, record: Lent | None, written_ms: int, now: float) -> bool:
        """Takes in the next record of an id; returns whether it counts.

        Args:
            record: The contents of the record. None: it is of a later version.
            written_ms: The time of the record, in milliseconds since 1970.
            now: Seconds of a monotonic clock.
        """
        known = self._known.get(key)
        if known is None and len(self._known) >= 2 * self._most_ids:
            return False  # no proxy writes so many: somebody has forged them
        if known is not None and record is not None and not lent_epochs.counts(known.lent, record):
            self._spoil(key, known, now)
            return False
        self._known[key] = _KnownLent(record, written_ms, now)
        self._spoilt.pop(key, None)
        return True

    def forget(self, key: str, written_ms: int, now: float) -> bool:
        """Takes in a record without a value; returns whether the id is forgotten."""
        known = self._known.get(key)
        if known is None:
            return False
        if written_ms - known.written_ms < FORGET_MS:
            self._spoil(key, known, now)
            return False
        del self._known[key]
        self._spoilt.pop(key, None)
        return True

    def spoil(self, key: str, now: float) -> None:
        """Notes a record that cannot be read."""
        known = self._known.get(key)
        if known is not None:
            self._spoil(key, known, now)

    def _spoil(self, key: str, known: _KnownLent, now: float) -> None:
        known.spoilt_at = now
        self._spoilt[key] = known

    def mended(self, key: str) -> Lent | None:
        """Returns the record that is to be written behind one that does not count; None: all is well."""
        known = self._spoilt.get(key)
        return lent_epochs.repeated(known.lent) if known is not None and known.lent is not None else None

    def left_spoilt(self, now: float) -> list[str]:
        """Returns the keys that somebody else had the time to mend."""
        return [
            key
            for key, known in self._spoilt.items()
            if known.spoilt_at is not None and now - known.spoilt_at >= TAKE_OVER_SECONDS
        ]

    def silent(self, now_ms: int) -> Iterator[str]:
        """Yields the keys of ids that may be forgotten."""
        for key, known in self._known.items():
            if now_ms - known.written_ms >= FORGET_MS:
                yield key
