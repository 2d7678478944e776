"""KEY-HOME: a key lies in the virtual partition to which its producer's partitioner sends it; of a sample.

Kordon puts a batch where its client asks for, and never opens it. So a client's partitioner tells what Kordon was
asked: by it, all keys of a batch belong to one virtual partition. If Kordon has put the batch elsewhere, its keys all
belong to one other virtual partition. An application that chooses partitions itself mixes keys as it likes.

    batch that was opened                                                  verdict
    all its keys are at home by the partitioner of its producer            pass
    at home by a known one, while that of its producer is not known        pass
    of the time of a takeover: at home among the N partitions of before    pass
    elsewhere by that of its producer                                      unknown
    any other: no known partitioner explains it, it cannot be opened       none: the rule does not apply to it

    keys of a producer that lie together, and belong elsewhere together    finding: misplaced-key
    enough of them in batches of several keys, none of which is a mixture  fail
    too few, or alone in their batches, and its partitioner is known       unknown: the application may have chosen
    its partitioner is not known, or it mixes keys                         none

"Enough" is counted in bits. Where somebody places keys by a rule of his own, k keys in one place belong together
elsewhere by chance with the probability V^-(k-1). A fail takes `MOVED_BITS` of keys that were moved alike, and
`SURE_BITS` of all keys that speak for the partitioner. A producer's partitioner is known by `KNOWN_BITS` of keys at
home, if a third of its batches, and twice what chance would give, are at home. Different keys are counted by 64 marks,
which a few keys may share. Writers without idempotence are one producer per worker and virtual partition.

The state is bounded: a row per producer that has written within a day; at most `SUSPECTS` rows for each of them and
each partitioner of what is misplaced; and at most `WAITING_KEYS` keys of batches of which it is not certain yet whose
they are. A finding waits for `late_ms`, so that what speaks against it is heard first, in whatever order it is read.

It cannot tell: what is in batches that are not opened, and behind the first records of those that are; whether keys are
right that no known partitioner explains; whether a key alone in its batch was placed by Kordon or by its application.
Of clients of the dialect it knows that keys are right, but not that they are wrong: these choose partitions by layouts,
and may use any partitioner. What there was before a takeover, and what came around Kordon, it leaves out. Who sees N
partitions still when a takeover is over is not judged.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.partitioners import PARTITIONERS, Partitioner
from kordon.spark_jobs.judging.rule import FAIL, LATE, PASS, UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.rules.belonging import OWN
from kordon.spark_jobs.judging.rules.opened_batches import BATCH, opened, v_counts
from kordon.spark_jobs.judging.schema import CHECKED, FINDINGS, KEYS, columns
from kordon.spark_jobs.judging.tables import QUIET_MS, checked, findings, stacked

WAITING_KEYS: Final = 65_536
SUSPECTS: Final = 4
KNOWN_BITS: Final = 40
MOVED_BITS: Final = 20
SURE_BITS: Final = 60
_RULE: Final = 9, "KEY-HOME"
_NAMES: Final = [each.name for each in PARTITIONERS]
_WHO: Final = ("topic", "client_producer_id")
_MOVED: Final = (*_WHO, "partitioner", "partition", "stream", "home")
_WAITING: Final = columns(KEYS, seen_ms=pl.Int64)
_PRODUCER: Final = columns(
    topic=pl.String,
    client_producer_id=pl.Int64,
    batches=pl.Int64,
    mixed=pl.Int64,
    seen_ms=pl.Int64,
    **{f"{name}_batches": pl.Int64 for name in _NAMES},
    **{f"{name}_marks": pl.UInt64 for name in _NAMES},
)
"""What the batches of a producer have shown. `mixed`: of how many the keys belong together by no partitioner.
`<partitioner>_batches`: of how many all keys are at home by it; `<partitioner>_marks`: which keys."""
_SUSPECT: Final = columns(
    topic=pl.String,
    client_producer_id=pl.Int64,
    partitioner=pl.String,
    partition=pl.Int32,
    stream=pl.Int32,
    home=pl.Int32,
    first_offset=pl.Int64,
    last_offset=pl.Int64,
    records=pl.Int64,
    marks=pl.UInt64,
    since_ms=pl.Int64,
    seen_ms=pl.Int64,
    told=pl.String,
)
"""What lies in `stream` and belongs to `home`. `marks`: which keys that were not alone in their batches. `told`: the
verdict that there is a finding with."""
_WHERE: Final = (
    "{record:records} of {who} stand in virtual partition {stream} of {topic}, in batches at"
    " {offset:first_offset:last_offset} of partition {partition}. "
)
_FAIL_TEXT: Final = _WHERE + (
    "All their keys belong to virtual partition {home}, by the partitioner that their producer uses: {title}. So"
    " a proxy has put them elsewhere than it was asked to. Look for the worker that wrote them, restart it, and report"
    " it."
)
_UNKNOWN_TEXT: Final = _WHERE + (
    "By the partitioner that their producer uses otherwise ({title}), their keys belong to virtual partition {home}."
    " Either the application has given the partition itself, which is its right, or a proxy has put them elsewhere"
    " than it was asked to: ask whoever runs the producer."
)


def _check(facts: Facts, state: State) -> RuleOutcome:
    keys = stacked(_WAITING, state["waiting"], facts.keys.with_columns(pl.lit(facts.newest_ms).alias("seen_ms")))
    if keys.is_empty() and state["suspect"].is_empty():
        kept = {**state, "producer": _heard(state["producer"], facts)}
        return RuleOutcome(findings=FINDINGS.to_frame(), state=kept, checked=CHECKED.to_frame())
    batches, waiting = opened(facts, keys)
    is_over = facts.is_late() | (pl.int_range(pl.len()) >= WAITING_KEYS)
    producers = _producers(batches, state["producer"], facts)
    known = _with_known(producers, facts)
    suspects = _suspects(batches, state["suspect"], known, facts)
    return RuleOutcome(
        findings=_findings(suspects, facts),
        state={
            "waiting": waiting.filter(~is_over),
            "producer": producers,
            "suspect": suspects.with_columns(pl.coalesce("verdict", "told").alias("told")).select(_SUSPECT.names()),
        },
        checked=_checked(batches, known, waiting.filter(is_over)),
    )


def _home(each: Partitioner) -> pl.Expr:
    return pl.col(f"{each.name}_home")


_IS_AT_HOME: Final = pl.any_horizontal(_home(each) for each in PARTITIONERS)
_IS_TOGETHER: Final = pl.any_horizontal(pl.col(f"{name}_place").is_not_null() for name in _NAMES)
_TELLS: Final = (pl.col("kind") == OWN) & (pl.col("keys") > 0) & (_IS_AT_HOME | ~pl.col("is_old_view"))
"""Batches that tell something of their producer's partitioner."""


