"""IC-ALGEBRA (8): the ranges that members of a group commit one by one add up (KIP-X, individual commit).

It will hold, per group and partition, each committed range against those before: ranges are disjoint and never
adjacent (adjacent ones are one), all lie above the stable offset, and that never falls. The stable offset is Kafka's
committed offset, the *next* one to process, where the proposal's own is the last one processed.

Its data are the commits of single records and ranges by cooperative consumers. No decision carries them yet: Kordon
does not serve these requests. State will be the ranges of each group and partition, bounded by the proposal's own limit
of ranges per partition.
"""

from __future__ import annotations

from typing import Final

from kordon.spark_jobs.rules.place import Place

PLACE: Final = Place(
    number=8,
    name="IC-ALGEBRA",
    proves="Committed ranges of a group and partition are disjoint, not adjacent, above the stable offset, and that "
    "never falls.",
    waits_for="cooperative consumers (KIP-X): decisions on individual commits",
)
