"""TXN-WITNESS (10): what is committed stands behind a witness of its own transaction, and readers get it.

Data of a transaction stand under tagged producer ids, so brokers do not verify them. Whoever writes them on a wrong
belief is acknowledged. The witness shows whether the belief was right, and topics alone prove it, without any decision
(`transaction_log.py`).

    committed, and behind no witness of its transaction            unwitnessed: fail
    committed, and hidden by a witness that came later             hidden-write: fail
    the same, and a repeated marker or a late write explains it    the same kinds: unknown
    the log was not read from where the witness may be             unknown
    witnessed, aborted, late, a stray                              pass

Writes that wait for their marker have no verdict. A finding waits `late_ms` of decisions' time for a cut that makes its
writes strays, as these are nobody's.

The state is that of `transaction_producers.py`, and `MOST_WRONG` findings that wait; beyond that, the oldest are told
at once.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import FAIL, PASS, UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.rules.belonging import OPENED, OWN, STRAY, owned
from kordon.spark_jobs.judging.rules.transaction_log import Standing
from kordon.spark_jobs.judging.rules.transaction_producers import STATE, WRITES, seen
from kordon.spark_jobs.judging.schema import BATCHES, CHECKED, columns
from kordon.spark_jobs.judging.tables import NO_FINDINGS, findings, shaped, stacked

MOST_WRONG: Final = 10_000
_WRONG: Final = columns(WRITES, seen_ms=pl.Int64)
_WHAT: Final = (
    "Producer {producer_id}, epoch {epoch}, has committed {record:records} of stream {stream} at {topic}-{partition}"
    " {offset:first_offset:last_offset}"
)
_UNWITNESSED: Final = (
    f"{_WHAT}, and no witness of that transaction is in front of them: a worker wrote them without knowing the"
    " transaction open there. Others of its records may be lost."
)
_HIDDEN: Final = (
    f"{_WHAT}, and a witness of the same epoch behind them hides them from all readers: a worker wrote them before the"
    " witness of their transaction, or wrote that once more."
)
_REPORT: Final = " Compare what the producer was acknowledged with what readers got, and report it."
_DOUBT: Final = (
    " It is not certain: a marker in front of them may be a repetition, or they came late, behind an abort. See whether"
    " the producer is of the first protocol, and compare what it was acknowledged with what readers got."
)


def _check(facts: Facts, state: State) -> RuleOutcome:
    now = seen(facts, state)
    new = now.committed.with_columns(seen_ms=pl.lit(facts.newest_ms))
    wrong = stacked(_WRONG, state["wrong"], new)
    is_ready = wrong.select(facts.is_late() | (pl.int_range(pl.len(), 0, -1) > MOST_WRONG)).to_series()
    judged = _judged(wrong.filter(is_ready), facts)
    return RuleOutcome(
        findings=_findings(judged, facts),
        state={**now.state, "wrong": wrong.filter(~is_ready)},
        checked=stacked(CHECKED, now.checked, judged.filter(pl.col("kind").is_null())),
    )


def _judged(wrong: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Adds a verdict; `kind` where it is a finding."""
    if wrong.is_empty():
        return wrong.with_columns(
            stream=pl.lit(None, pl.Int32), verdict=pl.lit(None, pl.String), kind=pl.lit(None, pl.String)
        )
    asked = wrong.with_row_index("row").with_columns(base_offset="first_offset", is_control=pl.lit(value=False))
    placed = owned(shaped(asked, columns(BATCHES, row=pl.UInt32)), facts.stays)
    whose = placed.select("row", "stream", "compacted", pl.col("kind").alias("place"))
    is_found = pl.col("place").is_in([OWN, OPENED]) & ~pl.col("compacted")
    is_proven = pl.col("standing") == Standing.UNWITNESSED
    verdict = (
        pl.when(pl.col("place") == STRAY).then(pl.lit(PASS))
        .when(is_found & is_proven).then(pl.lit(FAIL))
        .otherwise(pl.lit(UNKNOWN))
    )  # fmt: skip
    kind = pl.when("is_hidden").then(pl.lit("hidden-write")).otherwise(pl.lit("unwitnessed"))
    return asked.join(whose, on="row", how="left", maintain_order="left").with_columns(
        verdict=verdict, kind=pl.when(is_found).then(kind), count="records"
    )


def _findings(judged: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    found = judged.filter(pl.col("kind").is_not_null())
    if found.is_empty():
        return NO_FINDINGS
    text = pl.when("is_hidden").then(pl.lit(_HIDDEN)).otherwise(pl.lit(_UNWITNESSED))
    end = pl.when(pl.col("verdict") == FAIL).then(pl.lit(_REPORT)).otherwise(pl.lit(_DOUBT))
    told = found.with_columns(text=text + end, decisions=pl.lit(None, pl.List(pl.String)))
    return findings(told, RULE.number, RULE.name, ("topic", "partition", "producer_id", "epoch", "first_offset"), facts)


RULE: Final = Rule(
    number=10,
    name="TXN-WITNESS",
    proves="What is committed stands behind a witness of its own transaction, and is not hidden from readers.",
    is_of_one_life=True,
    state={**STATE, "wrong": _WRONG},
    check=_check,
)
