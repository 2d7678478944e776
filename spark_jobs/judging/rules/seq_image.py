"""SEQ-IMAGE (6): what was acknowledged stands in the topic exactly once, whatever homes its stream has had.

An identity is a client's producer id and epoch in one stream. In each home of the stream it begins at sequence 0 again,
behind the image: what it had written in the homes before. So the client's own sequence 57, in the third home, is

    home 1  sequences 0..40     image 0     the client's 0..40
    home 2  sequences 0..9      image 41    the client's 41..50
    home 3  sequences 0..6 …    image 51    the client's 51..57

- The topic alone shows whether the sequences of an identity follow on each other from 0 in each home. One that lies
  before what is expected is a doubled-sequence (a retry was written again), one behind it a sequence-gap.
- With the decisions, an acknowledged sequence lies in what its home has. Behind its end it is a lost-write; before its
  beginning it stands in an earlier home as well, and is a doubled-sequence.

All is counted modulo 2^31. Strays, markers and what went round Kordon are nobody's. Before a takeover sequences are the
client's own and may begin anywhere. Where a log was not read from a home's start, as retention was faster, or the topic
is compacted, what is missing is unknown. Producers without idempotence have no sequences, and transactions are refused
on managed topics: acknowledgements of the former are counted as unknown.

The state has one row per identity and home, however much it has written there, gone `late_ms` after a later epoch of
the same producer has begun. So it grows with the producers that there have been, not with what they write. It has what
was acknowledged in homes that have not been read so far, for at most `late_ms`, and one row per partition on how far it
was read. What a log lost that got shorter after it was read here is no finding of this rule: Kordon itself writes down
what was lost (BEYOND-LOSS).

What comes late: an acknowledgement whose homes have not been read within `late_ms` is unknown, and counted as late. So
is one that comes `late_ms` after it was decided, when its producer has gone on to another epoch: its homes may be
forgotten.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import FAIL, LATE, PASS, UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.rules.belonging import BEFORE, OPENED, OWN
from kordon.spark_jobs.judging.rules.read_so_far import READ, read_so_far
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.tables import (
    FOR_EVER,
    checked,
    decision,
    findings,
    follows,
    named,
    shaped,
    stacked,
    together,
)

_SEQUENCES: Final = 1 << 31
"""Behind 2^31 - 1 sequences begin at 0 again (DefaultRecordBatch.incrementSequence)."""
_PRODUCER: Final = ("topic", "stream", "client_producer_id")
_IDENTITY: Final = (*_PRODUCER, "producer_epoch")
_PLACE: Final = ("partition", "move", "tagged")
"""Of a home; not `tagged` before the topic was taken over: then and since it may have the same move."""
_HOME: Final = (*_IDENTITY, *_PLACE)
_RANGE: Final = columns(
    topic=pl.String,
    stream=pl.Int32,
    client_producer_id=pl.Int64,
    producer_epoch=pl.Int32,
    partition=pl.Int32,
    move=pl.Int32,
    first_offset=pl.Int64,
    last_offset=pl.Int64,
    last_sequence=pl.Int64,
    seen_ms=pl.Int64,
)
_HOMES: Final = columns(_RANGE, tagged=pl.Boolean, records=pl.Int64)
"""What an identity has written in a home, up to which sequence."""
_WRITTEN: Final = columns(_HOMES, first_sequence=pl.Int64)
_ADMITS: Final = columns(
    _RANGE,
    first_sequence=pl.Int64,
    worker=pl.String,
    number=pl.Int64,
    connection=pl.Int64,
    group_id=pl.String,
    layout_epoch=pl.Int32,
    at_ms=pl.Int64,
)


def _check(facts: Facts, state: State) -> RuleOutcome:
    read = read_so_far(state["read"], facts)
    places = _places(facts, read)
    written = _in_order(pl.concat([state["home"], _written(facts)], how="diagonal"))
    homes = _homes(written)
    broken = _broken_runs(written, places)
    admits = _against_homes(stacked(_ADMITS, state["admit"], _admits(facts)), places, homes)
    judged = admits.with_columns(_verdict(facts).alias("verdict"))
    return RuleOutcome(
        findings=pl.concat([_findings_of_runs(broken, facts), _not_there_once(judged, facts)]),
        state={
            "read": read,
            "home": shaped(_needed(homes, facts), _HOMES),
            "admit": shaped(judged.filter(pl.col("verdict") == "wait"), _ADMITS),
        },
        checked=checked(pl.concat([judged, broken, _without_sequences(facts)], how="diagonal_relaxed")),
    )


def _distance(later: pl.Expr, earlier: pl.Expr) -> pl.Expr:
    """Returns how far one sequence lies behind another, modulo 2^31: negative if it lies before."""
    gap = (later - earlier) % _SEQUENCES
    return pl.when(gap < _SEQUENCES // 2).then(gap).otherwise(gap - _SEQUENCES)


def _written(facts: Facts) -> pl.DataFrame:
    """Returns the new batches of producers, with their homes."""
    is_before = pl.col("kind") == BEFORE
    own = facts.placed.filter(pl.col("kind").is_in([OWN, OPENED, BEFORE]) & (pl.col("base_sequence") >= 0))
    producer = pl.when(is_before).then("producer_id").otherwise("client_producer_id").alias("client_producer_id")
    told = own.with_columns(
        producer,
        tagged=~is_before,
        move="home_move",
        first_offset="base_offset",
        first_sequence="base_sequence",
    )
    return told.select(_WRITTEN.names())


def _in_order(written: pl.DataFrame) -> pl.DataFrame:
    """Sorts what homes had and have got by homes and offsets, each with what stands before it: `sequence_before`."""
    rows = together(written.sort("first_offset", "last_offset"), _HOME)
    before = (
        pl.when(follows(_HOME)).then(pl.col(name).shift(1)).alias(f"{name}_before")
        for name in ("last_sequence", "last_offset")
    )
    return rows.with_columns(*before)


def _homes(written: pl.DataFrame) -> pl.DataFrame:
    newest = pl.col("last_offset").arg_max()
    return written.group_by(_HOME, maintain_order=True).agg(
        pl.col("last_sequence").get(newest),
        pl.min("first_offset"),
        pl.max("last_offset"),
        pl.sum("records"),
        pl.max("seen_ms"),
    )


def _needed(homes: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Leaves out identities whose producer has gone on to another epoch a while ago."""
    is_newest = pl.col("producer_epoch") == pl.max("producer_epoch").over(_PRODUCER)
    return homes.filter(is_newest | ~facts.is_late())


