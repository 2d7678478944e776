"""What PARENT-FIRST keeps of topics: enough to tell whether anything that can be delivered is left before an end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import State
from kordon.spark_jobs.judging.rules.belonging import JANITOR, NO_V, WITNESS
from kordon.spark_jobs.judging.rules.read_so_far import READ, read_so_far
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.tables import FOR_EVER, follows, stacked, together

MOST_RUNS: Final = 1_000
_PLACE: Final = ("topic", "partition")
_TAILS: Final = columns(topic=pl.String, partition=pl.Int32, v=pl.Int32, move=pl.Int32, last_offset=pl.Int64)
_RUNS: Final = columns(topic=pl.String, partition=pl.Int32, first_offset=pl.Int64, last_offset=pl.Int64)
STATE: Final[Mapping[str, pl.Schema]] = {"tail": _TAILS, "run": _RUNS, "forgotten": _RUNS, "read": READ}
"""*tail*: where the last batch of `v` and `move` ends; *run*: batches without a hole; *forgotten*: of each partition
the newest run that is not kept any more; *read*: how far topics were read."""


def data_of(facts: Facts, state: State) -> State:
    """Returns what is known of the topics' batches, with what is new."""
    read = read_so_far(state["read"], facts)
    is_data = ~pl.col("is_control") & pl.col("event").ne_missing(WITNESS)
    seen = facts.batches.filter(is_data & pl.col("v").ne_missing(JANITOR))
    if seen.is_empty():
        return {name: state[name] for name in STATE} | {"read": read}
    tails = stacked(_TAILS, state["tail"], _as_given(seen, facts.stays))
    runs, forgotten = _runs(state, seen)
    newest = tails.group_by(*_PLACE, "v", "move", maintain_order=True).agg(pl.max("last_offset"))
    return {"tail": newest, "run": runs, "forgotten": forgotten, "read": read}


def _as_given(seen: pl.DataFrame, stays: pl.DataFrame) -> pl.DataFrame:
    """Names batches by the virtual partition whose readers get them (TAKEOVER-SHARES)."""
    shared = stays.filter(pl.col("shared_from").is_not_null()).select(*_PLACE, "shared_from", "shared_to")
    if shared.is_empty():
        return seen
    joined = seen.sort("base_offset").join_asof(
        shared.unique().sort("shared_from"),
        left_on="base_offset",
        right_on="shared_from",
        by=list(_PLACE),
        check_sortedness=False,
    )
    is_shared = pl.col("base_offset").is_between("shared_from", pl.col("shared_to").fill_null(FOR_EVER) - 1)
    is_host = is_shared & (pl.col("v") < NO_V)
    return joined.with_columns(pl.when(is_host).then("partition").otherwise("v").alias("v"))


def _runs(state: State, seen: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Merges batches that follow on each other; of what is older than the newest ones it keeps where it ends."""
    new = seen.with_columns(pl.col("base_offset").alias("first_offset"))
    every = stacked(_RUNS, state["run"], state["forgotten"], new)
    rows = together(every.sort("first_offset"), _PLACE)
    begins = ~(follows(_PLACE) & (pl.col("first_offset") <= pl.col("last_offset").shift(1) + 1))
    ends = rows.filter(begins.shift(-1, fill_value=True)).get_column("last_offset")
    newest = rows.filter(begins).with_columns(ends).group_by(_PLACE, maintain_order=True).tail(MOST_RUNS + 1)
    is_kept = pl.int_range(pl.len(), 0, -1).over(_PLACE) <= MOST_RUNS
    both = newest.select(_RUNS.names()), newest.select(is_kept).to_series()
    return both[0].filter(both[1]), both[0].filter(~both[1])
