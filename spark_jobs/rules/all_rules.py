"""The rules that the auditor runs, by their numbers."""

from __future__ import annotations

from typing import Final

from kordon.spark_jobs.rules import count_fence, no_skip, seq_image
from kordon.spark_jobs.rules.rule import Rule

ALL: Final[tuple[Rule, ...]] = (count_fence.RULE, no_skip.RULE, seq_image.RULE)
"""One row per module of this folder that has its data; the report names the others, too."""
