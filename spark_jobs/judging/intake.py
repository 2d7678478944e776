"""Turns what sources have read into shipments for the parts that judge it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from kordon.spark_jobs.judging.decision_lines import decisions_of
from kordon.spark_jobs.judging.facts import numbers_of, of_all
from kordon.spark_jobs.judging.shipments import Shipment, What, divided, part_of, shipped


def of_decisions(
    values: Sequence[bytes | None],
    log_partitions: Sequence[int],
    log_offsets: Sequence[int | None],
    *,
    name: str,
    first: int,
    parts: int,
) -> Iterator[Shipment]:
    """Yields records of the decision log.

    Args:
        values: The values of records, one each.
        name: Where they were read.
        first: Where there they begin: shipments of one name follow on each other by it.
    """
    decisions, unreadable = decisions_of(values, log_partitions, log_offsets)
    if unreadable:
        yield Shipment(0, What.UNREADABLE, name, unreadable, b"")
    for part, rows in divided(decisions, parts):
        yield from shipped(part, What.DECISIONS, rows, name, first)
    concerns_all, numbers = of_all(decisions), numbers_of(decisions)
    for part in range(parts):
        yield from shipped(part, What.OF_ALL, concerns_all, name, first)
        yield from shipped(part, What.NUMBERS, numbers, name, first)


def of_partition(what: What, table: pl.DataFrame, topic: str, partition: int, parts: int) -> Iterator[Shipment]:
    """Yields what was read of one partition of a topic."""
    first = table.item(0, "base_offset") if "base_offset" in table.columns and not table.is_empty() else 0
    yield from shipped(part_of(topic, parts), what, table, f"{topic}-{partition}", first)
