"""How far an audit is behind: what stands in the log of decisions and in the topics, less what is judged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kordon.codecs.errors import WireError
from kordon.spark_jobs.batch_reader import columns
from kordon.spark_jobs.batches_source import places_of
from kordon.spark_jobs.brokers import EARLIEST, LATEST, BrokersUnavailable, Cluster, PartitionKey
from kordon.spark_jobs.files_source import PATTERN
from kordon.spark_jobs.known import Totals
from kordon.spark_jobs.metrics import Behind
from kordon.spark_jobs.sources import Reading
from kordon.spark_jobs.storage import NOT_BEGUN

_SAMPLE_BYTES: Final = 64 << 10
_BYTES_OF_A_DECISION: Final = 400
"""Before any was read."""


class Lag:
    """Measures how far an audit is behind.

    Args:
        cluster: The brokers; None: only files are read.
        now: Returns the time, in seconds since 1970.
    """

    def __init__(self, reading: Reading, cluster: Cluster | None, now: Callable[[], float] = time.time) -> None:
        self._reading = reading
        self._cluster = cluster
        self._now = now

    def measure(self, judged: Sequence[str] | None, topics: Iterable[str], totals: Totals) -> Behind:
        """Asks the brokers, or looks at the files.

        Args:
            judged: The offsets behind the last micro-batch that was finished, JSON for each source; None: none was.

        Raises:
            BrokersUnavailable: The brokers cannot be asked.
        """
        told = [{} if each == NOT_BEGUN else json.loads(each) for each in judged or ()]
        decisions, batches = (*told, {}, {})[:2]
        if self._reading.folder is not None:
            count, age = self._of_files(self._reading.folder, decisions, totals)
        else:
            count, age = self._of_topic(places_of(decisions))
        return Behind(count, age, self._of_data(places_of(batches), topics, totals))

    def _of_topic(self, judged: Mapping[PartitionKey, int]) -> tuple[int, float]:
        behind = self._behind(judged, [self._reading.decisions_topic])
        ages = [self._age(place, start) for place, (start, _) in behind.items()]
        return sum(end - start for start, end in behind.values()), max(ages, default=0.0)

    def _behind(self, judged: Mapping[PartitionKey, int], topics: Iterable[str]) -> dict[PartitionKey, tuple[int, int]]:
        """The begin and the end of what is left, by partition."""
        if self._cluster is None:
            return {}
        places = self._cluster.partitions(topics)
        ends, starts = self._cluster.ends(places, LATEST), self._cluster.ends(places, EARLIEST)
        found = {place: (max(starts[place], judged.get(place, 0)), ends[place]) for place in places}
        return {place: (start, end) for place, (start, end) in found.items() if start < end}

    def _age(self, place: PartitionKey, start: int) -> float:
        """Returns the age of the record at an offset; 0.0 where the brokers do not tell."""
        assert self._cluster is not None
        try:
            rows = columns(self._cluster.fetch(place, start, _SAMPLE_BYTES), place)
        except (BrokersUnavailable, WireError):
            return 0.0
        if rows is None or rows[0].is_empty():
            return 0.0
        return self._since(rows[0].item(0, "max_timestamp_ms"))

    def _of_data(self, judged: Mapping[PartitionKey, int], topics: Iterable[str], totals: Totals) -> int:
        offsets = sum(end - start for start, end in self._behind(judged, topics).values())
        return int(offsets * totals.bytes / max(1, sum(judged.values())))

    def _of_files(self, folder: Path, judged: Mapping[str, int], totals: Totals) -> tuple[int, float]:
        unread = 0
        ages: list[float] = []
        for path in folder.glob(PATTERN):
            try:
                left = path.stat().st_size - judged.get(path.name, 0)
                age = self._age_of_line(path, judged.get(path.name, 0)) if left > 0 else None
            except FileNotFoundError:
                continue  # removed since
            if age is not None:
                unread += left
                ages.append(age)
        each = sum(judged.values()) / totals.decisions if totals.decisions else _BYTES_OF_A_DECISION
        return (max(1, round(unread / max(1.0, each))) if ages else 0), max(ages, default=0.0)

    def _age_of_line(self, path: Path, start: int) -> float | None:
        """Returns the age of the decision at a place in a file; None: there is no whole line."""
        with path.open("rb") as file:
            file.seek(start)
            line = file.readline(_SAMPLE_BYTES)
        if not line.endswith(b"\n"):
            return None
        try:
            return self._since(int(json.loads(line)["at_ms"]))
        except (ValueError, KeyError, TypeError):
            return 0.0  # no decision; the audit counts it

    def _since(self, at_ms: int) -> float:
        return max(0.0, self._now() - at_ms / 1000)
