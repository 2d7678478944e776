"""Batches are kept as runs: they come back as they were, and take no more than is reckoned with."""

from __future__ import annotations

import io
import random
from typing import Final

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl

from kordon.spark_jobs.judging.rules.batch_runs import BATCHES, batches_of, runs_of, size

LARGEST: Final = (1 << 31) - 1
SEEN_MS: Final = 1_760_000_000_000


def batches(*rows: tuple[int, int, int, int | None]) -> pl.DataFrame:
    """Batches of (first offset, last offset, records, stream); those of stream 7 are aborted."""
    told = [("orders", 3, first, last, records, stream, False, stream == 7) for first, last, records, stream in rows]
    return pl.DataFrame(told, schema=BATCHES, orient="row")


def test_batches_come_back_as_they_were_however_long_or_far_apart_they_are() -> None:
    """Differences have 32 bits, and offsets 64; where logs got shorter, batches lie across each other."""
    told = batches(
        (0, LARGEST, LARGEST, 0),
        (5, 5, 0, 7),
        (6, 5 + LARGEST, 0, None),
        (1 << 31, 1 << 31, 1, 32_000),
        ((1 << 62) - 1, (1 << 62) - 1, 1, 1),
        (1 << 62, (1 << 62) + 3, 1, 1),
    )
    runs = runs_of(told.sample(fraction=1, shuffle=True, seed=7), SEEN_MS)
    assert batches_of(runs).select(BATCHES.names()).sort("first_offset").equals(told)
    assert (runs.get_column("first_offset").min(), runs.get_column("last_offset").max()) == (0, (1 << 62) + 3)
    assert batches_of(runs.clear()).is_empty()


def made(per_run: int, most_records: int, streams: int) -> pl.DataFrame:
    """Runs of one partition."""
    chance = random.Random(per_run)
    runs: list[pl.DataFrame] = []
    end = 0
    for place in range(max(1, 1_000 // per_run)):
        rows: list[tuple[int, int, int, int | None]] = []
        for _ in range(per_run):
            records = chance.randint(1, most_records)
            end += chance.random() < 0.05  # a control batch
            rows.append((end, end + records - 1, records, streams + chance.randrange(streams)))
            end += records
        runs.append(runs_of(batches(*rows), SEEN_MS + place * 60_000))
    return pl.concat(runs)


@pytest.mark.parametrize("per_run", [1, 10, 5_000])
@pytest.mark.parametrize(("most_records", "streams"), [(3, 64), (2_000, 4_096)])
def test_runs_take_no_more_than_is_reckoned_with(per_run: int, most_records: int, streams: int) -> None:
    """As states are kept: Arrow's stream format with zstd."""
    runs = made(per_run, most_records, streams)
    kept = io.BytesIO()
    runs.write_ipc_stream(kept, compression="zstd")
    reckoned = runs.select(size().sum()).item()
    assert kept.tell() <= reckoned + 4_096  # the schema
