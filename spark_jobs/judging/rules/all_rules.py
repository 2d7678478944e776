"""The rules that the auditor runs, by their numbers."""

from __future__ import annotations

from typing import Final

from kordon.spark_jobs.judging.rule import Rule
from kordon.spark_jobs.judging.rules import count_fence, key_order, no_skip, seq_image

ALL: Final[tuple[Rule, ...]] = (
    count_fence.RULE,
    key_order.RULE,
    no_skip.RULE,
    seq_image.RULE,
)
"""One row per module; GAPS comes first by itself."""
