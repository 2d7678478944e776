"""NO-SKIP (5): what a reader was given, from where it began, is all that there was.

A DELIVER decision says that a connection was given all that a stream has in offsets [first, last] of one stay.

- Ranges of one reader follow on each other: behind one comes the next offset, or the beginning of the next stay that is
  not empty. A REWIND begins again: the client asked for it. Where something was passed over, the topic tells whether it
  mattered: if the stream has records there, it is a skipped-range.
- The records that were handed over are as many as the stream has in that range: fewer, or more, is a wrong count.
  Batches of the stream are counted; strays, markers and control batches are not, as nobody gets them. Batches of
  dialect clients and those that went around Kordon are given to readers of virtual partitions record by record, by key:
  how many of theirs are a stream's cannot be told. So a count is unknown where it would be right with some of them. A
  batch that lies across the end of a range may count or not.
- Of transactions, a read_committed reader gets what is committed (`transaction_outcomes.py`). If it was given more,
  and there is as much that was aborted, that is an uncommitted-range. Other readers get all of it. A range of a
  read_committed reader waits until all in it is decided; what never is makes a count unknown. Older decisions do not
  say who is a read_committed reader: without some of what was aborted, their counts are unknown.

What retention, DeleteRecords or compaction may have taken before it was counted here, or before the reader got there
(the decision names such holes), is unknown. So is what lies between two decisions of a worker that has dropped some in
between.

The state is bounded:

- where each reader stands, until its connection closes (`readers.py`);
- what was delivered and has not been read from the topic yet, for at most `late_ms`;
- what streams have, until retention has taken it. The newest batches are kept one by one, in at most `MOST_BYTES`
  (`batch_runs.py`); of those before there is one row per stream and 65,536 offsets. A reader that is so far behind is
  judged by these: a count that is impossible is found, one that lies between what is wholly and what is partly within
  its range is unknown.

What comes late: a delivery whose records have not been read from the topic within `late_ms` is unknown, and counted as
late. Decisions of a worker come in the order of their numbers.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import FAIL, LATE, PASS, UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.rules import batch_runs
from kordon.spark_jobs.judging.rules.batch_runs import RUNS, batches_of, runs_of
from kordon.spark_jobs.judging.rules.belonging import BEFORE, BYPASS, OPENED, OWN
from kordon.spark_jobs.judging.rules.gaps import with_gaps
from kordon.spark_jobs.judging.rules.read_so_far import READ, read_so_far
from kordon.spark_jobs.judging.rules.readers import IS_DELIVERY, READER, in_order, steps_of, still_open
from kordon.spark_jobs.judging.rules.sums import sums_within
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.tables import FOR_EVER, NO_FINDINGS, checked, decision, findings, named, shaped, stacked

MOST_BYTES: Final = 16 << 20
"""What the batches may take that are kept one by one, as `batch_runs.size` has it: four million of four bytes. On a
cluster each part may have as many."""
_COARSE: Final = 65_536
_READ_COMMITTED: Final = 1
UNCOMMITTED: Final = "uncommitted-range"
_PLACE: Final = ("topic", "partition")

_READERS: Final = columns(READER, move=pl.Int32, stood=pl.Int64)
"""`stood`: the last offset that was given; null: the reader asked to continue elsewhere."""
_RANGES: Final = columns(
    topic=pl.String,
    partition=pl.Int32,
    stream=pl.Int32,
    move=pl.Int32,
    first_offset=pl.Int64,
    last_offset=pl.Int64,
    records=pl.Int64,
    is_delivered=pl.Boolean,
    worker=pl.String,
    number=pl.Int64,
    connection=pl.Int64,
    group_id=pl.String,
    layout_epoch=pl.Int32,
    isolation_level=pl.Int32,
    seen_ms=pl.Int64,
)
"""What is held against the topic: it was delivered, with so many records, or passed over, and should hold nothing.
`records` null: they are not known, or decisions are missing."""
_JOINED: Final = columns(batch_runs.BATCHES, batches=pl.Int64)
"""What a stream has in 65,536 offsets."""
_TOLD: Final = (
    "kind", "partition", "move", "first_offset", "last_offset", "records", "group_id", "layout_epoch",
    "isolation_level", "evidence",
)  # fmt: skip
_SUMMED: Final = ("records", "sure", "doubt", "aborted", "batches", "joined", "joined_aborted")


def _check(facts: Facts, state: State) -> RuleOutcome:
    read = read_so_far(state["read"], facts)
    has = stacked(batch_runs.BATCHES, _has(facts.placed), _of_transactions(facts.decided))
    runs = pl.concat([state["run"], runs_of(has, facts.newest_ms)])
    steps = in_order(state["reader"], _steps(facts), ("number", "move", "stood"))
    ranges = stacked(_RANGES, state["range"], _delivered(steps), _passed_over(steps, facts))
    undecided = _of_transactions(facts.undecided)
    known = _waiting(ranges.join(_places(facts, read), on=_PLACE, how="left"), undecided, facts)
    is_read = (pl.col("read_to") >= pl.col("last_offset")).fill_null(value=False) & ~pl.col("waits")
    rows = stacked(_JOINED, state["joined"], undecided.with_columns(batches=1))
    judged = _judged(known.filter(is_read), runs, rows)
    unread = known.filter(~is_read)
    late = unread.filter(facts.is_late()).with_columns(pl.lit(LATE).alias("verdict"))
    kept, joined = _bounded(_kept(runs, facts), _kept(state["joined"], facts))
    return RuleOutcome(
        findings=_findings(judged, facts),
        state={
            "read": read,
            "reader": shaped(still_open(steps, facts), _READERS),
            "range": shaped(unread.filter(~facts.is_late()), _RANGES),
            "run": kept,
            "joined": joined,
        },
        checked=checked(pl.concat([judged, late], how="diagonal")),
    )


def _has(placed: pl.DataFrame) -> pl.DataFrame:
    """Returns what streams have; a batch that virtual partitions get record by record has no stream."""
    is_before = pl.col("kind") == BEFORE
    is_control = pl.col("is_control").fill_null(value=False)
    is_plain = pl.col("protocol").is_null() | ~pl.col("kind").is_in([OWN, OPENED])
    its_own = placed.filter(pl.col("kind").is_in([OWN, OPENED, BEFORE, BYPASS]) & (~is_control | is_before) & is_plain)
    return its_own.select(
        *_PLACE,
        pl.col("base_offset").alias("first_offset"),
        "last_offset",
        "records",
        pl.when(pl.col("kind").is_in([OWN, BEFORE])).then("given_as").alias("stream"),
        is_control.alias("is_control"),
        pl.lit(value=False).alias("is_aborted"),
    )


def _of_transactions(written: pl.DataFrame) -> pl.DataFrame:
    """Returns `WRITTEN` as batches."""
    is_known = pl.col("is_committed").is_not_null()
    return written.with_columns(
        pl.when(is_known).then(pl.lit(value=False)).alias("is_control"),
        (~pl.col("is_committed")).fill_null(value=False).alias("is_aborted"),
    ).drop("is_committed")


def _kept(batches: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Leaves out what retention has taken."""
    places = batches.select(*_PLACE, "last_offset").join(facts.read_to, on=_PLACE, how="left", maintain_order="left")
    is_gone = (pl.col("last_offset") < pl.col("log_start")).fill_null(value=False)
    return batches.filter(places.select(~is_gone).to_series())


