"""What the report draws: small tables that each micro-batch is folded into, whatever the audit has read so far.

A summary is kept like a rule's state: the table so far and what is new make the next one, which takes its place. So a
repeated micro-batch changes nothing, and none of them grows with the run: each says what bounds it. They are drawn by
the workers' clocks and prove nothing; verdicts come from the rules, which use none.

Each part of a cluster keeps tables of its own topics. Nothing new, folded into the rows of all parts, makes the table
of the whole (`merged`): it is the one that a single part would have kept, as long as no bound had been reached.

`summary.py` is what they have in common; each of the others has the tables of one idea.
"""

from __future__ import annotations

from typing import Final

from kordon.spark_jobs.judging.summaries import changes, deciders, pauses, proofs, reading, traffic
from kordon.spark_jobs.judging.summaries.summary import Summary, merged

__all__ = ["SUMMARIES", "Summary", "merged"]

SUMMARIES: Final[tuple[Summary, ...]] = (
    *traffic.SUMMARIES,
    *changes.SUMMARIES,
    *pauses.SUMMARIES,
    *deciders.SUMMARIES,
    *reading.SUMMARIES,
    *proofs.SUMMARIES,
)
"""All tables of the report besides the findings and what was checked."""
