"""The producers of all logs, as `transaction_log.py` knows them, kept between micro-batches.

Where a part of a log is not read, what stands in front of it says nothing about what is behind it. That is so where
retention was faster; where an audit begins in the middle; and where the leader changed exactly between two
micro-batches, as an unclean election may have taken what was read. No transaction outlasts `QUIET_MS`: behind that, a
producer of whom nothing is known is not open.

The state is bounded: a row for each partition; one for each of `MOST_PRODUCERS` producers and partitions, and what is
open of the first protocol; `MOST_WAITING` writes that a commit would prove something of, of which there are none if
Kordon works. Producers without an open transaction are forgotten after `QUIET_MS`, and first at the bound. A fault of
one that is forgotten is told as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import polars as pl

from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import PASS, UNKNOWN, State
from kordon.spark_jobs.judging.rules.belonging import NO_V, WITNESS
from kordon.spark_jobs.judging.rules.transaction_log import (
    COMMIT,
    NO_EPOCH,
    Judgement,
    LoggedProducer,
    Standing,
    Writes,
)
from kordon.spark_jobs.judging.schema import CHECKED, columns
from kordon.spark_jobs.judging.tables import QUIET_MS, shaped, stacked

MOST_PRODUCERS: Final = 100_000
MOST_WAITING: Final = 10_000
_PLACE: Final = ("topic", "partition")
_WHO: Final = (*_PLACE, "producer_id")
_LIVE: Final = ("epoch", "protocol", "v", "move")
"""With the producer, what writes have in common that are taken as one."""
_NEW: Final = (Standing.UNREAD, False, False)
"""The last fields of `Writes` that are not judged yet."""
_GAP: Final = "gap"
_WRITES_STEP: Final = "writes"

_WHOLE: Final = 0
"""All of the log has been read, and no producer is forgotten."""
_FORGOTTEN: Final = 1
"""Producers are forgotten, none of which was open."""
_UNREAD: Final = 2
"""A part has not been read, or one is forgotten that was open."""

_PLACES: Final = columns(
    topic=pl.String, partition=pl.Int32, next_offset=pl.Int64, leader_epoch=pl.Int32, known=pl.Int8, unread_ms=pl.Int64
)
"""How far a log has been read, and what of it is known. `unread_ms`: the newest decision's time when that began."""
_PRODUCERS: Final = columns(
    topic=pl.String,
    partition=pl.Int32,
    producer_id=pl.Int64,
    is_whole=pl.Boolean,
    witness=pl.Int32,
    is_ended=pl.Boolean,
    is_aborted=pl.Boolean,
    may_go_on=pl.Boolean,
    top=pl.Int32,
    commit=pl.Int32,
    newest_commit=pl.Int32,
    seen_ms=pl.Int64,
)
_FACTS: Final = tuple(name for name in _PRODUCERS.names() if name not in {*_WHO, "seen_ms"})
WRITES: Final = columns(
    topic=pl.String,
    partition=pl.Int32,
    producer_id=pl.Int64,
    **{name: pl.Int64 for name in Writes._fields if not name.startswith("is_")},
    is_after_abort=pl.Boolean,
    is_hidden=pl.Boolean,
)
_KEPT_WRITES: Final = columns(WRITES, is_waiting=pl.Boolean)
"""`is_waiting`: of `Producer.waiting`; or else it is `Producer.open`."""
STATE: Final[Mapping[str, pl.Schema]] = {"place": _PLACES, "producer": _PRODUCERS, "writes": _KEPT_WRITES}
_STEPS: Final = columns(WRITES, kind=pl.String, offset=pl.Int64)

_Place: TypeAlias = tuple[str, int]
_Row: TypeAlias = dict[str, Any]


class JudgedTransactions(NamedTuple):
    """What came of a micro-batch."""

    state: State
    """As `STATE`."""
    committed: pl.DataFrame
    """`WRITES` that are committed, and not behind a witness of theirs, or hidden."""
    checked: pl.DataFrame
    """`CHECKED`: of these none, of all others what can be said."""