def _bounded(runs: pl.DataFrame, joined: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Joins the batches of the oldest runs, as far as all of them are too many."""
    if (runs.select(batch_runs.size().sum()).item() or 0) <= MOST_BYTES:
        return runs, joined
    newest = runs.sort("seen_ms", *_PLACE, "first_offset", descending=True)
    is_kept = newest.select((batch_runs.size().cum_sum() <= MOST_BYTES).alias("is_kept")).to_series()
    single = batches_of(newest.filter(~is_kept)).with_columns(pl.lit(1).alias("batches"))
    return newest.filter(is_kept), _coarse(stacked(_JOINED, joined, single))


def _coarse(batches: pl.DataFrame) -> pl.DataFrame:
    bucket = (pl.col("first_offset") // _COARSE).alias("bucket")
    kinds = ("stream", "is_control", "is_aborted")
    summed = batches.group_by(*_PLACE, *kinds, bucket, maintain_order=True).agg(
        pl.min("first_offset"), pl.max("last_offset"), pl.sum("records", "batches")
    )
    return shaped(summed, _JOINED)


def _places(facts: Facts, read: pl.DataFrame) -> pl.DataFrame:
    """Returns what is known of each partition, with a number."""
    compacted = facts.stays.group_by("topic").agg(pl.max("compacted"))
    starts = facts.read_to.select(*_PLACE, "log_start")
    known = read.join(starts, on=_PLACE, how="left").join(compacted, on="topic", how="left")
    gone_to = pl.max_horizontal("hole_to", "log_start").alias("gone_to")
    return known.with_row_index("place").select(
        *_PLACE, pl.col("place").cast(pl.Int64), "read_to", gone_to, "compacted"
    )


def _steps(facts: Facts) -> pl.DataFrame:
    stood = pl.when(IS_DELIVERY).then("last_offset").alias("stood")
    steps = steps_of(facts.decisions.select(*READER, *_TOLD))
    return steps.with_columns(stood, pl.lit(facts.newest_ms).alias("seen_ms"))


def _delivered(steps: pl.DataFrame) -> pl.DataFrame:
    given = steps.filter(IS_DELIVERY & (pl.col("first_offset") <= pl.col("last_offset")))
    is_whole = pl.col("evidence").str.json_path_match("$.holes").is_null()
    return given.with_columns(pl.when(is_whole).then("records"), pl.lit(value=True).alias("is_delivered"))


def _passed_over(steps: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Returns the ranges between where readers stood and where they were given something next."""
    moves_on = (pl.col("move") != pl.col("move_before")) | (pl.col("first_offset") > pl.col("stood_before") + 1)
    jumps = steps.filter(IS_DELIVERY & moves_on & pl.col("stood_before").is_not_null()).drop("partition")
    if jumps.is_empty():
        return jumps
    jumps = with_gaps(jumps, facts.gaps, after="number_before", until="number")
    homes, in_move = _homes(facts), pl.col("move") == pl.col("move_before")
    # most are in one move: those that are not, alone, are held against all homes of their stream
    same = jumps.filter(in_move).join(homes.with_columns(move="home_move"), on=["topic", "stream", "move"])
    others = jumps.filter(~in_move).join(homes, on=["topic", "stream"])
    between = pl.concat([same, others]).filter(pl.col("home_move").is_between("move_before", "move"))
    stood_in, goes_on_in = (pl.col("home_move") == pl.col(name) for name in ("move_before", "move"))
    begin = pl.when(stood_in).then(pl.col("stood_before") + 1).otherwise("start")
    last = pl.when(goes_on_in).then("first_offset").otherwise("kept_end") - 1
    ranges = between.with_columns(
        pl.max_horizontal(begin, "floor").alias("first_offset"),
        last.alias("last_offset"),
        pl.col("home_move").alias("move"),
        pl.when(~pl.col("across_gap")).then(0).alias("records"),
        pl.lit(value=False).alias("is_delivered"),
    )
    is_ended = pl.col("last_offset") < FOR_EVER - 1  # or a layout is not known yet, or never was
    return ranges.filter((pl.col("first_offset") <= pl.col("last_offset")) & is_ended)


def _homes(facts: Facts) -> pl.DataFrame:
    stays = facts.stays.with_columns(pl.col("kept_end").fill_null(FOR_EVER), pl.col("move").alias("home_move"))
    homes = stays.group_by("topic", "stream", "partition", "home_move", maintain_order=True)
    return homes.agg(pl.max("floor", "kept_end"), pl.min("start"))


def _waiting(ranges: pl.DataFrame, undecided: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Adds whether ranges wait (`waits`) until it is decided what their readers were to be given."""
    is_committed = (pl.col("isolation_level") == _READ_COMMITTED).fill_null(value=False)
    if undecided.is_empty():
        return ranges.with_columns(waits=pl.lit(value=False))
    rows = undecided.join(ranges.select(*_PLACE, "place").unique(), on=_PLACE).with_columns(batches=pl.lit(1))
    is_virtual, is_of_stream = pl.col("stream") >= 0, pl.col("stream").is_not_null()
    own = sums_within(_by_stream(ranges), _by_stream(rows.filter(is_of_stream)), ["batches"])["batches_met"]
    others = sums_within(_by_place(ranges), _by_place(rows.filter(~is_of_stream)), ["batches"])["batches_met"]
    every = sums_within(_by_place(ranges), _by_place(rows), ["batches"])["batches_met"]
    met = pl.when(is_virtual).then(own + others).otherwise(every) > 0
    return ranges.with_columns(waits=is_committed & met & ~facts.is_late())


def _judged(ranges: pl.DataFrame, runs: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Compares ranges with the batches that streams have in them, as `verdict`.

    Args:
        rows: Batches that are in no run, and what was joined.
    """
    there = _there(ranges, runs, rows)
    is_virtual, is_of_stream = pl.col("stream") >= 0, pl.col("stream").is_not_null()
    virtual, physical = ranges.filter(is_virtual), ranges.filter(~is_virtual)
    own = sums_within(_by_stream(virtual), _by_stream(there.filter(is_of_stream)), _SUMMED)
    others = sums_within(_by_place(virtual), _by_place(there.filter(~is_of_stream)), _SUMMED)
    every = sums_within(_by_place(physical), _by_place(there), _SUMMED)
    counted = [
        _counted(virtual, own, own + others).with_columns(opened=others["batches_met"]),
        _counted(physical, every, every).with_columns(opened=pl.lit(0, pl.Int64)),
    ]
    return pl.concat(counted).with_columns(_verdict().alias("verdict"))


def _counted(ranges: pl.DataFrame, own: pl.DataFrame, every: pl.DataFrame) -> pl.DataFrame:
    """Adds how many records a reader was to be given, at `least` and at `most`.

    Args:
        own: Sums of what is the reader's own.
        every: Sums of that and of what may be.
    """
    sums = every.with_columns(
        aborted=pl.col("aborted_met") - pl.col("joined_aborted_met") + pl.col("joined_aborted_inside"),
        vague=pl.col("joined_met") - pl.col("joined_inside"),
    )
    level = ranges.get_column("isolation_level")
    is_committed, gets_all = (pl.lit((level == each).fill_null(value=False)) for each in (_READ_COMMITTED, 0))
    most = pl.col("records_met") - pl.when(is_committed).then("aborted").otherwise(0)
    unsure = pl.col("doubt_met") + pl.when(is_committed).then(0).otherwise("aborted")
    told = sums.select("vague", "aborted", most=most, doubt=pl.when(gets_all).then(0).otherwise(unsure))
    others = pl.when(gets_all).then(pl.col("aborted_inside") + pl.col("doubt_inside")).otherwise(0)
    return pl.concat([ranges, told, own.select(least=pl.col("sure_inside") + others)], how="horizontal")


def _there(ranges: pl.DataFrame, runs: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the batches among which are all that ranges meet, with what is summed of them."""
    asked = ranges.group_by(*_PLACE, "place").agg(
        pl.min("first_offset").alias("from"), pl.max("last_offset").alias("to")
    )
    told = runs.select(*_PLACE, "first_offset", "last_offset").with_row_index("run").join(asked, on=_PLACE)
    meets = sums_within(_by_place(told), _by_place(ranges).with_columns(ranges=pl.lit(1)), ["ranges"])["ranges_met"] > 0
    met = told.filter(meets)
    single = batches_of(runs[met["run"]].with_columns(met.select("place", "from", "to"))).with_columns(
        batches=pl.lit(1)
    )
    both = pl.concat([single, rows.join(asked, on=_PLACE)], how="diagonal_relaxed")
    is_asked = (pl.col("last_offset") >= pl.col("from")) & (pl.col("first_offset") <= pl.col("to"))
    is_control, records, is_joined = pl.col("is_control"), pl.col("records"), pl.col("batches") > 1
    is_aborted = pl.col("is_aborted").fill_null(value=False)
    aborted = pl.when(is_aborted).then(records).otherwise(0)
    return both.filter(is_asked).with_columns(
        sure=pl.when(~is_control & ~is_aborted).then(records).otherwise(0),
        doubt=pl.when(is_control.is_null()).then(records).otherwise(0),
        aborted=aborted,
        joined=is_joined,
        joined_aborted=pl.when(is_joined).then(aborted).otherwise(0),
    )


def _by_stream(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(key=pl.col("place") * (1 << 32) + pl.col("stream"))


def _by_place(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(key="place")


def _verdict() -> pl.Expr:
    is_committed = (pl.col("isolation_level") == _READ_COMMITTED).fill_null(value=False)
    is_uncommitted = is_committed & (pl.col("records") <= pl.col("most") + pl.col("aborted"))
    is_gone = pl.col("first_offset") < pl.col("gone_to")
    is_untold = pl.col("records").is_null() & (pl.col("is_delivered") | (pl.col("most") > 0))
    return (
        pl.when(is_gone | is_untold | (pl.col("is_delivered") & pl.col("compacted")))
        .then(pl.lit(UNKNOWN))
        .when(pl.col("records") < pl.col("least"))
        .then(pl.lit("skipped-range"))
        .when(pl.col("records") > pl.col("most"))
        .then(pl.when(is_uncommitted).then(pl.lit(UNCOMMITTED)).otherwise(pl.lit("doubled-range")))
        .when(((pl.col("vague") > 0) | (pl.col("opened") > 0)) & (pl.col("least") != pl.col("most")))
        .then(pl.lit(UNKNOWN))
        .when((pl.col("doubt") > 0) & (is_committed | (pl.col("records") != pl.col("most"))))
        .then(pl.lit(UNKNOWN))
        .otherwise(pl.lit(PASS))
    )


_WHERE: Final = "{offset:first_offset:last_offset} of stream {stream} at {topic}-{partition}"
_PASSED: Final = (
    f"Connection {{connection}} was led past {_WHERE} without a rewind, and {{record:least}} of it are there: it did"
    " not get them. Restart the consumer from its last commit, and report what the worker logged then."
)
_FEWER: Final = (
    f"Connection {{connection}} was given {{record:records}} for {_WHERE}, and there are {{least}}: it did not get all."
    " Restart the consumer from its last commit, and report what the worker logged then."
)
_MORE: Final = (
    f"Connection {{connection}} was given {{record:records}} for {_WHERE}, and there are no more than {{most}}: it got"
    " some twice, or others'. Report what the worker logged then."
)
_ABORTED: Final = (
    f"Connection {{connection}}, which reads committed records only, was given {{record:records}} for {_WHERE}, and no"
    " more than {most} are committed: it got some that nobody has committed. Undo what was made of them, and report"
    " what the worker logged then."
)


def _findings(judged: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    is_skipped, is_uncommitted = (pl.col("verdict") == kind for kind in ("skipped-range", UNCOMMITTED))
    fewer = pl.when("is_delivered").then(pl.lit(_FEWER)).otherwise(pl.lit(_PASSED))
    more = pl.when(is_uncommitted).then(pl.lit(_ABORTED)).otherwise(pl.lit(_MORE))
    wrong = judged.filter(pl.col("verdict").is_in(["skipped-range", "doubled-range", UNCOMMITTED]))
    if wrong.is_empty():
        return NO_FINDINGS
    rows = wrong.with_columns(
        pl.col("verdict").alias("kind"),
        pl.when(is_skipped).then(fewer).otherwise(more).alias("text"),
        decision().alias("decision"),
        pl.col("is_delivered").cast(pl.Int32).alias("v"),
        named(decision()).alias("decisions"),
        pl.lit(FAIL).alias("verdict"),
    )
    return findings(rows, RULE.number, RULE.name, ("decision", "v", "partition", "move"), facts)


RULE: Final = Rule(
    number=5,
    name="NO-SKIP",
    proves="A reader was given all that its streams have, from where it began.",
    is_of_one_life=True,
    state={"read": READ, "reader": _READERS, "range": _RANGES, "run": RUNS, "joined": _JOINED},
    check=_check,
)
