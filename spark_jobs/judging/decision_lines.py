"""Reads records of the decision log into columns; what is no decision is counted, and hurts nothing.

A record is a JSON object (`codecs/decision.py`). Fields of later versions are passed over. A record is no decision if
it is not JSON, lacks what places it, or has a field of another type or out of its range.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final

import msgspec
import polars as pl

from kordon.codecs.decision import SCHEMA
from kordon.spark_jobs.judging.schema import DECISIONS

_PLACE: Final = ("log_partition", "log_offset")
_TOLD: Final = [name for name in DECISIONS if name not in {*_PLACE, "evidence"}]
_NEEDED: Final = ("worker", "number", "kind", "at_ms")


def _bits(count: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(1 << (count - 1)), le=(1 << (count - 1)) - 1)]


_TYPES: Final[dict[Any, Any]] = {pl.String: str, pl.Int32: _bits(32), pl.Int64: _bits(64)}


def _field(name: str) -> tuple[Any, ...]:
    kind = _TYPES[DECISIONS[name]]
    return (name, kind) if name in _NEEDED else (name, kind | None, None)


_LINE: Any = msgspec.defstruct(
    "Line",
    [*sorted((_field(name) for name in _TOLD), key=len), ("evidence", msgspec.Raw, msgspec.Raw()), ("schema", int, 0)],
    gc=False,
)
_NAMES: Final[tuple[str, ...]] = _LINE.__struct_fields__
_DECODER: Final = msgspec.json.Decoder(_LINE)
_NO_EVIDENCE: Final = (b"", b"null")


def decisions_of(
    values: Iterable[bytes | None], log_partitions: Sequence[int], log_offsets: Sequence[int | None]
) -> tuple[pl.DataFrame, int]:
    """Parses the decisions of records.

    Args:
        log_partitions: Where each stands in `__kordon.decisions`, or -1.
        log_offsets: Where each stands there, or None.

    Returns:
        `DECISIONS`, and how many of the records are no decisions.
    """
    with _uncollected():
        return _table([None if value is None else _line(value) for value in values], log_partitions, log_offsets)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keeps Python from looking for circles in thousands of rows: it takes as long as to read them, for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _table(
    lines: Sequence[tuple[Any, ...] | None], log_partitions: Sequence[int], log_offsets: Sequence[int | None]
) -> tuple[pl.DataFrame, int]:
    placed = zip(lines, log_partitions, log_offsets, strict=True)
    read = [(*line, partition, offset) for line, partition, offset in placed if line is not None]
    columns = (
        dict(zip((*_NAMES, *_PLACE), zip(*read, strict=True), strict=True)) if read else dict.fromkeys(DECISIONS, ())
    )
    table = pl.DataFrame({name: pl.Series(columns[name], dtype=kind) for name, kind in DECISIONS.items()})
    return table, len(lines) - len(read)


def _line(value: bytes) -> tuple[Any, ...] | None:
    try:
        line = _DECODER.decode(value)
        line.evidence = None if bytes(line.evidence) in _NO_EVIDENCE else bytes(line.evidence).decode()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return msgspec.structs.astuple(line) if line.schema >= SCHEMA else None
