"""`kordon audit run` with GAPS as its only rule: what is around the rules, in a fraction of the time.

For `spark-submit` and as a program; its options are those of `kordon audit run`.
"""

from __future__ import annotations

from kordon.spark_jobs.judging import summaries
from kordon.spark_jobs.judging.rules import all_rules

if __name__ == "__main__":
    all_rules.ALL = ()  # type: ignore[misc]  # before the engine takes them
    summaries.SUMMARIES = ()  # type: ignore[misc]
    from kordon.spark_jobs.cli import run

    run(prog_name="small_audit.py")
