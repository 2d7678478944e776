"""KEY-ORDER (4): what a connection is given of a stream continues, but for rewinds that are on record.

A stream is given in the order of its stays, and within a stay by offset. So each DELIVER begins behind the one before,
or where the reader has asked to continue. The stays of a physical partition, as clients of the dialect see it, are its
segments. That one stay is not begun before the last is done is PARENT-FIRST; that nothing is left out is NO-SKIP.

Readers are compared with themselves alone, also where the group is known. A partition that passes from one member to
the next is read on from the group's commit, which HAND-OVER judges. The numbers of a worker are those of runs when
they ended, so they do not say which of two connections was given something first; between workers there is nothing
but the record of the layouts topic that both rest on. And what a killed worker gave last is not on record, so that a
hole between two members proves nothing.

The state is a row per reader that is open, with where it stands (`readers.py`). A reader that comes back after its row
has gone begins again. Nothing comes late, as decisions of a worker come in the order of their numbers.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import FAIL, PASS, UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.rules.gaps import with_gaps
from kordon.spark_jobs.judging.rules.readers import IS_DELIVERY, READER, in_order, steps_of, still_open
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.tables import checked, decision, findings, named, shaped

_STATE: Final = columns(READER, move=pl.Int32, next_offset=pl.Int64)
"""Where a reader stands behind its newest decision."""
_TOLD: Final = ("kind", "partition", "move", "first_offset", "last_offset", "group_id", "layout_epoch")
_WENT_BACK: Final = (
    "A reader that stood at offset {next_offset_before} of move {move_before} was given offset {first_offset} of move"
    " {move} without a logged rewind"
)
_WHAT_TO_DO: Final = ". Look at what its worker logged at that time; the records were given out of order, or twice."


def _check(facts: Facts, state: State) -> RuleOutcome:
    steps = in_order(state["reader"], _steps(facts), ("number", "move", "next_offset"))
    given = with_gaps(steps.filter(IS_DELIVERY), facts.gaps, after="number_before", until="number")
    has_gone_on = pl.col("number_before").is_not_null()
    judged = given.with_columns((has_gone_on & _went_back()).alias("went_back")).with_columns(
        pl.when(has_gone_on & pl.col("across_gap"))
        .then(pl.lit(UNKNOWN))
        .when("went_back")
        .then(pl.lit(FAIL))
        .otherwise(pl.lit(PASS))
        .alias("verdict")
    )
    readers = shaped(still_open(steps, facts), _STATE)
    return RuleOutcome(findings=_findings(judged, facts), state={"reader": readers}, checked=checked(judged))


def _steps(facts: Facts) -> pl.DataFrame:
    goes_on_at = pl.when(IS_DELIVERY).then(pl.col("last_offset") + 1).otherwise("first_offset")
    steps = steps_of(facts.decisions.select(*READER, *_TOLD))
    return steps.with_columns(goes_on_at.alias("next_offset"), pl.col("move").fill_null(0))


def _went_back() -> pl.Expr:
    is_before = pl.col("first_offset") < pl.col("next_offset_before")
    is_in_move = pl.col("move") == pl.col("move_before")
    return ((pl.col("move") < pl.col("move_before")) | (is_in_move & is_before)).fill_null(value=False)


def _findings(judged: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    across_gap = pl.lit(_WENT_BACK + ", but decisions are missing in between" + _WHAT_TO_DO)
    rows = judged.filter("went_back").with_columns(
        pl.lit("went-back").alias("kind"),
        pl.when("across_gap").then(across_gap).otherwise(pl.lit(_WENT_BACK + _WHAT_TO_DO)).alias("text"),
        named(decision("worker", "number_before"), decision()).alias("decisions"),
    )
    return findings(rows, RULE.number, RULE.name, ("worker", "number"), facts)


RULE: Final = Rule(
    number=4,
    name="KEY-ORDER",
    proves="What a connection was given of a stream followed the order of its stays and offsets, "
    "but where the reader had asked to go back.",
    is_of_one_life=True,
    state={"reader": _STATE},
    check=_check,
)