def _places(facts: Facts, read: pl.DataFrame) -> pl.DataFrame:
    """Returns the homes of all streams, with what has been read of them."""
    stays = facts.stays.with_columns(pl.col("kept_end").fill_null(FOR_EVER))
    homes = stays.group_by("topic", "stream", *_PLACE).agg(pl.min("start"), pl.max("kept_end", "compacted"))
    is_empty = pl.col("start") == pl.col("kept_end")  # there is nothing to be read
    return homes.join(read, on=["topic", "partition"], how="left").with_columns(
        is_whole=is_empty | (pl.col("start") >= pl.col("hole_to")).fill_null(value=False),
        is_read=is_empty | (pl.col("read_to") >= pl.col("kept_end") - 1).fill_null(value=False),
    )


def _broken_runs(written: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """Returns what does not follow on the sequences before it in its home: fail, or unknown where these were taken."""
    before = pl.col("last_sequence_before")
    expected = ((before + 1) % _SEQUENCES).fill_null(0)
    stepped = written.filter("tagged", pl.col("first_sequence") != expected).with_columns(expected=expected)
    told = stepped.join(places, on=["topic", "stream", *_PLACE])
    unread = pl.coalesce(pl.col("last_offset_before") < pl.col("hole_to"), ~pl.col("is_whole"))
    is_doubled = _distance(pl.col("first_sequence"), pl.col("expected")) < 0
    is_proven = is_doubled & before.is_not_null()
    is_failed = is_proven | ~(unread | pl.col("compacted"))
    verdict = pl.when(is_failed).then(pl.lit(FAIL)).otherwise(pl.lit(UNKNOWN))
    return told.with_columns(is_doubled=is_doubled, verdict=verdict)


_WHOSE: Final = "Producer {client_producer_id}, epoch {producer_epoch},"
_RUN_DOUBLED: Final = (
    f"{_WHOSE} has sequence {{first_sequence}} of stream {{stream}} at {{topic}}-{{partition}} offset {{first_offset}},"
    " where {expected} follows: what it had written was written again, and readers get it twice. Look for the decisions"
    " that admitted it, and report it."
)
_RUN_MISSING: Final = (
    f"{_WHOSE} goes on at sequence {{first_sequence}} of stream {{stream}} at {{topic}}-{{partition}} offset"
    " {first_offset}, where {expected} follows: what lies between is not in the topic. Its client sent it, or will, out"
    " of order: look for refusals and lost answers of this producer."
)


def _findings_of_runs(broken: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    either = pl.when("is_doubled")
    shown = broken.filter(pl.col("verdict") == FAIL).with_columns(
        kind=either.then(pl.lit("doubled-sequence")).otherwise(pl.lit("sequence-gap")),
        text=either.then(pl.lit(_RUN_DOUBLED)).otherwise(pl.lit(_RUN_MISSING)),
        v=pl.lit(1),
    )
    identity = (*_IDENTITY, "partition", "move", "v", "first_offset")
    return findings(shown.drop("seen_ms"), RULE.number, RULE.name, identity, facts)


def _admits(facts: Facts) -> pl.DataFrame:
    """Returns what was acknowledged with sequences."""
    told = facts.decisions.filter(
        pl.col("kind") == Kind.ADMIT.value,
        pl.col("producer_id") >= 0,
        pl.col("first_sequence").is_not_null(),
        pl.col("move").is_not_null(),
        pl.col("first_offset") >= 0,
    )
    return told.with_columns(client_producer_id="producer_id", seen_ms=pl.lit(facts.newest_ms))


def _against_homes(admits: pl.DataFrame, places: pl.DataFrame, homes: pl.DataFrame) -> pl.DataFrame:
    """Adds to acknowledgements what their identity has in their home, `here`, and in those before."""
    its = [*_IDENTITY, "partition", "move"]
    newest = homes.group_by(_PRODUCER).agg(pl.max("producer_epoch").alias("newest_epoch"))
    asked = admits.select(its).unique(maintain_order=True)  # identities are few
    known = _over_homes(asked, places, homes)
    return admits.join(known, on=its, how="left").join(newest, on=_PRODUCER, how="left")


def _over_homes(asked: pl.DataFrame, places: pl.DataFrame, homes: pl.DataFrame) -> pl.DataFrame:
    of_home = {name: f"{name}_of_home" for name in _PLACE}
    rows = (
        asked.join(places.rename(of_home), on=["topic", "stream"])
        .filter(pl.col("move_of_home") <= pl.col("move"))
        .join(homes.rename(of_home | {"last_sequence": "has_to"}), on=[*_IDENTITY, *of_home.values()], how="left")
        .sort("move_of_home", "tagged_of_home", "partition_of_home")
    )
    is_of_move = pl.col("move_of_home") == pl.col("move")
    is_here = is_of_move & (pl.col("partition_of_home") == pl.col("partition")) & pl.col("tagged_of_home")
    told = rows.with_columns(is_here=is_here, earlier=_earlier())
    return told.group_by(*_IDENTITY, "partition", "move").agg(*_told_here(), *_told_of_earlier())


def _earlier() -> pl.Expr:
    """What the identity has in a home, in words; null: nothing."""
    return pl.format("{}-{} offsets {} to {}", "topic", "partition_of_home", "first_offset", "last_offset")


def _told_here() -> list[pl.Expr]:
    names = ("read_to", "hole_to", "is_whole", "compacted", "has_to", "records")
    return [pl.col("is_here").any().alias("is_known"), pl.col(names).filter("is_here").first()]


def _told_of_earlier() -> list[pl.Expr]:
    is_there = ~pl.col("is_here")
    return [
        (pl.col("is_here") | pl.col("is_read")).all().alias("before_is_read"),
        (is_there & ~pl.col("is_whole") & pl.col("has_to").is_null()).any().alias("is_unsure"),
        (pl.col("has_to") + 1).filter(is_there).sum().alias("image"),
        pl.col("earlier").filter(is_there).drop_nulls().last(),
    ]


def _verdict(facts: Facts) -> pl.Expr:
    is_read = pl.col("before_is_read") & (pl.col("read_to") >= pl.col("last_offset"))
    is_ready = (pl.col("is_known") & is_read).fill_null(value=False)
    first, last = pl.col("first_sequence") - pl.col("image"), pl.col("last_sequence") - pl.col("image")
    has_to = pl.col("has_to").fill_null(-1)
    is_before = (_distance(has_to, first) + 1 > pl.col("records").fill_null(0)) & pl.col("is_whole")
    is_missing = _distance(last, has_to) > 0
    is_old = pl.col("at_ms") <= facts.newest_ms - facts.late_ms
    may_be_forgotten = is_old & (pl.col("newest_epoch") > pl.col("producer_epoch"))
    return (
        pl.when(~is_ready & facts.is_late())
        .then(pl.lit(LATE))
        .when(~is_ready)
        .then(pl.lit("wait"))
        .when(pl.col("is_unsure") | (pl.col("first_offset") < pl.col("hole_to")))
        .then(pl.lit(UNKNOWN))
        .when(is_missing & pl.col("compacted"))
        .then(pl.lit(UNKNOWN))
        .when(is_missing & may_be_forgotten)
        .then(pl.lit(LATE))
        .when(is_missing)
        .then(pl.lit("lost-write"))
        .when(is_before & pl.col("compacted"))  # records that compaction took are not counted
        .then(pl.lit(UNKNOWN))
        .when(is_before)
        .then(pl.lit("doubled-sequence"))
        .otherwise(pl.lit(PASS))
    )


_WHAT: Final = (
    "Of producer {client_producer_id}, epoch {producer_epoch}, {sequence:first_sequence:last_sequence} in stream"
    " {stream} were acknowledged at {topic}-{partition} {offset:first_offset:last_offset}"
)
_LOST: Final = (
    f"{_WHAT}, and not all of them are there: an acknowledged write is lost. See whether the brokers had an unclean"
    " election, and what the worker's lease and the fences were then."
)
_DOUBLED: Final = (
    f"{_WHAT}, although the stream's earlier home has them, at {{earlier}}: readers get them twice. The image of that"
    " move was not kept; see the decisions, and report it."
)


def _not_there_once(judged: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    is_lost = pl.col("verdict") == "lost-write"
    shown = judged.filter(pl.col("verdict").is_in(["lost-write", "doubled-sequence"])).with_columns(
        kind="verdict",
        text=pl.when(is_lost).then(pl.lit(_LOST)).otherwise(pl.lit(_DOUBLED)),
        decisions=named(decision()),
        verdict=pl.lit(FAIL),
    )
    return findings(shown, RULE.number, RULE.name, (*_IDENTITY, "move", "first_offset"), facts)


def _without_sequences(facts: Facts) -> pl.DataFrame:
    is_without = pl.col("producer_id").is_null() | (pl.col("producer_id") < 0)
    told = facts.decisions.filter((pl.col("kind") == Kind.ADMIT.value) & pl.col("topic").is_not_null() & is_without)
    return told.with_columns(verdict=pl.lit(UNKNOWN))


RULE: Final = Rule(
    number=6,
    name="SEQ-IMAGE",
    proves="Each acknowledged sequence of an idempotent producer stands in the topic exactly once, over all homes.",
    is_of_one_life=True,
    state={"read": READ, "home": _HOMES, "admit": _ADMITS},
    check=_check,
)
