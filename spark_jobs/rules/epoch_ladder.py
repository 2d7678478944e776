"""EPOCH-LADDER (7): epochs of a transactional.id only rise, and nobody but its present holder raises them (KIP-360).

Each answered InitProducerId (api key 22) is an ADMIT, with evidence `transactional_id`, `given` and `answered` (each
producer id and epoch) and `error`. What is in force is what was answered last; the *last* one is what was given then.

    given           is answered by                                              KIP-360
    nothing (-1)    the next epoch, or a new producer id at epoch 0             1a, 1b i, 1b ii
    what is in force   the same                                                 2a i, 2a ii
    the last one    what is in force, unchanged: the request came again         2b
    anything else   an error                                                    2c
    half of it      an error (INVALID_REQUEST)

Epochs rise also where this log has nothing of it: another worker, a client beside Kordon, the end of a transaction
(KIP-890), a producer id that expired. So an id or an epoch that is newer than what is known is *unknown*, not a fail,
and a request that was refused fails nothing. Producer ids are given out by each broker from a block of its own, so that
a new one (at epoch 0) may be a smaller number.

Requests are compared within a worker, by its numbers. Between workers nothing says which of two answers came first:
they rest on no record of the layouts topic, and clocks prove nothing. What needs no order is held against all of them:
no answer is at or below the epoch that its own request gave, and no two new instances hold the same epoch. That an
epoch fell from one worker's answer to the next one's is not seen unless the client says what it held.

State: per transactional.id and worker the newest answer. Bounded by the ids in use: after `EXPIRES_MS`, the time after
which brokers forget such an id, it goes, and the next request counts as the first.

What comes late: nothing does, as decisions of a worker come in the order of their numbers. That two workers gave the
same epoch is found against the newest answer of each.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kordon.codecs.decision import Kind
from kordon.spark_jobs.frames import stacked
from kordon.spark_jobs.rules.gaps import with_gaps
from kordon.spark_jobs.rules.rule import FAIL, PASS, UNKNOWN, Facts, Rule, RuleOutcome
from kordon.spark_jobs.rules.tables import checked, decision, findings

INIT_PRODUCER_ID: Final = 22
EXPIRES_MS: Final = 7 * 24 * 60 * 60 * 1000
"""transactional.id.expiration.ms, as it comes."""
STATE: Final = StructType(
    [
        StructField("transactional_id", StringType()),
        StructField("worker", StringType()),
        StructField("number", LongType()),
        StructField("given_id", LongType()),
        StructField("given_epoch", LongType()),
        StructField("producer_id", LongType()),
        StructField("producer_epoch", LongType()),
        StructField("at_ms", LongType()),
    ]
)
"""The newest answer that was no error."""
_TOLD: Final = "transactional_id string, given array<bigint>, answered array<bigint>, error int"
_KEY: Final = ("transactional_id", "worker")
_SENTENCES: Final = {
    "epoch-fell": "was at a newer epoch or producer id already, so a fenced producer can write again",
    "not-bumped": "was given its epoch a second time, so two producers hold the same one",
    "repeat-changed": "was answered something else to a request that came again, so the first answer is void",
    "not-fenced": "was raised by a producer that did not hold it any more",
    "half-given": "was raised by a request with a producer id or an epoch alone",
    "doubled-epoch": "was given the same epoch by another worker",
}


def _check(facts: Facts, state: DataFrame) -> RuleOutcome:
    answers = _answers(facts)
    steps = with_gaps(_steps(answers, state), facts.gaps, after="_before_number", until="number")
    judged = steps.withColumn("kind", _kind()).withColumn("verdict", _verdict())
    before = F.when(F.col("_before_number").isNotNull(), decision("worker", "_before_number"))
    wrong = judged.where("kind is not null").withColumn("_other", before)
    wrong = stacked(wrong, _doubled(answers, state))
    return RuleOutcome(
        findings=_findings(wrong, facts),
        state=_next_state(facts, answers, state),
        checked=checked(judged.select("verdict")),
    )


def _answers(facts: Facts) -> DataFrame:
    told = F.from_json("evidence", _TOLD)
    is_answer = (F.col("kind") == Kind.ADMIT.value) & (F.col("api_key") == INIT_PRODUCER_ID)
    return (
        facts.decisions.where(is_answer)
        .withColumn("_told", told)
        .select(
            F.col("_told.transactional_id").alias("transactional_id"),
            "worker",
            "number",
            _item("given", 1).alias("given_id"),
            _item("given", 2).alias("given_epoch"),
            _item("answered", 1).alias("producer_id"),
            _item("answered", 2).alias("producer_epoch"),
            F.coalesce("_told.error", F.lit(0)).alias("error"),
            "at_ms",
        )
        .where("transactional_id is not null")
    )


def _item(name: str, place: int) -> Column:
    return F.coalesce(F.try_element_at(F.col(f"_told.{name}"), F.lit(place)), F.lit(-1).cast("bigint"))


def _steps(answers: DataFrame, state: DataFrame) -> DataFrame:
    """Returns the new answers, each with the one before it that was no error."""
    in_order = Window.partitionBy(*_KEY).orderBy("number").rowsBetween(Window.unboundedPreceding, -1)
    every = stacked(answers, state.withColumn("error", F.lit(None).cast("int")))
    is_granted = F.coalesce(F.col("error"), F.lit(0)) == 0
    newest = F.last(
        F.when(is_granted, F.struct("number", "given_id", "given_epoch", "producer_id", "producer_epoch")),
        ignorenulls=True,
    ).over(in_order)
    return (
        every.withColumn("_before", newest)
        .where("error is not null")
        .withColumn("_before_number", F.col("_before.number"))
        .withColumns({f"_{name}": F.col(f"_before.{name}") for name in ("producer_id", "producer_epoch")})
        .withColumns({f"_{name}": F.col(f"_before.{name}") for name in ("given_id", "given_epoch")})
    )


_IS_NEW: Final = "given_id = -1 and given_epoch = -1"
_IS_HALF: Final = "(given_id = -1) != (given_epoch = -1)"
_IS_PRESENT: Final = "given_id = _producer_id and given_epoch = _producer_epoch"
_IS_LAST: Final = "given_id = _given_id and given_epoch = _given_epoch and given_id != -1"
_IS_UNCHANGED: Final = "producer_id = _producer_id and producer_epoch = _producer_epoch"
_FELL: Final = (
    "(producer_id = _producer_id and producer_epoch < _producer_epoch)"
    " or (producer_id < _producer_id and producer_epoch > 0)"
)
_NOT_ABOVE: Final = "given_id = producer_id and given_id != -1 and given_epoch >= producer_epoch"
"""The answer contradicts its own request, whatever went before."""
_FOREIGN: Final = (
    "(given_id = _producer_id and given_epoch < _producer_epoch)"
    " or (given_id != _producer_id and producer_id = _producer_id)"
)


def _kind() -> Column:
    """What is wrong with an answer; null: nothing, or nothing that could be told."""
    return (
        F.when(F.col("error") != 0, None)
        .when(F.expr(_IS_HALF), "half-given")
        .when(F.expr(_NOT_ABOVE), F.when(F.expr("given_epoch > producer_epoch"), "epoch-fell").otherwise("not-bumped"))
        .when(F.col("_before").isNull(), None)
        .when(F.expr(_FELL), "epoch-fell")
        .when(F.expr(_IS_PRESENT) & F.expr(_IS_UNCHANGED), "not-bumped")
        .when(F.expr(_IS_LAST) & ~F.expr(_IS_PRESENT) & ~F.expr(_IS_UNCHANGED), "repeat-changed")
        .when(F.expr(_IS_NEW) & F.expr(_IS_UNCHANGED), "not-bumped")
        .when(~F.expr(_IS_NEW) & ~F.expr(_IS_PRESENT) & ~F.expr(_IS_LAST) & F.expr(_FOREIGN), "not-fenced")
    )


def _verdict() -> Column:
    """What falls has fallen, whatever is missing; the rest may be explained by what is not there."""
    proven = F.col("kind").isin("epoch-fell", "half-given") | F.expr(_NOT_ABOVE) | ~F.col("across_gap")
    is_known = F.expr(f"({_IS_NEW}) or ({_IS_PRESENT}) or ({_IS_LAST})") & ~F.col("across_gap")
    held_back = (F.col("error") != 0) & (F.expr(_IS_PRESENT) | F.expr(_IS_LAST))
    return (
        F.when(F.col("kind").isNotNull(), F.when(proven, FAIL).otherwise(UNKNOWN))
        .when(F.coalesce(held_back, F.lit(False)), UNKNOWN)
        .when((F.col("error") != 0) | F.coalesce(is_known, F.expr(_IS_NEW)), PASS)
        .otherwise(UNKNOWN)
    )


def _doubled(answers: DataFrame, state: DataFrame) -> DataFrame:
    """Returns answers to new instances that another worker had given as well."""
    granted = answers.where(F.col("error") == 0)
    every = stacked(granted, state).select(
        "transactional_id",
        "producer_id",
        "producer_epoch",
        F.col("worker").alias("_worker"),
        F.col("number").alias("_number"),
        F.col("given_id").alias("_other_given_id"),
        F.col("error").isNull().alias("_is_old"),
    )
    return (
        granted.where(_IS_NEW)
        .join(every, ["transactional_id", "producer_id", "producer_epoch"])
        .where("worker != _worker and (_other_given_id != -1 or _is_old or worker > _worker)")
        .withColumns({"kind": F.lit("doubled-epoch"), "verdict": F.lit(FAIL), "_other": decision("_worker", "_number")})
    )


def _findings(wrong: DataFrame, facts: Facts) -> DataFrame:
    why = F.create_map(*(F.lit(each) for pair in _SENTENCES.items() for each in pair))[F.col("kind")]
    text = F.format_string(
        "The transactional.id %s was answered producer id %d, epoch %d, to a request with id %d, epoch %d: it %s. "
        "Stop all producers that use it but one, and see which broker or proxy answered.",
        "transactional_id",
        "producer_id",
        "producer_epoch",
        "given_id",
        "given_epoch",
        why,
    )
    told = wrong.withColumns(
        {"text": text, "decisions": F.array_compact(F.array("_other", decision("worker", "number")))}
    )
    return findings(told, RULE.number, RULE.name, ("worker", "number", "_other"), facts)


def _next_state(facts: Facts, answers: DataFrame, state: DataFrame) -> DataFrame:
    latest = Window.partitionBy(*_KEY).orderBy(F.desc("number"))
    every = stacked(answers.where(F.col("error") == 0), state)
    newest = every.withColumn("_place", F.row_number().over(latest)).where("_place = 1")
    return newest.where(F.col("at_ms") > F.lit(facts.newest_ms - EXPIRES_MS)).to(STATE)


RULE: Final = Rule(
    number=7,
    name="EPOCH-LADDER",
    proves="The producer id and epoch of a transactional.id never fell, a request that came again got the same answer, "
    "and whoever did not hold it any more was fenced.",
    state=STATE,
    check=_check,
)
