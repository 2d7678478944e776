"""What the auditor concludes, and from what: pure functions on columns that know neither Spark nor a clock.

`schema.py` has the tables, `facts.py` what is new in a micro-batch, `rules/` one module per invariant, `summaries/`
what the report draws. The columns are Polars data frames: one thread each, no JVM.
"""
