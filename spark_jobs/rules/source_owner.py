"""SOURCE-OWNER (10): a partition of a source has one producer at a time, and none is forgotten (KIP-509).

It will hold, per generation of a group of producers, that each source partition has one owner at most and that all are
owned; that commits of older generations are refused; and that data and restart point appear together, as both are
written in one transaction: the restart points are read from their topic like any other data.

Its data are the assignments of source partitions and the commits of restart points. No decision carries them yet. State
will be the owners of the newest two generations per group, and per source partition the last restart point.
"""

from __future__ import annotations

from typing import Final

from kordon.spark_jobs.rules.place import Place

PLACE: Final = Place(
    number=10,
    name="SOURCE-OWNER",
    proves="Each source partition had one owner per generation, commits of older generations were refused, and data "
    "and restart points appeared together.",
    waits_for="producer groups (KIP-509): decisions on the owners of sources and their restart points",
)
