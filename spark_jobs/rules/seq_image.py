"""SEQ-IMAGE: what was acknowledged stands in the topic exactly once, whatever homes its stream has had.

An identity is a client's producer id and epoch in one stream. In each home of the stream it begins at sequence 0 again,
behind the image: what it had written in the homes before. So the client's own sequence 57, in the third home, is

    home 1  sequences 0..40     image 0     the client's 0..40
    home 2  sequences 0..9      image 41    the client's 41..50
    home 3  sequences 0..6 …    image 51    the client's 51..57

- from the topic alone: in each home the sequences of an identity follow on each other from 0. One that lies before what
  is expected is a doubled-sequence (a retry was written again), one behind it a sequence-gap;
- with the decisions: an acknowledged sequence lies in what its home has. Behind its end it is a lost-write, before its
  beginning it stands in an earlier home as well: a doubled-sequence.

All is counted modulo 2^31. Strays, markers and what went round Kordon are nobody's. Before a takeover sequences are the
client's own and may begin anywhere. Where a log was not read from a home's start, as retention was faster, or the topic
is compacted, what is missing is unknown. Producers without idempotence have no sequences, and transactions are refused
on managed topics: acknowledgements of the former are counted as unknown.

State: one row per identity and home, however much it has written there, gone `late_ms` after a later epoch of the
same producer has begun; acknowledged runs whose homes have not been read so far, for at most `late_ms`, then they count
as unknown; one row per partition on how far it was read. So it grows with the producers that there have been, not with
what they write. What a log lost that got shorter after it was read here is no finding of this rule; Kordon itself
writes down what was lost (BEYOND-LOSS).

What comes late: an acknowledgement whose homes have not been read within `late_ms` is unknown, and counted as late. So
is one that comes `late_ms` after it was decided, when its producer has gone on to another epoch: its homes may be
forgotten.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.spark_jobs.frames import stacked, worked_out
from kordon.spark_jobs.rules.belonging import BEFORE, OPENED, OWN, is_late
from kordon.spark_jobs.rules.ranges import (
    FOR_EVER,
    ROW,
    SEQUENCES,
    by_offset,
    distance,
    read_so_far,
    rows,
    sentence,
    table,
)
from kordon.spark_jobs.rules.rule import FAIL, LATE, PASS, UNKNOWN, Facts, Rule, RuleOutcome
from kordon.spark_jobs.rules.tables import checked, decision, findings

_RULE: Final = 6, "SEQ-IMAGE"
_PRODUCER: Final = ("topic", "stream", "client_producer_id")
_IDENTITY: Final = (*_PRODUCER, "producer_epoch")
_PLACE: Final = ("partition", "move", "v")
"""Of a home; `v` is 0 before the topic was taken over and 1 since: both may have the same move."""
_HOME: Final = (*_IDENTITY, *_PLACE)


def check(facts: Facts, state: DataFrame) -> RuleOutcome:
    """Judges the sequences of new batches, and whether what was acknowledged is there."""
    read = read_so_far(table(state, "read"), facts)
    places = worked_out(_places(facts, read))
    written = stacked(_written(facts.placed).withColumn("is_new", F.lit(True)), _known(table(state, "home")))
    homes = worked_out(_homes(written))
    newest = homes.groupBy(*_PRODUCER).agg(F.max("producer_epoch").alias("newest_epoch"))
    admits = worked_out(_verdicts(stacked(table(state, "admit"), _admits(facts)), places, homes, newest, facts))
    broken = worked_out(_broken_runs(written, places))
    found = stacked(_findings_of_runs(broken, facts), _not_there_once(admits, facts))
    kept = stacked(
        read,
        rows(_needed(homes, newest, facts), "home"),
        rows(admits.where("verdict = 'wait'"), "admit"),
    )
    return RuleOutcome(findings=found, state=kept, checked=_checked(admits, broken, facts))


def _written(judged: DataFrame) -> DataFrame:
    """Returns what producers have written, by home."""
    is_before = F.col("kind") == BEFORE
    producers = judged.where(F.col("kind").isin(OWN, OPENED, BEFORE) & (F.col("base_sequence") >= 0))
    return rows(
        producers,
        "home",
        v=F.when(is_before, 0).otherwise(1),
        move=F.col("home_move"),
        client_producer_id=F.when(is_before, F.col("producer_id")).otherwise(F.col("client_producer_id")),
    )


def _known(homes: DataFrame) -> DataFrame:
    return homes.withColumn("is_new", F.lit(False))


def _homes(written: DataFrame) -> DataFrame:
    summed = written.groupBy(*_HOME).agg(
        F.min_by("base_sequence", "base_offset").alias("base_sequence"),
        F.max_by("last_sequence", "last_offset").alias("last_sequence"),
        F.min("base_offset").alias("base_offset"),
        F.max("last_offset").alias("last_offset"),
        F.sum("records").alias("records"),
        F.max("seen_ms").alias("seen_ms"),
    )
    return rows(summed, "home")


def _needed(homes: DataFrame, newest: DataFrame, facts: Facts) -> DataFrame:
    """Leaves out identities whose producer has gone on to another epoch a while ago."""
    joined = homes.join(newest, list(_PRODUCER))
    return joined.where((F.col("producer_epoch") == F.col("newest_epoch")) | ~is_late(facts))


def _places(facts: Facts, read: DataFrame) -> DataFrame:
    """Returns the homes of all streams, with what has been read of them."""
    homes = (
        facts.stays.withColumn("v", F.when(F.col("tagged"), 1).otherwise(0))
        .groupBy("topic", "stream", *_PLACE)
        .agg(
            F.min("start").alias("start"),
            F.max(F.coalesce("kept_end", F.lit(FOR_EVER))).alias("kept_end"),
            F.max("compacted").alias("compacted"),
        )
    )
    far = read.select(
        "topic", "partition", F.col("base_offset").alias("hole_to"), F.col("last_offset").alias("read_to")
    )
    joined = homes.join(far, ["topic", "partition"], "left")
    is_empty = F.col("start") == F.col("kept_end")  # there is nothing to be read
    return joined.withColumns(
        {
            "is_whole": is_empty | F.coalesce(F.col("start") >= F.col("hole_to"), F.lit(False)),
            "is_read": is_empty | F.coalesce(F.col("read_to") >= F.col("kept_end") - 1, F.lit(False)),
        }
    )


def _broken_runs(written: DataFrame, places: DataFrame) -> DataFrame:
    """Returns what does not follow on the sequences before it in its home: fail, or unknown where these were taken."""
    order = by_offset(*_HOME)
    before = F.lag("last_sequence").over(order)
    followed = written.withColumn("before", before).withColumn("stood_to", F.lag("last_offset").over(order))
    expected = F.when(F.col("before").isNotNull(), F.pmod(F.col("before") + 1, F.lit(SEQUENCES))).otherwise(0)
    stepped = (
        followed.where(F.col("is_new"))
        .withColumn("expected", expected)
        .withColumn("step", distance(F.col("base_sequence"), F.col("expected")))
        .where((F.col("step") != 0) & (F.col("v") == 1))
        .join(places, ["topic", "stream", *_PLACE])
    )
    unread = F.coalesce(F.col("stood_to") < F.col("hole_to"), ~F.col("is_whole"))
    may_be_taken = unread | F.col("compacted")
    is_proven = (F.col("step") < 0) & F.col("before").isNotNull()
    return stepped.withColumn("verdict", F.when(is_proven | ~may_be_taken, FAIL).otherwise(UNKNOWN))


def _findings_of_runs(broken: DataFrame, facts: Facts) -> DataFrame:
    is_doubled = F.col("step") < 0
    doubled = sentence(
        "Producer {client_producer_id}, epoch {producer_epoch}, has sequence {base_sequence} of stream {stream} at"
        " {topic}-{partition} offset {base_offset}, where {expected} follows: what it had written was written again,"
        " and readers get it twice. Look for the decisions that admitted it, and report it."
    )
    missing = sentence(
        "Producer {client_producer_id}, epoch {producer_epoch}, goes on at sequence {base_sequence} of stream {stream}"
        " at {topic}-{partition} offset {base_offset}, where {expected} follows: what lies between is not in the topic."
        " Its client sent it, or will, out of order: look for refusals and lost answers of this producer."
    )
    shown = broken.where(F.col("verdict") == FAIL).withColumns(
        {
            "kind": F.when(is_doubled, "doubled-sequence").otherwise("sequence-gap"),
            "text": F.when(is_doubled, doubled).otherwise(missing),
            "first_offset": F.col("base_offset"),
        }
    )
    return findings(shown, *_RULE, (*_HOME, "base_offset"), facts)


def _admits(facts: Facts) -> DataFrame:
    new = facts.decisions.where("kind = 'admit' and producer_id >= 0 and first_sequence is not null")
    return rows(
        new.where("move is not null and first_offset >= 0"),
        "admit",
        client_producer_id=F.col("producer_id"),
        base_offset=F.col("first_offset"),
        base_sequence=F.col("first_sequence"),
        decision=decision(),
        seen_ms=F.lit(facts.newest_ms),
    )


def _verdicts(admits: DataFrame, places: DataFrame, homes: DataFrame, newest: DataFrame, facts: Facts) -> DataFrame:
    """Holds acknowledged runs against what their homes have, and those before."""
    a, p, h = admits.dropDuplicates(["decision"]).drop("v").alias("a"), places.alias("p"), homes.alias("h")
    stream = (F.col("a.topic") == F.col("p.topic")) & (F.col("a.stream") == F.col("p.stream"))
    up_to = stream & (F.col("p.move") <= F.col("a.move"))
    same = [F.col(f"h.{name}") == F.col(f"a.{name}") for name in _IDENTITY]
    same += [F.col(f"h.{name}") == F.col(f"p.{name}") for name in _PLACE]
    here = (F.col("p.move") == F.col("a.move")) & (F.col("p.v") == 1) & (F.col("p.partition") == F.col("a.partition"))
    joined = a.join(p, up_to, "left").join(h, same, "left").withColumn("here", F.coalesce(here, F.lit(False)))
    there = ~F.col("here")
    unsure = there & ~F.coalesce("p.is_whole", F.lit(True))
    columns = [F.first(f"a.{name}").alias(name) for name in admits.columns if name not in {"decision", "v"}]
    summed = joined.groupBy("a.decision").agg(
        *columns,
        F.max("here").alias("is_known"),
        F.max(F.when(F.col("here"), F.col("p.read_to"))).alias("read_to"),
        F.max(F.when(F.col("here"), F.col("p.hole_to"))).alias("hole_to"),
        F.max(F.when(F.col("here"), F.col("p.is_whole"))).alias("is_whole"),
        F.max(F.when(F.col("here"), F.col("p.compacted"))).alias("compacted"),
        F.min(F.when(there, F.coalesce("p.is_read", F.lit(True))).otherwise(True)).alias("before_is_read"),
        F.sum(F.when(unsure & F.col("h.topic").isNull(), 1).otherwise(0)).alias("unsure"),
        F.sum(F.when(there, F.coalesce(F.col("h.last_sequence") + 1, F.lit(0))).otherwise(0)).alias("image"),
        F.max(F.when(F.col("here"), F.col("h.last_sequence"))).alias("has_to"),
        F.max(F.when(F.col("here"), F.col("h.records"))).alias("has"),
        F.max_by(_earlier(), F.when(there & F.col("h.topic").isNotNull(), F.col("p.move"))).alias("earlier"),
    )
    return summed.join(newest, list(_PRODUCER), "left").withColumn("verdict", _verdict(facts))


def _earlier() -> Column:
    """The earlier home that has what the same identity wrote; null: there is none."""
    written = F.concat_ws(" to ", "h.base_offset", "h.last_offset")
    return F.concat("p.topic", F.lit("-"), "p.partition", F.lit(" offsets "), written)


def _verdict(facts: Facts) -> Column:
    is_ready = (
        F.col("is_known") & F.col("before_is_read") & F.coalesce(F.col("read_to") >= F.col("last_offset"), F.lit(False))
    )
    first, last = F.col("base_sequence") - F.col("image"), F.col("last_sequence") - F.col("image")
    has_to = F.coalesce("has_to", F.lit(-1))
    is_before = (distance(has_to, first) + 1 > F.coalesce("has", F.lit(0))) & F.col("is_whole")
    is_missing = distance(last, has_to) > 0
    is_old = F.col("at_ms") <= F.lit(facts.newest_ms - facts.late_ms)
    may_be_forgotten = is_old & F.coalesce(F.col("newest_epoch") > F.col("producer_epoch"), F.lit(False))
    return (
        F.when(~is_ready, F.when(is_late(facts), LATE).otherwise("wait"))
        .when((F.col("unsure") > 0) | (F.col("base_offset") < F.col("hole_to")), UNKNOWN)
        .when(is_missing & F.col("compacted"), UNKNOWN)
        .when(is_missing & may_be_forgotten, LATE)
        .when(is_missing, "lost-write")
        .when(is_before & F.col("compacted"), UNKNOWN)  # records that compaction took are not counted
        .when(is_before, "doubled-sequence")
        .otherwise(PASS)
    )


def _not_there_once(admits: DataFrame, facts: Facts) -> DataFrame:
    is_lost = F.col("verdict") == "lost-write"
    what = (
        "Of producer {client_producer_id}, epoch {producer_epoch}, {sequence:base_sequence:last_sequence} in stream"
        " {stream} were acknowledged at {topic}-{partition} {offset:base_offset:last_offset}"
    )
    lost = sentence(
        what + ", and not all of them are there: an acknowledged write is lost. See whether the brokers had an unclean"
        " election, and what the worker's lease and the fences were then."
    )
    doubled = sentence(
        what + ", although the stream's earlier home has them, at {earlier}: readers get them twice. The image of that"
        " move was not kept; see the decisions, and report it."
    )
    shown = admits.where(F.col("verdict").isin("lost-write", "doubled-sequence")).withColumns(
        {
            "kind": F.col("verdict"),
            "text": F.when(is_lost, lost).otherwise(doubled),
            "first_offset": F.col("base_offset"),
            "decisions": F.array("decision"),
        }
    )
    return findings(shown.withColumn("verdict", F.lit(FAIL)), *_RULE, (*_IDENTITY, "move", "base_offset"), facts)


def _checked(admits: DataFrame, broken: DataFrame, facts: Facts) -> DataFrame:
    judged = admits.withColumn("first_offset", F.col("base_offset"))
    taken = broken.withColumn("first_offset", F.col("base_offset"))
    others = facts.decisions.where("kind = 'admit' and topic is not null and (producer_id is null or producer_id < 0)")
    columns = ("topic", "partition", "stream", "first_offset", "last_offset", "verdict")
    unjudged = others.withColumn("verdict", F.lit(UNKNOWN))
    return checked(stacked(*(each.select(*columns) for each in (judged, taken, unjudged))))


RULE: Final = Rule(
    number=_RULE[0],
    name=_RULE[1],
    proves="Each acknowledged sequence of an idempotent producer stands in the topic exactly once, over all homes.",
    is_of_one_life=True,
    state=ROW,
    check=check,
)
