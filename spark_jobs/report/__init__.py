"""`kordon audit report`: one HTML page of what an audit has found, made without Spark.

Begin at `page.py` (`write`). `tables.py` reads the audit's folder; `verdicts.py`, `topics.py` and `findings.py` make of
it what the page says; `commands.py` makes the commands that the page gives, and `compare.py` says what is new.
`charts.py` knows scales and paths, `timeline.py` and `heat.py` the two kinds of pictures.
`template/` has the page, its style and its script. Nothing of it needs a network, neither now nor when it is looked at.
"""

from kordon.spark_jobs.report.page import Report, write

__all__ = ["Report", "write"]
