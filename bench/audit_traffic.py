"""What is acknowledged and given out on the made-up day: many decisions at once, as columns, and as lines of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from kordon.bench.audit_day import FIRST_PRODUCER, START_MS, Day, Numbers
from kordon.bench.audit_topics import Phase, Topic, Written, topics_of

ADMITTED: Final = 2
GIVEN: Final = 4
"""Slots of a round: what is done in one comes before what is done in the next. Steps take those between."""
LINES: Final = pl.Schema(
    {"worker": pl.Int64, "at": pl.Int64, "slot": pl.Int64, "place": pl.Int64, "at_ms": pl.Int64, "rest": pl.String}
)
"""`at`: the round. `place`: within its slot. `rest`: of the line, behind the number."""
END_MS: Final = 999
"""Runs end with their round."""
_MOVED: Final = 100_000
_AGAIN: Final = 1_000_000
_VISIT: Final = 500
"""Rounds after which a stock reader connects anew."""
_NAME: Final = re.compile(r"<(\w+)>")
_PLACE: Final = (
    '"topic":"<topic>","stream":<stream>,"partition":<partition>,"layout_epoch":<layout_epoch>,"move":<move>,'
    '"layouts_offset":<layouts_offset>,'
)
_COUNTS: Final = '"first_offset":<first_offset>,"last_offset":<last_offset>,"batches":<batches>,"records":<records>,'
_ADMIT: Final = (
    '"began_ms":<began_ms>,"kind":"admit","connection":<connection>,"client_id":"shop-<connection>",'
    f'"principal":"User:shop",{_PLACE}"producer_id":<producer_id>,"producer_epoch":0,'
    f'"first_sequence":<first_sequence>,"last_sequence":<last_sequence>,{_COUNTS}"bytes":<bytes><evidence>}}'
)
_DELIVER: Final = (
    '"began_ms":<began_ms>,"kind":"deliver","connection":<connection>,"client_id":"<group>-<member>",'
    f'"principal":"User:<group>","group_id":"<group>","member_id":"<group>-<member>",{_PLACE}{_COUNTS}'
    '"bytes":<bytes>,"isolation_level":0<evidence>}'
)


class Readers(NamedTuple):
    """A group that reads."""

    group: str
    first: int
    """The number of its first member."""
    members: int
    behind: int
    """Rounds by which it is behind."""
    is_dialect: bool = False

    def member(self, stream: Numbers | int) -> Numbers:
        """Returns the numbers of the members that read streams."""
        return self.first + np.where(np.asarray(stream) < 0, -1 - np.asarray(stream), stream) % self.members


def readers_of(day: Day) -> tuple[Readers, ...]:
    """Returns all groups: stock readers, those of the dialect, and one reader that is behind."""
    return (
        Readers("orders", 1_000, 12, 0),
        Readers("ledger", 2_000, 6, 0, is_dialect=True),
        Readers("archive", 3_000, 1, day.behind),
    )


def connection(day: Day, member: Numbers | int, rounds: Numbers | int, *, visits: bool = False) -> Numbers:
    """Returns the numbers of the connections of producers or readers, as their workers count them."""
    again = (np.asarray(rounds) + 7 * np.asarray(member)) // _VISIT if visits else 0
    return np.asarray(member + _MOVED * day.has_moved(member, rounds) + _AGAIN * again)


def admitted(day: Day, first: int, end: int) -> Iterator[pl.DataFrame]:
    """Yields what is acknowledged in rounds [first, end), as `LINES`."""
    for topic in topics_of(day):
        for phase, begin, stop in topic.phases_of(first, end):
            yield _admitted(day, topic, phase, np.arange(begin, stop))


def _admitted(day: Day, topic: Topic, phase: Phase, rounds: Numbers) -> pl.DataFrame:
    written, at = _each_round(phase.written, rounds)
    producer = day.producer(written.stream, topic.number, at)
    worker = day.works_for(producer, at)
    late = np.where(at == phase.first, phase.stray_records[written.partition], 0)
    base = phase.begin(written.partition, at) + late + written.rank * day.records
    sequence = (at - written.born) // day.producers * day.run_records
    believed = {"undeleted_partition_count": phase.layout.count_in_force, "sent_epoch": phase.layout.epoch}
    told = {
        **_place(topic, written, phase.layout.epoch, phase.layouts_offset),
        "connection": connection(day, producer, at),
        "producer_id": FIRST_PRODUCER + producer,
        "first_sequence": sequence,
        "last_sequence": sequence + day.run_records - 1,
        "first_offset": base,
        "last_offset": base + (day.batches - 1) * phase.peers[written.partition] * day.records + day.records - 1,
        "batches": day.batches,
        "records": day.run_records,
        "bytes": day.batches * day.batch_bytes,
        "evidence": _evidence(believed) if topic.is_dialects else "",
    }
    lines = _lines(_ADMIT, told, worker, at, ADMITTED)
    return lines.filter(pl.Series(day.is_told(worker, at)))


def given(day: Day, first: int, end: int) -> Iterator[pl.DataFrame]:
    """Yields what readers are given in rounds [first, end), as `LINES`."""
    for readers in readers_of(day):
        for topic in topics_of(day):
            if readers.is_dialect or not topic.is_dialects:
                yield from _given_of(day, readers, topic, first, end)


def _given_of(day: Day, readers: Readers, topic: Topic, first: int, end: int) -> Iterator[pl.DataFrame]:
    if readers.behind:
        if topic.number:
            return
        end = min(end, day.rounds)
    # what a reader was not given any more by a worker that was killed comes a round late
    for phase, begin, stop in topic.phases_of(max(0, first - readers.behind - 1), end - readers.behind):
        lines = _given(day, readers, topic, phase, np.arange(begin, stop))
        yield lines.filter(pl.col("at").is_between(first, end - 1))


def _given(day: Day, readers: Readers, topic: Topic, phase: Phase, rounds: Numbers) -> pl.DataFrame:
    read, of = _each_round(_read_by(readers, phase), rounds)
    member = readers.member(read.stream)
    at = of + readers.behind
    is_late = (at == day.killed_at - 1) & day.has_moved(member, at + 1)
    at = at + is_late
    of_phase = np.searchsorted([each.first for each in topic.phases], at, side="right") - 1
    epochs = np.array([each.layout.epoch for each in topic.phases])
    offsets = np.array([each.layouts_offset for each in topic.phases])
    runs = phase.peers[read.partition] if readers.is_dialect else 1
    told = {
        **_place(topic, read, epochs[of_phase], offsets[of_phase]),
        "connection": connection(day, member, at, visits=not readers.is_dialect),
        "group": readers.group,
        "member": member,
        "first_offset": phase.begin(read.partition, of),
        "last_offset": phase.begin(read.partition, of + 1) - 1,
        "batches": 2,
        "records": runs * day.run_records,
        "bytes": runs * day.batches * day.batch_bytes,
        "evidence": _shown(topic, phase, of, is_late) if readers.is_dialect else "",
    }
    lines = _lines(_DELIVER, told, day.works_for(member, at), at, GIVEN)
    return lines.with_columns(place=pl.col("place") + pl.Series(of) * _AGAIN)


def _read_by(readers: Readers, phase: Phase) -> Written:
    if readers.is_dialect:
        return phase.read
    if not readers.behind:
        return phase.written
    few = phase.written.stream < len(phase.base) // 4
    return Written(*(each[few] for each in phase.written))


def _shown(topic: Topic, phase: Phase, of: Numbers, is_late: np.typing.NDArray[np.bool_]) -> pl.Series:
    """Returns the evidence of deliveries by which a reader begins something: where its group was."""
    is_begun = np.resize(phase.read.move == phase.layout.epoch, len(of))
    begins = (of == phase.first) & is_begun | is_late
    told = {int(at): _evidence({"positions": positions(topic, int(at))}) for at in np.unique(of[begins])}
    return pl.Series([told[int(at)] if begins[place] else "" for place, at in enumerate(of)])


@lru_cache(64)
def positions(topic: Topic, at: int) -> dict[int, int]:
    """Returns how far a group of the dialect has got before a round, by partition."""
    ends = topic.ends(at).tolist()
    newest = {each.id.partition: each.end for each in topic.phase(at).layout.segments}
    return {q: ends[q] if end is None else end for q, end in sorted(newest.items())}


def _evidence(told: Mapping[str, object]) -> str:
    return ',"evidence":' + json.dumps(told, separators=(",", ":"))


def _each_round(streams: Written, rounds: Numbers) -> tuple[Written, Numbers]:
    """Returns streams and rounds, each stream once for each round."""
    count = len(streams.stream)
    return Written(*(np.tile(each, len(rounds)) for each in streams)), np.repeat(rounds, count)


def _place(topic: Topic, streams: Written, epoch: Any, offset: Any) -> dict[str, Any]:
    place = {"topic": topic.name, "layout_epoch": epoch, "layouts_offset": offset}
    return {**place, "stream": streams.stream, "partition": streams.partition, "move": streams.move}


def _lines(template: str, told: Mapping[str, Any], worker: Numbers, at: Numbers, slot: int) -> pl.DataFrame:
    """Fills in a template for many lines at once; the JSON of `codecs/decision.py`, without what stands in front."""
    time = START_MS + at * 1_000
    columns = {**told, "began_ms": time, "at_ms": time + END_MS, "worker": worker, "at": at}
    arrays = {name: each for name, each in columns.items() if not isinstance(each, str | int)}
    constant = _NAME.sub(lambda name: str(columns[name[1]]) if name[1] not in arrays else name[0], template)
    pieces = _NAME.split(constant)  # text, name, text, name, …
    rest = (pl.col(each) if place % 2 else pl.lit(each) for place, each in enumerate(pieces))
    table = pl.DataFrame(arrays).with_columns(slot=pl.lit(slot, pl.Int64), place=pl.int_range(pl.len()))
    return table.with_columns(rest=pl.concat_str(*rest)).select(LINES.names()).cast(LINES)
