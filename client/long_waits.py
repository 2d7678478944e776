"""Says of partitions that have been held for long that they wait, and who knows for what."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from typing import Final

from aiokafka.structs import TopicPartition

LONG_SECONDS: Final = 30.0
"""Longer than a rebalance, a flush and a load take in a group that keeps up."""

_log = logging.getLogger(__name__)


class LongWaits:
    """Logs partitions of one consumer that wait for long.

    Args:
        seconds: The time after which a waiting partition is logged.
    """

    def __init__(self, seconds: float = LONG_SECONDS) -> None:
        self._seconds = seconds
        self._since: dict[TopicPartition, float] = {}

    def look(self, held: Collection[TopicPartition], now: float) -> None:
        """Takes in which partitions are held; once of each that has been held for long, it is said.

        Args:
            held: All that are held now.
            now: A monotonic clock, in seconds.
        """
        self._since = {tp: self._since.get(tp, now) for tp in held}
        late = sorted(tp for tp, since in self._since.items() if now - since >= self._seconds)
        if late:
            self._since.update(dict.fromkeys(late, math.inf))
            _log.warning(
                "Held for %.0f s: %s. Whoever has it in the group has not read and flushed what their keys were in "
                "before: `kordon topics describe %s` tells what that is, who has it and how far it is read",
                self._seconds,
                ", ".join(f"{tp.topic}-{tp.partition}" for tp in late),
                late[0].topic,
            )
