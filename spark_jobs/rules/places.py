"""The rules that wait for their data, by their numbers; importable without Spark."""

from __future__ import annotations

from typing import Final

from kordon.spark_jobs.rules import ic_algebra, range_drain, source_owner
from kordon.spark_jobs.rules.place import Place

PLACES: Final[tuple[Place, ...]] = (ic_algebra.PLACE, range_drain.PLACE, source_owner.PLACE)
"""What reports show as "no data yet"."""
