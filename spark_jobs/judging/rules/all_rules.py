"""The rules that the auditor runs, by their numbers."""

from __future__ import annotations

from typing import Final

from kordon.spark_jobs.judging.rule import Rule
from kordon.spark_jobs.judging.rules import (
    count_fence,
    epoch_ladder,
    fence_barrier,
    hand_over,
    ic_algebra,
    key_home,
    key_order,
    no_skip,
    parent_first,
    seq_image,
    source_owner,
    txn_witness,
)

ALL: Final[tuple[Rule, ...]] = (
    count_fence.RULE,
    fence_barrier.RULE,
    parent_first.RULE,
    key_order.RULE,
    no_skip.RULE,
    seq_image.RULE,
    epoch_ladder.RULE,
    hand_over.RULE,
    key_home.RULE,
    txn_witness.RULE,
    ic_algebra.RULE,
    source_owner.RULE,
)
"""One row per module; GAPS comes first by itself."""
