"""SEQ-IMAGE (6): what was acknowledged stands in the topic exactly once, whatever homes its stream has had.

An identity is a writer and its epoch in one stream. A writer is a client's producer id and whether it writes in a
transaction, and by which protocol: brokers count each of these apart. In each home of the stream it begins at sequence
0 again, behind the image: what it had written in the homes before. So the client's own sequence 57, in the third home,
is

    home 1  sequences 0..40     image 0     the client's 0..40
    home 2  sequences 0..9      image 41    the client's 41..50
    home 3  sequences 0..6 …    image 51    the client's 51..57

- The topic alone shows whether the sequences of an identity follow on each other from 0 in each home. One that lies
  before what is expected is a doubled-sequence (a retry was written again), one behind it a sequence-gap. Expected is
  what follows on the furthest so far.
- With the decisions, an acknowledged sequence lies in what its home has. Behind its end it is a lost-write; before its
  beginning it stands in an earlier home as well, and is a doubled-sequence.

All is counted modulo 2^31. Strays, markers and what went round Kordon are nobody's. Before a takeover sequences are the
client's own and may begin anywhere. Where a log was not read from a home's start, as retention was faster, or the topic
is compacted, what is missing is unknown. Producers without idempotence have no sequences: their acknowledgements are
counted as unknown. What was aborted counts like all else, as it is in the topic, too.

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

from collections.abc import Sequence
from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import FAIL, LATE, PASS, UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.rules.belonging import BEFORE, OPENED, OWN
from kordon.spark_jobs.judging.rules.read_so_far import READ, read_so_far
from kordon.spark_jobs.judging.schema import DECISIONS, columns
from kordon.spark_jobs.judging.tables import (
    FOR_EVER,
    NO_FINDINGS,
    checked,
    decision,
    evidence,
    findings,
    follows,
    named,
    shaped,
    stacked,
    together,
)

_SEQUENCES: Final = 1 << 31
"""Behind 2^31 - 1 sequences begin at 0 again (DefaultRecordBatch.incrementSequence)."""
_CLIENT_ID: Final = (1 << 38) - 1
_WRITER: Final = (1 << 40) - 1
"""Of a tagged producer id, the bits of the client's own id, and of the writer."""
_TRANSACTIONS: Final = {"v1": 2 << 38, "v2": 3 << 38}
"""By what a decision says of the transaction, the bits that tell the writer apart."""
_PRODUCER: Final = ("topic", "stream", "writer")
_IDENTITY: Final = (*_PRODUCER, "producer_epoch")
_ASKED: Final = (*_IDENTITY, "partition", "move")
_PLACE: Final = ("partition", "move", "tagged")
"""Of a home; not `tagged` before the topic was taken over: then and since it may have the same move."""
_HOME: Final = (*_IDENTITY, *_PLACE)
_RANGE: Final = columns(
    topic=pl.String,
    stream=pl.Int32,
    writer=pl.Int64,
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
    new, asked = _written(facts), stacked(_ADMITS, state["admit"], _admits(facts))
    known, others = _divided(state["home"], new, asked)
    written = _homes(known, new)
    disturbed = _disturbed(known, new, written)
    homes, broken = _reached(written, disturbed), _broken_runs(disturbed, places)
    judged = _against_homes(asked, places, homes).with_columns(_verdict(facts).alias("verdict"))
    return RuleOutcome(
        findings=pl.concat([_findings_of_runs(broken, facts), _not_there_once(judged, places, homes, facts)]),
        state={
            "read": read,
            "home": _needed(pl.concat([others, shaped(homes, _HOMES)]), facts),
            "admit": shaped(judged.filter(pl.col("verdict") == "wait"), _ADMITS),
        },
        checked=checked(pl.concat([judged, broken, _without_sequences(facts)], how="diagonal_relaxed")),
    )


def _divided(homes: pl.DataFrame, *new: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divides homes into those of producers of which there is something new, and all others: these are most."""
    if sum(each.height for each in new) > homes.height:
        return homes, homes.clear()  # not worth it
    producers = pl.concat([each.select(_PRODUCER) for each in new]).unique()
    named = homes.join(producers.with_columns(is_named=True), on=_PRODUCER, how="left", maintain_order="left")
    is_named = pl.col("is_named").is_not_null()
    return named.filter(is_named).select(homes.columns), named.filter(~is_named).select(homes.columns)


def _distance(later: pl.Expr, earlier: pl.Expr) -> pl.Expr:
    """Returns how far one sequence lies after another, modulo 2^31: negative if it lies before."""
    gap = (later - earlier) % _SEQUENCES
    return pl.when(gap < _SEQUENCES // 2).then(gap).otherwise(gap - _SEQUENCES)


def _written(facts: Facts) -> pl.DataFrame:
    """Returns the new batches of producers, with their homes."""
    is_before = pl.col("kind") == BEFORE
    own = facts.placed.filter(pl.col("kind").is_in([OWN, OPENED, BEFORE]) & (pl.col("base_sequence") >= 0))
    told = own.with_columns(
        writer=pl.when(is_before).then("producer_id").otherwise(pl.col("producer_id") & _WRITER),
        tagged=~is_before,
        move="home_move",
        first_offset="base_offset",
        first_sequence="base_sequence",
    )
    return told.select(_WRITTEN.names())


def _homes(known: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Adds what is new to homes; with the sequences of all that each had and has got, in the order of offsets."""
    rows = pl.concat([known, new], how="diagonal").group_by(_HOME, maintain_order=True)
    return rows.agg(
        pl.last("last_sequence"),
        pl.first("first_offset"),
        pl.max("last_offset"),
        pl.sum("records"),
        pl.max("seen_ms"),
        pl.col("first_sequence").alias("begins"),
        pl.col("last_sequence").alias("ends"),
    )


def _disturbed(known: pl.DataFrame, new: pl.DataFrame, homes: pl.DataFrame) -> pl.DataFrame:
    """Returns all that homes had and have got in which something does not follow on what is before it: hardly ever any.

    Adds which sequence is `expected`, the furthest that was `reached` so far, and `last_offset_before`; null: nothing
    stands before it. What was written again reaches no further.
    """
    steps = homes.select(pl.int_range(pl.len()).alias("home"), "begins", "ends").explode("begins", "ends")
    broken = steps.filter(pl.col("begins") != _expected(("home",), "ends")).get_column("home").unique()
    rows = pl.concat([known, new], how="diagonal").join(homes[broken], on=_HOME, how="semi", maintain_order="left")
    last = pl.col("last_sequence")
    steps_on = pl.when(follows(_HOME)).then(_distance(last, last.shift(1))).otherwise(0)
    stands = together(rows, _HOME).with_columns(stands=steps_on.cum_sum().over(_HOME))
    reached = (last + pl.col("stands").cum_max().over(_HOME) - pl.col("stands")) % _SEQUENCES
    before = pl.when(follows(_HOME)).then(pl.col("last_offset").shift(1))
    told = stands.with_columns(reached=reached, last_offset_before=before)
    return told.with_columns(expected=_expected(_HOME, "reached"))


def _reached(homes: pl.DataFrame, disturbed: pl.DataFrame) -> pl.DataFrame:
    """Returns homes up to the furthest sequence that each has reached."""
    if disturbed.is_empty():
        return homes
    furthest = disturbed.group_by(_HOME, maintain_order=True).agg(pl.last("reached"))
    told = homes.join(furthest, on=_HOME, how="left", maintain_order="left")
    return told.with_columns(last_sequence=pl.coalesce("reached", "last_sequence"))


def _expected(keys: Sequence[str], last: str) -> pl.Expr:
    """The sequence that follows on those before it: 0 at the beginning of a home."""
    return pl.when(follows(keys)).then((pl.col(last).shift(1) + 1) % _SEQUENCES).otherwise(0)


def _needed(homes: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Leaves out identities whose producer has gone on to another epoch a while ago."""
    if homes.get_column("producer_epoch").n_unique() <= 1:
        return homes  # most producers never raise theirs
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


def _broken_runs(disturbed: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """Returns what does not follow on the sequences before it in its home: fail, or unknown where these were taken."""
    stepped = disturbed.filter("tagged", pl.col("first_sequence") != pl.col("expected"))
    told = stepped.join(places, on=["topic", "stream", *_PLACE])
    unread = pl.coalesce(pl.col("last_offset_before") < pl.col("hole_to"), ~pl.col("is_whole"))
    is_doubled = _distance(pl.col("first_sequence"), pl.col("expected")) < 0
    is_proven = is_doubled & pl.col("last_offset_before").is_not_null()
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
    if broken.is_empty():
        return NO_FINDINGS
    either = pl.when("is_doubled")
    shown = broken.filter(pl.col("verdict") == FAIL).with_columns(
        kind=either.then(pl.lit("doubled-sequence")).otherwise(pl.lit("sequence-gap")),
        text=either.then(pl.lit(_RUN_DOUBLED)).otherwise(pl.lit(_RUN_MISSING)),
        v=pl.lit(1),
        client_producer_id=pl.col("writer") & _CLIENT_ID,
    )
    identity = (*_IDENTITY, "partition", "move", "v", "first_offset")
    return findings(shown.drop("seen_ms"), RULE.number, RULE.name, identity, facts)


def _admits(facts: Facts) -> pl.DataFrame:
    """Returns what was acknowledged with sequences."""
    names = ("kind", "producer_id", "evidence", *(name for name in _ADMITS if name in DECISIONS))
    told = facts.decisions.select(names).filter(
        pl.col("kind") == Kind.ADMIT.value,
        pl.col("producer_id") >= 0,
        pl.col("first_sequence").is_not_null(),
        pl.col("move").is_not_null(),
        pl.col("first_offset") >= 0,
    )
    bits = evidence("$.transaction").replace_strict(_TRANSACTIONS, default=0, return_dtype=pl.Int64)
    return told.with_columns(writer=pl.col("producer_id") | bits, seen_ms=pl.lit(facts.newest_ms))


def _against_homes(admits: pl.DataFrame, places: pl.DataFrame, homes: pl.DataFrame) -> pl.DataFrame:
    """Adds to acknowledgements what their identity has in their home, `here`, and in those before."""
    newest = homes.group_by(_PRODUCER).agg(pl.max("producer_epoch").alias("newest_epoch"))
    known = _up_to_homes(admits, places, homes).group_by(_ASKED).agg(*_told_here(), *_told_of_earlier())
    return admits.join(known, on=_ASKED, how="left").join(newest, on=_PRODUCER, how="left")


def _up_to_homes(admits: pl.DataFrame, places: pl.DataFrame, homes: pl.DataFrame) -> pl.DataFrame:
    """Returns, for each identity and home that acknowledgements name, this home and those before, in their order."""
    of_home = {name: f"{name}_of_home" for name in _PLACE}
    asked = admits.select(_ASKED).unique(maintain_order=True)  # identities are few
    rows = (
        asked.join(places.rename(of_home), on=["topic", "stream"])
        .filter(pl.col("move_of_home") <= pl.col("move"))
        .join(homes.rename(of_home | {"last_sequence": "has_to"}), on=[*_IDENTITY, *of_home.values()], how="left")
        .sort("move_of_home", "tagged_of_home", "partition_of_home")
    )
    is_of_move = pl.col("move_of_home") == pl.col("move")
    is_here = is_of_move & (pl.col("partition_of_home") == pl.col("partition")) & pl.col("tagged_of_home")
    return rows.with_columns(is_here=is_here)


def _told_here() -> list[pl.Expr]:
    names = ("read_to", "hole_to", "is_whole", "compacted", "has_to", "records")
    return [pl.col("is_here").any().alias("is_known"), pl.col(names).filter("is_here").first()]


def _told_of_earlier() -> list[pl.Expr]:
    is_there = ~pl.col("is_here")
    return [
        (pl.col("is_here") | pl.col("is_read")).all().alias("before_is_read"),
        (is_there & ~pl.col("is_whole") & pl.col("has_to").is_null()).any().alias("is_unsure"),
        (pl.col("has_to") + 1).filter(is_there).sum().alias("image"),
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


def _not_there_once(judged: pl.DataFrame, places: pl.DataFrame, homes: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    wrong = judged.filter(pl.col("verdict").is_in(["lost-write", "doubled-sequence"]))
    if wrong.is_empty():
        return NO_FINDINGS
    is_lost = pl.col("verdict") == "lost-write"
    shown = wrong.join(_earlier(wrong, places, homes), on=_ASKED, how="left").with_columns(
        kind="verdict",
        text=pl.when(is_lost).then(pl.lit(_LOST)).otherwise(pl.lit(_DOUBLED)),
        decisions=named(decision()),
        verdict=pl.lit(FAIL),
        client_producer_id=pl.col("writer") & _CLIENT_ID,
    )
    return findings(shown, RULE.number, RULE.name, (*_IDENTITY, "move", "first_offset"), facts)


def _earlier(wrong: pl.DataFrame, places: pl.DataFrame, homes: pl.DataFrame) -> pl.DataFrame:
    """Returns what identities have in the last home before, in words."""
    words = pl.format("{}-{} offsets {} to {}", "topic", "partition_of_home", "first_offset", "last_offset")
    before = _up_to_homes(wrong, places, homes).filter(~pl.col("is_here") & pl.col("has_to").is_not_null())
    return before.group_by(_ASKED, maintain_order=True).agg(words.last().alias("earlier"))


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
