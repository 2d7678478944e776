"""A day of decisions, and the topic data that they tell of: made up, but as a Kordon would have left them behind.

One managed topic, four virtual partitions to each physical one, a producer and a reader for each. A round is a second:
each stream has a run of batches acknowledged, and its reader is given all up to there; in every sixtieth a stream's
writes wait, and a change of the layout is begun and taken back. Everything holds, so an audit finds nothing. All of it
follows from the round's number, so any part of it can be made alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kordon.codecs.fetched import Fetched
from kordon.codecs.records import HEADER_BYTES, LOG_OVERHEAD
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import LAYOUT_JSON, Layout
from kordon.spark_jobs.batch_reader import HEADER

TOPIC: Final = "orders"
VIRTUAL: Final = 4
"""Virtual partitions to a physical one."""
START_MS: Final = 1_790_000_000_000
_LAYOUTS_OFFSET: Final = 1
_FIRST_ROUND_OFFSET: Final = 10
_PRODUCER: Final = 1_000
_STEPS_EVERY: Final = 60
_CHUNK_ROUNDS: Final = 2_000
_STEPS: Final = ("hold", "release", "fence", "acknowledge", "cancel")
"""Once a minute, in this order."""

_join: Final[Any] = pc.binary_join_element_wise  # pyright: ignore[reportAttributeAccessIssue]  # made when imported

Column = Any
"""An array of pyarrow's, or one value for all rows."""


