"""The decisions that findings name, kept while they may be named."""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.schema import DECISIONS, columns
from kordon.spark_jobs.judging.summaries.summary import Summary, is_of
from kordon.spark_jobs.judging.tables import shaped

MOST_STEPS: Final = 5_000
MOST_NAMED: Final = 2_000
MOST_RECENT: Final = 10_000
MOST_EVIDENCE: Final = 2_000
"""Characters of a decision's evidence that a proof shows."""


_PROOFS: Final = columns(worker=pl.String, number=pl.Int64, at_ms=pl.Int64, held=pl.String, decision=pl.String)
_KEPT: Final = columns(_PROOFS, row=pl.UInt32)
_STEPS: Final = (Kind.FENCE, Kind.ACKNOWLEDGE, Kind.CUT, Kind.COMMIT, Kind.CANCEL, Kind.ADOPT, Kind.LEASE, Kind.GAP)
_PLACE: Final = ("worker", "number")
_SHOWN: Final = tuple(name for name in DECISIONS if name not in {"evidence", "log_partition", "log_offset"})


def _proofs(facts: Facts, findings: pl.DataFrame, state: pl.DataFrame) -> pl.DataFrame:
    """The decisions that findings name, as far as they are at hand.

    A finding may name what was read before: a write is judged once the topic has been read, too. So the newest
    decisions are kept for a while, those about layouts for longer. Bounded: `MOST_NAMED` that were named by findings,
    `MOST_STEPS` about layouts and `MOST_RECENT` others.
    """
    named = _named(findings)
    # a part's findings may name ends of connections and leases of others
    told = pl.concat([_chosen(each, named) for each in (facts.decisions, facts.of_all)]).with_row_index("row")
    before = state.join(named, on=_PLACE, how="left").with_columns(pl.coalesce("named", "held").alias("held"))
    kept = _newest(pl.concat([shaped(each, _KEPT) for each in (before, told)]))
    is_new = pl.col("row").is_not_null()
    new = kept.filter(is_new)
    new = new.with_columns(_as_json(told[new.get_column("row")]).alias("decision"))
    return pl.concat([kept.filter(~is_new), new]).select(_PROOFS.names())


def _named(findings: pl.DataFrame) -> pl.DataFrame:
    name = pl.col("decisions")
    worker, number = name.str.extract("(?s)^(.*):[0-9]+$"), name.str.extract(":([0-9]+)$").cast(pl.Int64, strict=False)
    names = findings.select(name.explode()).select(worker.alias("worker"), number.alias("number"))
    return names.unique().with_columns(named=pl.lit("named"))


def _chosen(decisions: pl.DataFrame, named: pl.DataFrame) -> pl.DataFrame:
    """Returns the decisions of which some are kept, and as what: all but most of those that are recent."""
    told = decisions.select(*_PLACE, "kind", "at_ms").join(named, on=_PLACE, how="left", maintain_order="left")
    held = pl.coalesce("named", pl.when(is_of(*_STEPS)).then(pl.lit("step")).otherwise(pl.lit("recent")))
    told = told.select("at_ms", held.alias("held"))
    is_recent = pl.col("held") == "recent"
    since = told.filter(is_recent).select(pl.col("at_ms").top_k(MOST_RECENT).min()).item()
    may_stay = ~is_recent | (pl.col("at_ms") >= pl.lit(since, pl.Int64))
    return pl.concat([decisions, told.select("held")], how="horizontal").filter(may_stay)


def _newest(rows: pl.DataFrame) -> pl.DataFrame:
    """Keeps so many of each kind, each decision once; those that are named come before others of the same name."""
    most = {"named": MOST_NAMED, "step": MOST_STEPS, "recent": MOST_RECENT}
    ordered = rows.sort("at_ms", *_PLACE, "held", descending=[True, False, False, False], nulls_last=True)
    once = ordered.unique(_PLACE, keep="first", maintain_order=True)
    return pl.concat([once.filter(pl.col("held") == name).head(count) for name, count in most.items()])


def _as_json(decisions: pl.DataFrame) -> pl.Series:
    """Returns each decision as a JSON object of the fields that say something."""
    told = [name for name in _SHOWN if decisions.get_column(name).null_count() < decisions.height]
    text = pl.struct(*told, pl.col("evidence").str.head(MOST_EVIDENCE)).struct.json_encode()
    # in a text a quote has a backslash before it, so that this finds nothing but fields
    without = text.str.replace_all(r'"\w+":null,?', "").str.replace(r",\}$", "}")
    return decisions.select(without.alias("decision")).to_series()


SUMMARIES: Final = (Summary(name="proofs", state=_PROOFS, fold=_proofs),)
