"""What the report draws: small tables that each micro-batch is folded into, whatever the audit has read so far.

A summary is kept like a rule's state: the table so far and what is new make the next one, which takes its place. So a
repeated micro-batch changes nothing, and none of them grows with the run: each says what bounds it. They are drawn by
the workers' clocks and prove nothing; verdicts come from the rules, which use none.

`summary.py` is what they have in common; each of the others has the tables of one idea.
"""

from __future__ import annotations

from typing import Final

from kordon.spark_jobs.summaries import changes, deciders, pauses, proofs, reading, traffic
from kordon.spark_jobs.summaries.summary import Summary

__all__ = ["SUMMARIES", "Summary"]

SUMMARIES: Final[tuple[Summary, ...]] = (
    *traffic.SUMMARIES,
    *changes.SUMMARIES,
    *pauses.SUMMARIES,
    *deciders.SUMMARIES,
    *reading.SUMMARIES,
    *proofs.SUMMARIES,
)
"""All tables of the report besides the findings and what was checked."""
