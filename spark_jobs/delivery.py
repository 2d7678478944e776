"""Carries findings from the audit's folder to a topic and a table, and makes up for what could not be written.

The folder has every finding before anything else is tried. Where a topic or table takes none, the audit continues: how
many wait is a metric, the first micro-batch that waits stands in `undelivered.json`, and the next try writes all from
there on, also after a restart.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from kordon.spark_jobs.errors import cause_of
from kordon.spark_jobs.findings import COLUMNS, Sinks
from kordon.spark_jobs.metrics import AuditMetrics
from kordon.spark_jobs.storage import Storage

FILE: Final = "undelivered.json"
PLACES: Final = ("topic", "table")
"""Labels of the metric."""
AGAIN_SECONDS: Final = 30.0
"""From one try that failed to the next: a topic that does not answer must not hold up every micro-batch."""

log: Final = logging.getLogger("kordon.audit")


class Delivery:
    """Writes findings to all places; see the module.

    Args:
        clock: A clock in seconds, for the time between tries.
    """

    def __init__(
        self, storage: Storage, sinks: Sinks, metrics: AuditMetrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._storage = storage
        self._metrics = metrics
        self._clock = clock
        self._writes: dict[str, tuple[str, Callable[[DataFrame, int, int], None]]] = {}
        if (topic := sinks.topic) is not None:
            self._writes["topic"] = topic.told, lambda rows, first, last: topic.write(rows)
        if (table := sinks.table) is not None:
            self._writes["table"] = table.told, table.write
        self._waiting: dict[str, int] | None = None
        self._again_at: dict[str, float] = {}
        self._told: dict[str, str] = {}
        self._last: int | None = None

    @property
    def waiting(self) -> Mapping[str, int]:
        """The first micro-batch whose findings a place lacks, by place."""
        if self._waiting is None:
            self._waiting = {name: number for name, number in self._load().items() if name in self._writes}
        return self._waiting

    def write(self, batch_id: int, count: int, *, is_last: bool = False) -> None:
        """Writes the findings of a micro-batch, and those that wait, to all places.

        Args:
            batch_id: The micro-batch; its findings are in the folder.
            count: The number of its findings.
            is_last: Whether no try comes after this one. Then a try that has just failed is repeated at once.
        """
        may_have_more = self._last is None or batch_id <= self._last  # what an earlier try has left there
        self._last = batch_id
        for place in self._writes:
            first = min(self.waiting.get(place, batch_id), batch_id)
            if place not in self.waiting and not count and not (may_have_more and place == "table"):
                continue
            if is_last or self._clock() >= self._again_at.get(place, 0.0):
                self._try(place, first, batch_id)
            else:
                self._wait(place, first, batch_id)

    def write_waiting(self, batch_id: int) -> None:
        """Writes what waits, if it is time for another try.

        Args:
            batch_id: The last micro-batch that was finished.
        """
        for place, first in list(self.waiting.items()):
            if first <= batch_id and self._clock() >= self._again_at.get(place, 0.0):
                self._try(place, first, batch_id)

    def _try(self, place: str, first: int, last: int) -> None:
        told, write = self._writes[place]
        rows = self._storage.read_all("findings", first, last, COLUMNS)
        try:
            write(rows, first, last)
        except (PySparkException, Py4JError) as error:
            if "cancelled" in str(error):
                raise  # the audit is being ended
            self._again_at[place] = self._clock() + AGAIN_SECONDS
            self._wait(place, first, last)
            self._warn(place, told, cause_of(str(error)))
            return
        self._again_at.pop(place, None)
        self._told.pop(place, None)
        self._done(place, told)

    def _warn(self, place: str, told: str, cause: str) -> None:
        """Says why, once: as long as it is the same, the metric tells that it continues."""
        if self._told.get(place) == cause:
            return
        self._told[place] = cause
        log.warning(
            "findings cannot be written to %s: they stay in %s until they can (%s)", told, self._storage.folder, cause
        )

    def _wait(self, place: str, first: int, last: int) -> None:
        if self.waiting.get(place) != first:
            self._save({**self.waiting, place: first})
        self._metrics.undelivered(place, self._storage.read_all("findings", first, last, COLUMNS).count())

    def _done(self, place: str, told: str) -> None:
        if place in self.waiting:
            self._save({name: number for name, number in self.waiting.items() if name != place})
            self._metrics.undelivered(place, 0)
            log.info("%s has all findings that waited", told)

    def _save(self, waiting: dict[str, int]) -> None:
        self._waiting = waiting
        self._storage.put_json(FILE, waiting)

    def _load(self) -> dict[str, int]:
        try:
            told = json.loads(self._storage.get_text(FILE) or "{}")
        except (ValueError, Py4JError):
            return dict.fromkeys(PLACES, 0)  # the machine died while it was written: all is written again
        return {str(name): int(number) for name, number in told.items()}