def _producers(batches: pl.DataFrame, known: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Adds up what batches have shown."""
    is_mixed = (pl.col("keys") > 1) & ~_IS_AT_HOME & ~_IS_TOGETHER
    new = batches.filter(_TELLS).with_columns(
        pl.lit(1).alias("batches"),
        is_mixed.alias("mixed"),
        *(_home(each).alias(f"{each.name}_batches") for each in PARTITIONERS),
        *(pl.when(_home(each)).then("marks").otherwise(0).alias(f"{each.name}_marks") for each in PARTITIONERS),
    )
    summed = (
        stacked(_PRODUCER, known, new)
        .group_by(_WHO, maintain_order=True)
        .agg(
            pl.sum("batches", "mixed"),
            pl.max("seen_ms"),
            pl.sum(*(f"{name}_batches" for name in _NAMES)),
            pl.col(*(f"{name}_marks" for name in _NAMES)).bitwise_or(),
        )
    )
    return _heard(summed, facts).select(_PRODUCER.names())


def _heard(producers: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    return producers.filter(facts.newest_ms - pl.col("seen_ms") < QUIET_MS)


def _with_known(producers: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Adds `<partitioner>_bits` that speak for it, and whether it is the producer's: `<partitioner>_known`."""
    share = pl.max_horizontal(pl.lit(1 / 3), 2 / pl.col("v_count"))
    counted = producers.join(v_counts(facts), on="topic", how="left").with_columns(
        (_count(f"{name}_marks") * pl.col("v_count").log(2)).alias(f"{name}_bits") for name in _NAMES
    )
    is_usual = [pl.col(f"{name}_batches") >= share * pl.col("batches") for name in _NAMES]
    return counted.with_columns(
        ((pl.col(f"{name}_bits") >= KNOWN_BITS) & usual).fill_null(value=False).alias(f"{name}_known")
        for name, usual in zip(_NAMES, is_usual, strict=True)
    )


def _count(marks: str) -> pl.Expr:
    return pl.col(marks).bitwise_count_ones().cast(pl.Int64)


def _suspects(batches: pl.DataFrame, told: pl.DataFrame, known: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Adds up what is misplaced; with `verdict` where there is something to say that was not said."""
    moved = batches.filter(_TELLS & ~_IS_AT_HOME)
    new = [stacked(_SUSPECT, _moved(moved, name)) for name in _NAMES]
    summed = (
        stacked(_SUSPECT, told, *new)
        .group_by(_MOVED, maintain_order=True)
        .agg(
            pl.min("first_offset", "since_ms"),
            pl.max("last_offset", "seen_ms", "told"),
            pl.sum("records"),
            pl.col("marks").bitwise_or(),
        )
    )
    order = (pl.col("marks") == 0, "stream", "home", "partition")
    kept = summed.sort(*order).group_by(*_WHO, "partitioner", maintain_order=True).head(SUSPECTS)
    return _judged(kept, known, facts)


def _moved(batches: pl.DataFrame, name: str) -> pl.DataFrame:
    return batches.filter(pl.col(f"{name}_place").is_not_null()).with_columns(
        pl.lit(name).alias("partitioner"),
        pl.col(f"{name}_place").alias("home"),
        pl.col("base_offset").alias("first_offset"),
        pl.when(pl.col("keys") > 1).then("marks").otherwise(0).alias("marks"),
        pl.col("seen_ms").alias("since_ms"),
    )


def _judged(suspects: pl.DataFrame, known: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Leaves out those of producers that mix keys, or are silent; adds `verdict`."""
    each = [
        known.select(
            *(*_WHO, "v_count", "mixed"),
            pl.lit(name).alias("partitioner"),
            pl.col(f"{name}_known").alias("is_known"),
            pl.when(f"{name}_known").then(f"{name}_bits").otherwise(0.0).alias("bits"),
        )
        for name in _NAMES
    ]
    asked = suspects.join(pl.concat(each), on=[*_WHO, "partitioner"], how="inner").filter(pl.col("mixed") == 0)
    moved = (_count("marks") - 1).clip(lower_bound=0) * pl.col("v_count").log(2)
    is_sure = (moved >= MOVED_BITS) & (moved.sum().over(*_WHO, "partitioner") + pl.col("bits") >= SURE_BITS)
    verdict = pl.when(is_sure).then(pl.lit(FAIL)).when("is_known").then(pl.lit(UNKNOWN))
    is_new = facts.is_late("since_ms") & (pl.col("told").is_null() | (is_sure & (pl.col("told") != FAIL)))
    return asked.with_columns(pl.when(is_new).then(verdict).alias("verdict"))


def _findings(suspects: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Makes one finding for keys that moved in the same way, whoever wrote them."""
    alike = ("topic", "partition", "stream", "home", "verdict")
    told_of = (
        suspects.filter(pl.col("verdict").is_not_null())
        .group_by(alike, maintain_order=True)
        .agg(
            pl.min("first_offset", "client_producer_id"),
            pl.max("last_offset"),
            pl.sum("records"),
            pl.first("partitioner"),
            pl.col("client_producer_id").n_unique().alias("producers"),
        )
    )
    one, several = pl.format("producer {}", "client_producer_id"), "{} producers, one of them {},"
    who = pl.when(pl.col("producers") == 1).then(one)
    rows = told_of.with_columns(
        pl.lit("misplaced-key").alias("kind"),
        pl.col("partitioner").replace_strict({each.name: each.title for each in PARTITIONERS}).alias("title"),
        who.otherwise(pl.format(several, "producers", "client_producer_id")).alias("who"),
        pl.when(pl.col("verdict") == FAIL).then(pl.lit(_FAIL_TEXT)).otherwise(pl.lit(_UNKNOWN_TEXT)).alias("text"),
    )
    return findings(rows, *_RULE, alike, facts)


def _checked(batches: pl.DataFrame, known: pl.DataFrame, late: pl.DataFrame) -> pl.DataFrame:
    whose = known.select(*_WHO, *(f"{name}_known" for name in _NAMES))
    judged = batches.join(whose, on=_WHO, how="left")
    is_held = pl.any_horizontal(f"{name}_known" for name in _NAMES).fill_null(value=False) & _TELLS
    is_kept = pl.any_horizontal(pl.col(f"{name}_known") & pl.col(f"{name}_home") for name in _NAMES)
    is_right = pl.when(is_held).then(is_kept).otherwise(_IS_AT_HOME | (pl.col("is_before_cut") & pl.col("is_old_view")))
    verdict = pl.when(is_right).then(pl.lit(PASS)).when(is_held).then(pl.lit(UNKNOWN))
    told = judged.with_columns(verdict.alias("verdict"), pl.col("base_offset").alias("first_offset"))
    missed = late.unique(BATCH).with_columns(
        pl.lit(LATE).alias("verdict"), first_offset="base_offset", last_offset="base_offset"
    )
    return checked(stacked(CHECKED, told, missed))


RULE: Final = Rule(
    number=_RULE[0],
    name=_RULE[1],
    proves="In the batches that were opened, each key lies in the virtual partition to which its producer sent it.",
    is_of_one_life=True,
    state={"waiting": _WAITING, "producer": _PRODUCER, "suspect": _SUSPECT},
    check=_check,
)
