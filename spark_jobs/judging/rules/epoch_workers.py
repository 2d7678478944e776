"""What answers of several workers say of each other, though nothing tells which of them came first (EPOCH-LADDER).

A producer id is never given out again, so its epochs are an order: of two answers with one producer id that with the
smaller epoch came first, or the epoch fell. So both are wrong, whichever came first, if the one with the larger epoch
must not follow on the other: its request gave an epoch that was over by then. And an epoch is answered to one request
alone, which may come again.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.spark_jobs.judging.rule import FAIL
from kordon.spark_jobs.judging.tables import decision, follows

_LADDER: Final = ("transactional_id", "producer_id")
_GIVEN: Final = ("given_id", "given_epoch")


def contradictions(answers: pl.DataFrame) -> pl.DataFrame:
    """Returns answers that contradict one of another worker: `kind`, `verdict`, and `other`, which that is.

    Args:
        answers: Those that were no error; `is_new`: they were not looked at before.
    """
    ladder = _in_doubt(_with_below(answers))
    epoch, lower = pl.col("producer_epoch"), pl.col("producer_epoch_other")
    is_anew, other_is_anew = pl.col("is_anew"), pl.col("is_anew_other")
    is_later_name = pl.col("worker") > pl.col("worker_other")  # of two that say the same of each other one is told
    is_told = (lower < epoch) | (is_anew & ~other_is_anew) | ((is_anew == other_is_anew) & is_later_name)
    is_repeat = ~is_anew & pl.all_horizontal(pl.col(name) == pl.col(f"{name}_other") for name in _GIVEN)
    wrong = ladder.join(ladder, on=_LADDER, suffix="_other").filter(
        pl.any_horizontal("is_new", "is_new_other"),
        pl.col("worker") != pl.col("worker_other"),
        lower.is_between("below", epoch, closed="right"),
        is_told & ((lower < epoch) | ~is_repeat),
    )
    kind = pl.when(is_anew).then(pl.lit("doubled-epoch")).when(is_repeat).then(pl.lit("repeat-changed"))
    return wrong.with_columns(
        kind.otherwise(pl.lit("not-fenced")).alias("kind"),
        pl.lit(FAIL).alias("verdict"),
        decision("worker_other", "number_other").alias("other"),
    )


def explained(unknown: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
    """Returns answers to what another worker had answered, and refusals of what another one had raised."""
    others = answers.select("transactional_id", given_id="producer_id", epoch="producer_epoch", other="worker")
    given, epoch = pl.col("given_epoch"), pl.col("epoch")
    tells = pl.when(pl.col("error") == 0).then(epoch == given).otherwise(epoch > given)
    why = unknown.join(others, on=["transactional_id", "given_id"]).filter(tells, pl.col("worker") != pl.col("other"))
    return unknown.join(why, on=["worker", "number"], how="semi")


def _with_below(answers: pl.DataFrame) -> pl.DataFrame:
    """Adds whether a request gave nothing, and which epoch was in force before its answer, as far as it tells."""
    given, epoch = pl.col("given_epoch"), pl.col("producer_epoch")
    gave_lower = (pl.col("given_id") == pl.col("producer_id")) & given.is_between(0, epoch - 1)
    is_anew = pl.all_horizontal(pl.col(_GIVEN) == -1)
    return answers.with_columns(is_anew=is_anew, below=pl.when(gave_lower).then(given).otherwise(epoch - 1))


def _in_doubt(answers: pl.DataFrame) -> pl.DataFrame:
    """Returns all answers of the ladders in which one contradicts the next one, of whatever worker: they are few."""
    touched = answers.join(answers.filter("is_new"), on=_LADDER, how="semi").sort(*_LADDER, "producer_epoch", *_GIVEN)
    before = pl.col("producer_epoch").shift(1)
    is_repeat = follows([*_LADDER, "producer_epoch", *_GIVEN]) & ~pl.col("is_anew")
    crossed = touched.filter(follows(_LADDER) & (before > pl.col("below")) & ~is_repeat)
    return touched.join(crossed, on=_LADDER, how="semi")
