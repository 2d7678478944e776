"""The rules that the auditor runs, by their numbers."""

from __future__ import annotations

from typing import Final

from kordon.spark_jobs.rules import (
    count_fence,
    epoch_ladder,
    fence_barrier,
    key_order,
    no_skip,
    parent_first,
    seq_image,
)
from kordon.spark_jobs.rules.rule import Rule

ALL: Final[tuple[Rule, ...]] = (
    count_fence.RULE,
    fence_barrier.RULE,
    parent_first.RULE,
    key_order.RULE,
    no_skip.RULE,
    seq_image.RULE,
    epoch_ladder.RULE,
)
"""One row per module; gaps come first by themselves."""
