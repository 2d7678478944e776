"""RANGE-DRAIN (9): a range of keys has one consumer at a time, and all ranges together are all keys (KIP-X).

It will hold, per generation of a group, that the key ranges of a partition cover [0, 2^63 - 1] once; that a record was
given to the owner of its range alone; and that a range which moved was not given to its new owner while the old one
still had records of it. For that the topic's own records are hashed again, by xxhash64 as the ranges are.

Its data are the assignments of key ranges, and deliveries per range. No decision carries them yet. State will be the
ranges of the newest two generations per group and partition, and of each what its owner has and has not committed.
"""

from __future__ import annotations

from typing import Final

from kordon.spark_jobs.rules.place import Place

PLACE: Final = Place(
    number=9,
    name="RANGE-DRAIN",
    proves="Each record went to the owner of its key range alone, the ranges of a partition cover all keys once, and a "
    "range that moved was drained by its old owner first.",
    waits_for="cooperative consumers (KIP-X): decisions on key ranges and what was delivered of each",
)
