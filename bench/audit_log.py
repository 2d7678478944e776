"""The topics of the made-up day as brokers have them: whole batches with their headers.

Records are in those alone that an audit opens (`audit_keys.py`); it looks at no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from kordon.bench.audit_day import FIRST_PRODUCER, START_MS, Day, Numbers
from kordon.bench.audit_keys import ONE_IN, fill
from kordon.bench.audit_topics import Phase, topics_of
from kordon.codecs.fetched import Fetched
from kordon.codecs.records import HEADER_BYTES, LOG_OVERHEAD
from kordon.proxy.ordering.identity import MOVES, NO_V, WRITER_BITS, tag
from kordon.spark_jobs.batch_reader import HEADER, read_partition
from kordon.spark_jobs.brokers import PartitionKey
from kordon.spark_jobs.judging.shipments import What


class _Headers(NamedTuple):
    """What differs from batch to batch."""

    tagged_id: Numbers
    sequence: Numbers
    at: Numbers
    """The round in which it was written."""
    home: Numbers
    """The virtual partition to which its keys belong."""


def ends_of(day: Day, at: int) -> dict[PartitionKey, int]:
    """Returns how far all logs have got before a round, of partitions that have something."""
    return {
        PartitionKey(topic.name, q): end
        for topic in topics_of(day)
        for q, end in enumerate(topic.ends(at).tolist())
        if end
    }


def fetched(day: Day, place: PartitionKey, offset: int, most_bytes: int, at: int) -> Fetched:
    """Returns what a broker answers before a round: whole batches from the one at an offset on.

    The bytes of the last answer are used once more; they hold until the next one.
    """
    topic = topics_of(day)[day.names.index(place.topic)]
    end, start = (int(topic.ends(max(0, each))[place.partition]) for each in (at, at - day.retained))
    first = offset // day.records
    count = min(most_bytes // day.batch_bytes, end // day.records - first)
    parts = [_headers(day, *piece) for piece in _pieces(day, place, first, first + count)]
    buffer = _buffer(most_bytes // day.batch_bytes, day.batch_bytes)[:count]
    if parts:
        told = _Headers(*(np.concatenate(each) for each in zip(*parts, strict=True)))
        header = _header(day, first, told)
        buffer[:, :HEADER_BYTES] = header.view(np.uint8).reshape(count, HEADER_BYTES)
        fill(day, buffer, header, told.home)
    return Fetched(error_code=0, high_watermark=end, log_start_offset=start, records=buffer.reshape(-1).data)


@lru_cache(1)
def _buffer(count: int, batch_bytes: int) -> npt.NDArray[np.uint8]:
    """Returns room for an answer: to make it anew each time would take longer than all else."""
    return np.zeros((count, batch_bytes), dtype=np.uint8)


def _pieces(day: Day, place: PartitionKey, first: int, end: int) -> Iterator[tuple[Phase, int, Numbers]]:
    """Yields the phases of batches [first, end) of a log, each with its partition and the batches that it has."""
    q = place.partition
    for phase in topics_of(day)[day.names.index(place.topic)].phases:
        begin, stop = (int(phase.begin(q, each)) // day.records for each in (phase.first, phase.end))
        if max(first, begin) < min(end, stop):
            yield phase, q, np.arange(max(first, begin), min(end, stop)) - begin


def _headers(day: Day, phase: Phase, q: int, places: Numbers) -> _Headers:
    """Returns the headers of some batches of a phase, by their places in it."""
    strays = len(phase.strays.get(q, ()))
    late, regular = _late(phase, q, places[places < strays]), _regular(day, phase, q, places[places >= strays] - strays)
    return _Headers(*(np.concatenate(each) for each in zip(late, regular, strict=True)))


def _late(phase: Phase, q: int, places: Numbers) -> _Headers:
    strays = [phase.strays[q][int(place)] for place in places]
    tags = [tag(each.stream, each.home.move, FIRST_PRODUCER + each.producer) for each in strays]
    sequences = [each.sequence for each in strays]
    streams = np.array([each.stream for each in strays], np.int64)
    at = np.full_like(places, phase.first)
    return _Headers(np.array(tags, np.int64), np.array(sequences, np.int64), at, streams)


def _regular(day: Day, phase: Phase, q: int, places: Numbers) -> _Headers:
    peers, written = int(phase.peers[q]), phase.written
    if not peers:
        return _Headers(places, places, places, places)
    at = phase.first + places // (peers * day.batches)
    batch = places // peers % day.batches
    chosen = phase.by_rank[q][places % peers]
    stream, since = written.stream[chosen], written.since[chosen]
    producer = day.producer(stream, phase.topic, at)
    sequence = (at - since) // day.producers * day.run_records + batch * day.records
    v = np.where(stream < 0, NO_V, stream) + 1
    owner = v << 8 | written.move[chosen] % MOVES
    home = np.where(stream < 0, phase.layout.homes.index(q), stream)
    return _Headers(owner << WRITER_BITS | FIRST_PRODUCER + producer, sequence, at, home)


def _header(day: Day, first: int, told: _Headers) -> npt.NDArray[Any]:
    header = np.zeros(len(told.at), dtype=HEADER)
    header["base_offset"] = (first + np.arange(len(told.at))) * day.records
    header["batch_length"] = day.batch_bytes - LOG_OVERHEAD
    header["magic"] = 2
    header["last_offset_delta"] = day.records - 1
    header["base_timestamp"] = header["max_timestamp"] = START_MS + told.at * 1_000
    header["producer_id"] = told.tagged_id
    header["base_sequence"] = told.sequence
    header["records_count"] = day.records
    return header


class Recorded:
    """Answers as the brokers of a day would before a round.

    Args:
        at: The round.
    """

    def __init__(self, day: Day, at: int) -> None:
        self._day = day
        self._at = at

    def fetch(self, place: PartitionKey, offset: int, most_bytes: int) -> Fetched:
        """Returns batches from an offset on."""
        return fetched(self._day, place, offset, most_bytes, self._at)

    def ends(self, places: Iterable[PartitionKey], _: int) -> dict[PartitionKey, int]:
        """Returns where logs begin that nobody has read yet: at 0, as retention is slower than any reader."""
        return dict.fromkeys(places, 0)

    def read(self, place: PartitionKey, start: int | None, end: int) -> Iterator[tuple[What, pl.DataFrame]]:
        """Reads batches as the auditor does."""
        brokers: Any = self
        yield from read_partition(brokers, place, start, end, one_in=ONE_IN)
