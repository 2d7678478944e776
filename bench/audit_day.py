"""A day of decisions, and the topic data that they tell of: made up, but as a Kordon would have left them behind.

One managed topic, four virtual partitions to each physical one, a producer and a reader for each. A round is a second:
each stream has a run of batches acknowledged, and its reader is given all up to there; in every sixtieth a stream's
writes wait, and a change of the layout is begun and taken back. Everything holds, so an audit finds nothing. All of it
follows from the round's number, so any part of it can be made alone.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np

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
_FILE_ROUNDS: Final = 2_000
_STEPS: Final = ("hold", "release", "fence", "acknowledge", "cancel")
"""Once a minute, in this order."""


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
    size = 0
    for worker in range(day.workers):
        numbers = itertools.count()
        for first in range(0, day.rounds, _FILE_ROUNDS):
            head = {"schema": 1, "host": "bench", "worker": f"w{worker}"}
            rounds = range(first, min(day.rounds, first + _FILE_ROUNDS))
            rows = itertools.chain([_adopted(day)] if first == 0 else [], _decisions(day, worker, rounds))
            lines = [json.dumps({**head, "number": next(numbers), **row}, separators=(",", ":")) for row in rows]
            path = folder / f"decisions-w{worker}-{first:09}.jsonl"
            size += path.write_bytes("\n".join([*lines, ""]).encode())
    return size


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


def _adopted(day: Day) -> dict[str, Any]:
    layout = Layout.created(TOPIC, UUID(int=1), day.partitions, day.streams)
    return {
        "kind": "adopt",
        "at_ms": START_MS,
        "topic": TOPIC,
        "layout_epoch": 0,
        "layouts_offset": _LAYOUTS_OFFSET,
        "evidence": {"layout": json.loads(LAYOUT_JSON.dump_json(layout))},
    }


def _decisions(day: Day, worker: int, rounds: range) -> Iterator[dict[str, Any]]:
    """Yields a worker's decisions of some rounds, in their order."""
    streams = range(worker, day.streams, day.workers)
    for at in rounds:
        yield from (_admit(day, at, v) for v in streams)
        yield from (_delivery(day, at, v) for v in streams)
        if worker == 0 and at % _STEPS_EVERY == 0:
            yield from _steps(at)


def _place(v: int) -> dict[str, Any]:
    return {
        "client_id": "bench",
        "topic": TOPIC,
        "stream": v,
        "partition": v // VIRTUAL,
        "layout_epoch": 0,
        "move": 0,
        "layouts_offset": _LAYOUTS_OFFSET,
    }


def _admit(day: Day, at: int, v: int) -> dict[str, Any]:
    records = day.batches * day.records
    first = at * day.round_records + v % VIRTUAL * day.records
    return {
        "kind": "admit",
        "at_ms": START_MS + at * 1_000,
        "connection": v,
        **_place(v),
        "producer_id": _PRODUCER + v % VIRTUAL,
        "producer_epoch": 0,
        "first_sequence": at * records,
        "last_sequence": (at + 1) * records - 1,
        "first_offset": first,
        "last_offset": first + day.round_records - (VIRTUAL - 1) * day.records - 1,
        "batches": day.batches,
        "records": records,
        "bytes": day.batches * day.batch_bytes,
    }


def _delivery(day: Day, at: int, v: int) -> dict[str, Any]:
    return {
        "kind": "deliver",
        "at_ms": START_MS + at * 1_000 + 500,
        "connection": day.streams + v,
        **_place(v),
        "first_offset": at * day.round_records,
        "last_offset": (at + 1) * day.round_records - 1,
        "records": day.batches * day.records,
        "bytes": day.batches * day.batch_bytes,
    }


def _steps(at: int) -> Iterator[dict[str, Any]]:
    """Yields what is decided once a minute."""
    held = {"at_ms": START_MS + at * 1_000 + 600, "topic": TOPIC, "stream": 0, "partition": 0, "reason": "leader"}
    change = {
        "at_ms": START_MS + at * 1_000 + 700,
        "topic": TOPIC,
        "layout_epoch": 1,
        "layouts_offset": _FIRST_ROUND_OFFSET + at,
        "fence": f"f{at}",
    }
    evidence = {"members": ["w0", "w1"], "sealed": [0], "kind": "change"}
    yield {"kind": "hold", **held}
    yield {"kind": "release", **held}
    yield {"kind": "fence", **change, "evidence": evidence}
    yield {"kind": "acknowledge", **change}
    yield {"kind": "cancel", **change}