def seen(facts: Facts, state: State) -> JudgedTransactions:
    """Updates all logs with the new events of a micro-batch.

    Args:
        state: The previous result, as `STATE`.
    """
    gaps, places = _read(facts, state["place"])
    new = facts.batches.filter(pl.col("event").is_not_null() | pl.col("protocol").is_not_null())
    if new.is_empty() and (gaps.is_empty() or state["producer"].is_empty()):
        logs, producers, writes = _Logs({}), state["producer"], state["writes"]
    else:
        steps = _steps(new, gaps)
        named = steps.select(_WHO).unique()
        touched, others = _divided(state["producer"], named, gaps)
        its_writes, their_writes = _divided(state["writes"], named, gaps)
        logs = _Logs(_known(facts, state["place"]))
        logs.load(touched, its_writes)
        logs.take(steps)
        told = logs.producers(facts.newest_ms)
        producers, writes = stacked(_PRODUCERS, others, told[0]), stacked(_KEPT_WRITES, their_writes, told[1])
    kept = _bounded(places, producers, writes, facts, logs)
    return JudgedTransactions(kept, shaped(pl.DataFrame(logs.committed, schema=WRITES), WRITES), logs.checked())


def _read(facts: Facts, known: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns where something is missing of logs, before an offset, and how far they are read now."""
    batches = facts.batches.select(*_PLACE, "base_offset", "last_offset", "leader_epoch")
    if batches.is_empty():
        return batches, _settled(known, facts)
    before = pl.col("last_offset").shift(1).over(_PLACE) + 1
    rows = batches.with_columns(before.alias("expected"))
    firsts = rows.filter(pl.col("expected").is_null()).join(known, on=_PLACE, how="left", suffix="_known")
    is_next = pl.col("base_offset") == pl.col("next_offset").fill_null(0)
    is_of_leader = pl.col("leader_epoch").eq(pl.col("leader_epoch_known")).fill_null(value=True)
    gaps = pl.concat(
        [rows.filter(pl.col("base_offset") != pl.col("expected")), firsts.filter(~(is_next & is_of_leader))],
        how="diagonal",
    ).select(*_PLACE, "base_offset")
    last = batches.group_by(_PLACE, maintain_order=True).agg(
        (pl.last("last_offset") + 1).alias("next_offset"), pl.last("leader_epoch")
    )
    missed = gaps.select(_PLACE).unique().with_columns(is_missed=True)
    told = last.join(known.select(*_PLACE, "known", "unread_ms"), on=_PLACE, how="left").join(
        missed, on=_PLACE, how="left"
    )
    now = told.with_columns(
        pl.when("is_missed").then(_UNREAD).otherwise(pl.col("known").fill_null(_WHOLE)).alias("known"),
        pl.when("is_missed").then(facts.newest_ms).otherwise("unread_ms").alias("unread_ms"),
    )
    others = known.join(last, on=_PLACE, how="anti")
    return gaps, _settled(stacked(_PLACES, others, now), facts)


def _settled(places: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """A transaction that was open when a part of its log was missed has ended some time."""
    since = _since(pl.col("unread_ms"), facts.newest_ms)
    is_over = (pl.col("known") == _UNREAD) & (facts.newest_ms - since >= QUIET_MS)
    known = pl.when(is_over).then(_FORGOTTEN).otherwise("known").cast(pl.Int8).alias("known")
    return places.with_columns(known, since.alias("unread_ms"))


def _since(time_ms: pl.Expr, newest_ms: int) -> pl.Expr:
    """Returns when something was, as far as there was a decision by which to tell the time; else now."""
    return pl.when(time_ms == 0).then(newest_ms).otherwise(time_ms)


def _known(facts: Facts, places: pl.DataFrame) -> dict[_Place, int]:
    """Returns what was known of logs before; of new ones that is all, until a gap says otherwise."""
    told = _settled(places, facts).select(*_PLACE, "known").iter_rows()
    return {(topic, partition): known for topic, partition, known in told}


def _steps(new: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """Returns witnesses, markers, gaps, and the writes between them, in the order of the logs."""
    is_event = pl.col("event").is_not_null()
    events = new.filter(is_event).select(
        *_PLACE,
        "producer_id",
        pl.col("producer_epoch").alias("epoch"),
        "leader_epoch",
        pl.col("event").alias("kind"),
        pl.col("base_offset").alias("offset"),
    )
    missed = gaps.select(*_PLACE, pl.lit(_GAP).alias("kind"), pl.col("base_offset").alias("offset"))
    rows = new.with_columns(pl.when(is_event).then("producer_id").otherwise("client_producer_id").alias("producer_id"))
    marked = pl.concat([rows, missed.rename({"offset": "base_offset"})], how="diagonal").sort(
        *_PLACE, "base_offset", "kind", nulls_last=True
    )
    between = is_event.cum_sum().over(_WHO).alias("event_number"), pl.col("kind").is_not_null().cum_sum().alias("part")
    writes = (
        marked.with_columns(between)
        .filter(pl.col("protocol").is_not_null() & ~is_event)
        .group_by(
            *_WHO, "event_number", "part", pl.col("producer_epoch").alias("epoch"), *_LIVE[1:], maintain_order=True
        )
        .agg(pl.first("base_offset").alias("first_offset"), pl.last("last_offset", "leader_epoch"), pl.sum("records"))
        .with_columns(pl.lit(_WRITES_STEP).alias("kind"), pl.col("first_offset").alias("offset"))
    )
    # a gap lies in front of the batch at its offset
    order = (pl.col("kind") != _GAP).alias("_order")
    return stacked(_STEPS, events, missed, writes).sort(*_PLACE, "offset", order)


def _divided(table: pl.DataFrame, named: pl.DataFrame, gaps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divides what is kept into that of producers and logs of which there is something new, and the rest."""
    if table.is_empty():
        return table, table
    rows = table.with_row_index("row")
    its = pl.concat([rows.join(named, on=_WHO, how="semi"), rows.join(gaps, on=_PLACE, how="semi")]).get_column("row")
    is_touched = pl.col("row").is_in(its.unique().implode())
    return rows.filter(is_touched).drop("row"), rows.filter(~is_touched).drop("row")


def stream_of(v: int, partition: int) -> int:
    """Returns the stream that a tag names."""
    return -1 - partition if v == NO_V else v


@dataclass(slots=True)
class _Range:
    """What was looked at of one stream in one partition, with one verdict."""

    first_offset: int
    last_offset: int
    count: int


class _Logs:
    """The logs of which there is something new.

    Args:
        known: What was known of each log before.
    """

    def __init__(self, known: dict[_Place, int]) -> None:
        self.committed: list[_Row] = []
        self._known = known
        self._logs: dict[_Place, dict[int, LoggedProducer]] = {}
        self._checked: dict[tuple[str, int, int, str], _Range] = {}

    def load(self, producers: pl.DataFrame, writes: pl.DataFrame) -> None:
        """Takes what was kept of producers."""
        for row in producers.iter_rows(named=True):
            log = self._logs.setdefault((row["topic"], row["partition"]), {})
            log[row["producer_id"]] = LoggedProducer(**{name: row[name] for name in _FACTS})
        for row in writes.iter_rows(named=True):
            producer = self._logs[row["topic"], row["partition"]][row["producer_id"]]
            its = Writes(**{name: row[name] for name in Writes._fields})
            if row["is_waiting"]:
                producer.waiting.append(its._replace(standing=Standing(its.standing)))
            else:
                producer.open = its

    def take(self, steps: pl.DataFrame) -> None:
        """Updates the log with what was read, in order."""
        names = ("topic", "partition", "kind", "producer_id", "leader_epoch", *Writes._fields[:7])
        for topic, partition, kind, producer_id, leader_epoch, *writes in steps.select(names).iter_rows():
            place = topic, partition
            if kind == _GAP:
                self._miss(place)
                continue
            producer = self._producer(place, producer_id)
            if kind == _WRITES_STEP:
                self._write(place, producer, Writes._make((*writes, leader_epoch, *_NEW)))
            elif kind == WITNESS:
                self._judge(place, producer_id, producer.see_witness(writes[0], leader_epoch))
            else:
                self._judge(place, producer_id, producer.see_marker(writes[0], is_commit=kind == COMMIT))

    def _producer(self, place: _Place, producer_id: int) -> LoggedProducer:
        log = self._logs.setdefault(place, {})
        producer = log.get(producer_id)
        if producer is None:
            known = self._known.get(place, _WHOLE)
            producer = log[producer_id] = LoggedProducer(is_whole=known == _WHOLE, is_ended=known == _FORGOTTEN)
        return producer

    def _miss(self, place: _Place) -> None:
        """Something is missing here: of what waited for a marker, nothing can be said."""
        for producer in self._logs.pop(place, {}).values():
            for each in producer.waiting:
                self.look(place, each, UNKNOWN)
        self._known[place] = _UNREAD

    def _write(self, place: _Place, producer: LoggedProducer, writes: Writes) -> None:
        if producer.write(writes) is Standing.WITNESSED:
            self.look(place, writes, PASS)

    def _judge(self, place: _Place, producer_id: int, judgements: Iterable[Judgement]) -> None:
        for writes, is_committed in judgements:
            if not is_committed:
                self.look(place, writes, PASS)
            elif writes.standing is Standing.UNREAD:
                self.look(place, writes, UNKNOWN)
            else:
                who = dict(zip(_WHO, (*place, producer_id), strict=True))
                self.committed.append({**who, **writes._asdict(), "standing": int(writes.standing)})

    def look(self, place: _Place, writes: Writes, verdict: str) -> None:
        """Notes what can be said of some writes."""
        key = (*place, writes.v, verdict)
        known = self._checked.get(key)
        if known is None:
            self._checked[key] = _Range(writes.first_offset, writes.last_offset, writes.records)
            return
        known.first_offset = min(known.first_offset, writes.first_offset)
        known.last_offset = max(known.last_offset, writes.last_offset)
        known.count += writes.records

    def give_up(self, waiting: pl.DataFrame) -> None:
        """Notes writes whose marker no longer matters."""
        for row in waiting.iter_rows(named=True):
            self.look((row["topic"], row["partition"]), Writes(**{name: row[name] for name in Writes._fields}), UNKNOWN)

    def checked(self) -> pl.DataFrame:
        """Returns what was looked at."""
        rows = [
            (topic, partition, stream_of(v, partition), each.first_offset, each.last_offset, each.count, verdict)
            for (topic, partition, v, verdict), each in self._checked.items()
        ]
        return pl.DataFrame(rows, schema=CHECKED, orient="row")

    def producers(self, newest_ms: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Returns the producers, and what they have written that still counts, to be kept."""
        told: list[_Row] = []
        writes: list[_Row] = []
        for (topic, partition), log in self._logs.items():
            for producer_id, each in log.items():
                who = {"topic": topic, "partition": partition, "producer_id": producer_id}
                told.append({**who, **{name: getattr(each, name) for name in _FACTS}, "seen_ms": newest_ms})
                writes += [
                    {**who, **its._asdict(), "standing": int(its.standing), "is_waiting": True} for its in each.waiting
                ]
                if each.open is not None:
                    writes.append(
                        {**who, **each.open._asdict(), "standing": int(each.open.standing), "is_waiting": False}
                    )
        return pl.DataFrame(told, schema=_PRODUCERS), pl.DataFrame(writes, schema=_KEPT_WRITES)


def _bounded(
    places: pl.DataFrame, producers: pl.DataFrame, writes: pl.DataFrame, facts: Facts, logs: _Logs
) -> dict[str, pl.DataFrame]:
    """Forgets producers that are too old or too many, and writes that are too many."""
    producers = producers.with_columns(_since(pl.col("seen_ms"), facts.newest_ms).alias("seen_ms"))
    is_kept = _are_kept(producers, facts.newest_ms)
    if not is_kept.all():
        gone = producers.filter(~is_kept)
        producers = producers.filter(is_kept)
        places = _without(places, gone, facts.newest_ms)
        writes, lost = _divided_by(writes, gone)
        logs.give_up(lost)
    waiting = writes.filter("is_waiting")
    if waiting.height > MOST_WAITING:
        logs.give_up(waiting.head(waiting.height - MOST_WAITING))
        writes = pl.concat([writes.filter(~pl.col("is_waiting")), waiting.tail(MOST_WAITING)])
    return {"place": places, "producer": producers, "writes": writes}


def _are_kept(producers: pl.DataFrame, newest_ms: int) -> pl.Series:
    """Returns which producers are kept: those that are open, and the newest of the others."""
    is_quiet = newest_ms - pl.col("seen_ms") >= QUIET_MS
    aged = producers.select(_is_closed().alias("closed"), is_quiet.alias("quiet"), "seen_ms").with_row_index("row")
    order = aged.sort("closed", -pl.col("seen_ms"), maintain_order=True).with_row_index("rank").sort("row")
    return order.select(~(pl.col("closed") & pl.col("quiet")) & (pl.col("rank") < MOST_PRODUCERS)).to_series()


def _is_closed() -> pl.Expr:
    return pl.col("is_ended") | (pl.col("witness") == NO_EPOCH)


def _without(places: pl.DataFrame, gone: pl.DataFrame, newest_ms: int) -> pl.DataFrame:
    """Returns places with what is known of them when some producers are forgotten."""
    lost = gone.group_by(_PLACE).agg((~_is_closed()).any().alias("was_open"))
    told = places.join(lost, on=_PLACE, how="left", maintain_order="left")
    level = pl.when("was_open").then(_UNREAD).when(pl.col("was_open").is_not_null()).then(_FORGOTTEN).otherwise(_WHOLE)
    now = told.with_columns(
        pl.max_horizontal("known", level).alias("known"),
        pl.when("was_open").then(newest_ms).otherwise("unread_ms").alias("unread_ms"),
    )
    return shaped(now, _PLACES)


def _divided_by(writes: pl.DataFrame, gone: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    return writes.join(gone, on=_WHO, how="anti"), writes.join(gone, on=_WHO, how="semi").filter("is_waiting")
