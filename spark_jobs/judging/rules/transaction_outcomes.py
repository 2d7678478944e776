"""What became of each batch of a transaction: committed, and so given to all readers, or not.

    first protocol    the next event of its producer decides: the COMMIT of its own epoch commits, all else does not
    second protocol   the next one of a later epoch does: the COMMIT of the epoch behind its own commits, all else not

It is a statement of the auditor's own: it shares no code with the proxy. A property test holds it against the proxy's
(`tests/judging/test_transaction_outcomes.py`). It is worked out once per micro-batch, before the rules that ask for it.

What coordinators say of transactions whose marker never comes is in no log. So a batch with nothing behind it stays
undecided, and what rests on it is unknown.

The state is bounded: `MOST_UNDECIDED` batches. Beyond that, and after a quiet day, nobody waits for the oldest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import polars as pl

from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import State
from kordon.spark_jobs.judging.rules.belonging import OPENED, OWN
from kordon.spark_jobs.judging.rules.transaction_log import COMMIT, V2
from kordon.spark_jobs.judging.schema import WRITTEN, columns
from kordon.spark_jobs.judging.tables import QUIET_MS, shaped, stacked

MOST_UNDECIDED: Final = 200_000
"""Rows of some 70 bytes in memory. On a cluster each part may have as many."""
_MOST_PASSED: Final = 20
"""Repeated events of the second protocol that are passed over; behind as many, nobody can say."""
_UNDECIDED: Final = columns(
    WRITTEN,
    producer_id=pl.Int64,
    epoch=pl.Int32,
    protocol=pl.Int8,
    is_decided=pl.Boolean,
    kind=pl.String,
    seen_ms=pl.Int64,
)
"""`kind`: what the batch is, as `PLACED` has it; null: that is not certain yet."""
STATE: Final[Mapping[str, pl.Schema]] = {"undecided": _UNDECIDED}
_PLACE: Final = ("topic", "partition")
_BATCH: Final = (*_PLACE, "first_offset")
_WHO: Final = (*_PLACE, "producer_id")


def with_outcomes(facts: Facts, state: State) -> tuple[Facts, State]:
    """Adds to facts what became of batches of transactions, as `Facts.decided` and `Facts.undecided`.

    Args:
        facts: Facts with `placed`.
        state: The previous result.
    """
    known, new = state["undecided"], _new(facts)
    if known.is_empty() and new.is_empty() and facts.placed.get_column("protocol").null_count() == facts.placed.height:
        return facts, {"undecided": known}
    rows = _given_up(_decided(_placed(stacked(_UNDECIDED, known, new), facts), facts), facts)
    is_nobodys = pl.col("kind").is_not_null() & ~pl.col("kind").is_in([OWN, OPENED])
    is_told = pl.col("kind").is_not_null() & pl.col("is_decided")
    somebodys = rows.filter(~is_nobodys)
    open_here = pl.col("kind").is_not_null() & ~pl.col("is_decided")
    told = replace(
        facts,
        decided=shaped(somebodys.filter(is_told), WRITTEN),
        undecided=shaped(somebodys.filter(open_here), WRITTEN),
    )
    return told, {"undecided": shaped(somebodys.filter(~is_told), _UNDECIDED)}


def _new(facts: Facts) -> pl.DataFrame:
    of_transactions = facts.batches.filter(pl.col("protocol").is_not_null())
    return of_transactions.select(
        *_PLACE,
        pl.col("base_offset").alias("first_offset"),
        "last_offset",
        "records",
        pl.col("client_producer_id").alias("producer_id"),
        pl.col("producer_epoch").alias("epoch"),
        "protocol",
        pl.lit(value=False).alias("is_decided"),
        pl.lit(facts.newest_ms).alias("seen_ms"),
    )


def _placed(rows: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Adds the owners of batches once they are certain; readers of virtual partitions get some record by record.

    Of a batch that came before outcomes were kept, nobody can say what became of it.
    """
    of_transactions = facts.placed.filter(pl.col("protocol").is_not_null())
    if of_transactions.is_empty():
        return rows
    placed = of_transactions.select(
        *_PLACE,
        pl.col("base_offset").alias("first_offset"),
        pl.col("kind").alias("_kind"),
        pl.when(pl.col("kind") == OWN).then("given_as").alias("_stream"),
        *(pl.col(name).alias(f"_{name}") for name in ("last_offset", "records")),
    ).unique(_BATCH)
    lost = placed.join(rows, on=_BATCH, how="anti").select(
        *_BATCH, *(pl.col(f"_{name}").alias(name) for name in ("last_offset", "records")), is_decided=pl.lit(value=True)
    )
    every = stacked(_UNDECIDED, rows, lost)
    told = every.join(placed.drop("_last_offset", "_records"), on=_BATCH, how="left", maintain_order="left")
    return told.with_columns(
        pl.coalesce("kind", "_kind").alias("kind"), pl.coalesce("stream", "_stream").alias("stream")
    )


def _decided(rows: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Adds what the events that are new say of batches: all before them was passed over already."""
    events = facts.batches.filter(pl.col("event").is_not_null()).select(
        *_WHO,
        pl.col("base_offset").alias("_at"),
        pl.col("producer_epoch").alias("_epoch"),
        (pl.col("event") == COMMIT).alias("_is_commit"),
    )
    if events.is_empty():
        return rows
    numbered = rows.with_row_index("row")
    told = pl.concat([*_looked_up(numbered.filter(~pl.col("is_decided")), events.sort("_at"))])
    joined = numbered.join(told, on="row", how="left", maintain_order="left")
    return joined.with_columns(
        (pl.col("is_decided") | pl.col("_said").is_not_null()).alias("is_decided"),
        pl.coalesce("is_committed", "_is_committed").alias("is_committed"),
    )


def _looked_up(rows: pl.DataFrame, events: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yields, by `row`, what was said (`_said`), and whether that commits it (null: nobody can say)."""
    asked = rows.with_columns(pl.col("last_offset").alias("_from"))
    for _ in range(_MOST_PASSED):
        found = asked.sort("_from").join_asof(
            events, left_on="_from", right_on="_at", by=_WHO, strategy="forward", allow_exact_matches=False,
            check_sortedness=False,
        ).filter(pl.col("_at").is_not_null())  # fmt: skip
        is_second = pl.col("protocol") == V2
        is_passed = is_second & (pl.col("_epoch") <= pl.col("epoch"))
        commits = pl.col("_is_commit") & (pl.col("_epoch") == pl.col("epoch") + is_second.cast(pl.Int32))
        yield found.filter(~is_passed).select("row", commits.alias("_is_committed"), pl.lit(value=True).alias("_said"))
        asked = found.filter(is_passed).with_columns(pl.col("_at").alias("_from")).select(asked.columns)
        if asked.is_empty():
            return
    yield asked.select("row", pl.lit(None, pl.Boolean).alias("_is_committed"), pl.lit(value=True).alias("_said"))


def _given_up(rows: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Waits no longer for what is too old or too much: nobody can say what became of it."""
    is_open = ~pl.col("is_decided")
    since = pl.when(pl.col("seen_ms") > 0).then("seen_ms").otherwise(facts.newest_ms)  # or there was no decision yet
    is_beyond = is_open.cum_sum(reverse=True) > MOST_UNDECIDED
    is_over = is_open & ((facts.newest_ms - since >= QUIET_MS) | is_beyond)
    return rows.with_columns((pl.col("is_decided") | is_over).alias("is_decided"), since.alias("seen_ms"))