@dataclass(frozen=True)
class Day:
    """What there is of it."""

    partitions: int
    rounds: int
    """Seconds; 86,400 for the whole of it."""
    workers: int = 2
    batches: int = 4
    """In a run."""
    records: int = 16
    """In a batch."""
    batch_bytes: int = 16_384

    @property
    def streams(self) -> int:
        return self.partitions * VIRTUAL

    @property
    def decisions(self) -> int:
        """All of them."""
        steps = -(-self.rounds // _STEPS_EVERY) * len(_STEPS)
        return self.workers + 2 * self.streams * self.rounds + steps

    @property
    def end(self) -> int:
        """Of each physical partition: the next offset."""
        return self.rounds * self.round_records

    @property
    def round_records(self) -> int:
        """How far the log of a physical partition gets in a round."""
        return VIRTUAL * self.batches * self.records

    @property
    def topic_bytes(self) -> int:
        """Of all batches."""
        return self.partitions * self.rounds * VIRTUAL * self.batches * self.batch_bytes


def write_decisions(day: Day, folder: Path) -> int:
    """Writes the decision files of all workers; returns their size in bytes."""
    numbers = dict.fromkeys(range(day.workers), 0)
    for first in range(0, day.rounds, _CHUNK_ROUNDS):
        rounds = np.arange(first, min(day.rounds, first + _CHUNK_ROUNDS))
        for worker in numbers:
            table = _decisions(day, worker, rounds)
            if first == 0:
                table = pa.concat_arrays([pa.array([_adopted(day, worker)]), table])
            lines = _numbered(table, worker, numbers[worker])
            numbers[worker] += len(lines)
            path = folder / f"decisions-w{worker}-{first:09}.jsonl"
            path.write_bytes("\n".join([*lines.to_pylist(), ""]).encode())
    return sum(path.stat().st_size for path in folder.glob("*.jsonl"))


def fetched(day: Day, partition: int, offset: int, most_bytes: int) -> Fetched:
    """Returns the bytes that a broker would have answered with: whole batches from the one at an offset on."""
    first = offset // day.records
    count = min(most_bytes // day.batch_bytes, day.end // day.records - first)
    places = np.arange(first, first + count)
    written = places // VIRTUAL * day.records
    streams = partition * VIRTUAL + places % VIRTUAL
    tags = np.array([tag(partition * VIRTUAL + each, 0, _PRODUCER + each) for each in range(VIRTUAL)], dtype=np.int64)
    data = np.zeros((count, day.batch_bytes), dtype=np.uint8)
    header = np.zeros(count, dtype=HEADER)
    header["base_offset"] = places * day.records
    header["batch_length"] = day.batch_bytes - LOG_OVERHEAD
    header["magic"] = 2
    header["last_offset_delta"] = day.records - 1
    header["base_timestamp"] = header["max_timestamp"] = START_MS + places * day.records // day.round_records * 1_000
    header["producer_id"] = tags[streams % VIRTUAL]
    header["base_sequence"] = written
    header["records_count"] = day.records
    data[:, :HEADER_BYTES] = header.view(np.uint8).reshape(count, HEADER_BYTES)
    return Fetched(error_code=0, high_watermark=day.end, log_start_offset=0, records=data.reshape(-1).data)


def _adopted(day: Day, worker: int) -> str:
    layout = Layout.created(TOPIC, UUID(int=1), day.partitions, day.streams)
    evidence = {"layout": json.loads(LAYOUT_JSON.dump_json(layout))}
    told = {
        "kind": "adopt",
        "at_ms": START_MS,
        "topic": TOPIC,
        "layout_epoch": 0,
        "layouts_offset": _LAYOUTS_OFFSET,
        "evidence": evidence,
    }
    return json.dumps(told, separators=(",", ":"))[1:]


def _decisions(day: Day, worker: int, rounds: npt.NDArray[np.int64]) -> Any:
    """Returns a worker's decisions of some rounds, without their heads, in their order."""
    streams = np.arange(day.streams)[np.arange(day.streams) % day.workers == worker]
    at, v = np.repeat(rounds, len(streams)), np.tile(streams, len(rounds))
    runs = [_admits(day, at, v), _deliveries(day, at, v)]
    order = [np.stack([at * 4 + place, v]) for place in (1, 2)]
    steps = rounds[rounds % _STEPS_EVERY == 0] if worker == 0 else rounds[:0]
    for place, lines in enumerate(_steps(steps)):
        runs.append(lines)
        order.append(np.stack([steps * 4 + 3, np.full(len(steps), place)]))
    keys = np.concatenate(order, axis=1)
    return pc.take(pa.concat_arrays(runs), pa.array(np.lexsort((keys[1], keys[0]))))


def _place(v: npt.NDArray[np.int64]) -> dict[str, Any]:
    return {
        "client_id": '"bench"',
        "topic": f'"{TOPIC}"',
        "stream": v,
        "partition": v // VIRTUAL,
        "layout_epoch": 0,
        "move": 0,
        "layouts_offset": _LAYOUTS_OFFSET,
    }


def _admits(day: Day, at: npt.NDArray[np.int64], v: npt.NDArray[np.int64]) -> Any:
    records = day.batches * day.records
    first = at * day.round_records + v % VIRTUAL * day.records
    return _lines(
        kind='"admit"',
        at_ms=START_MS + at * 1_000,
        connection=v,
        **_place(v),
        producer_id=_PRODUCER + v % VIRTUAL,
        producer_epoch=0,
        first_sequence=at * records,
        last_sequence=(at + 1) * records - 1,
        first_offset=first,
        last_offset=first + day.round_records - (VIRTUAL - 1) * day.records - 1,
        batches=day.batches,
        records=records,
        bytes=day.batches * day.batch_bytes,
    )


def _deliveries(day: Day, at: npt.NDArray[np.int64], v: npt.NDArray[np.int64]) -> Any:
    return _lines(
        kind='"deliver"',
        at_ms=START_MS + at * 1_000 + 500,
        connection=day.streams + v,
        **_place(v),
        first_offset=at * day.round_records,
        last_offset=(at + 1) * day.round_records - 1,
        records=day.batches * day.records,
        bytes=day.batches * day.batch_bytes,
    )


def _steps(at: npt.NDArray[np.int64]) -> Iterator[Any]:
    """Yields what is decided once a minute."""
    held = {
        "at_ms": START_MS + at * 1_000 + 600,
        "topic": f'"{TOPIC}"',
        "stream": 0,
        "partition": 0,
        "reason": '"leader"',
    }
    fence = [f'"f{each}"' for each in at.tolist()]
    change = {
        "at_ms": START_MS + at * 1_000 + 700,
        "topic": f'"{TOPIC}"',
        "layout_epoch": 1,
        "layouts_offset": _FIRST_ROUND_OFFSET + at,
        "fence": pa.array(fence, type=pa.string()),
    }
    yield _lines(kind='"hold"', **held)
    yield _lines(kind='"release"', **held)
    yield _lines(kind='"fence"', **change, evidence='{"members":["w0","w1"],"sealed":[0],"kind":"change"}')
    yield _lines(kind='"acknowledge"', **change)
    yield _lines(kind='"cancel"', **change)


def _lines(**fields: Column) -> Any:
    """Writes JSON objects, without their opening braces: a field is a column of numbers, or JSON for all rows."""
    parts: list[Any] = []
    for place, (name, values) in enumerate(fields.items()):
        comma = "," if place else ""
        parts.append(f'{comma}"{name}":')
        if isinstance(values, np.ndarray):
            parts.append(pc.cast(pa.array(values), pa.string()))
        else:
            parts.append(values if isinstance(values, pa.Array) else str(values))
    return _join(*parts, "}", "")


def _numbered(lines: Any, worker: int, first: int) -> Any:
    """Puts the heads in front: by whom, and its number."""
    numbers = pc.cast(pa.array(np.arange(first, first + len(lines))), pa.string())
    head = f'{{"schema":1,"host":"bench","worker":"w{worker}","number":'
    return _join(head, numbers, ",", lines, "")
