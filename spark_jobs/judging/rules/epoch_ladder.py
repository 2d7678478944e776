"""EPOCH-LADDER (7): epochs of a transactional.id only rise, and nobody but its present holder raises them (KIP-360).

Each answered InitProducerId (api key 22) is an ADMIT, with evidence `transactional_id`, `given` and `answered` (each
producer id and epoch) and `error`. What is in force is what was answered last; the *last* one is what was given then.

    given           is answered by                                              KIP-360
    nothing (-1)    the next epoch, or a new producer id at epoch 0             1a, 1b i, 1b ii
    what is in force   the same                                                 2a i, 2a ii
    the last one    what is in force, unchanged: the request came again         2b
    anything else   an error                                                    2c
    half of it      an error (INVALID_REQUEST)

Epochs rise also where this log has nothing of it: a client beside Kordon, the end of a transaction (KIP-890), a
producer id that expired. So an id or an epoch that is newer than what is known is *unknown*, not a fail, and a request
that was refused fails nothing. Producer ids are given out by each broker from a block of its own, so that a new one (at
epoch 0) may be a smaller number.

Requests are compared within a worker, by its numbers. Answers on two connections may cross there: one with evidence
`crossed` came when another one for the same id had come since its request, and is compared with none before it. Between
workers nothing says which of two answers came first:
they rest on no record of the layouts topic, and clocks prove nothing. What is wrong in either order is found all the
same (`epoch_workers.py`):

    doubled-epoch     two answers have one epoch, and at least one of them went to a new instance
    repeat-changed    two requests gave the same, and were answered different epochs
    not-fenced        a request raised an epoch that was over, as another worker had answered a newer one

And answers of other workers explain what a worker alone cannot tell: that a client held what it gave, or that it was
refused. An epoch that fell from one worker's answer to the next one's is seen if the log has that epoch a second time,
or if the client says what it held. Nothing orders answers with different producer ids.

State: per transactional.id the newest answer of each worker, the `MOST_ANSWERS` newest of all, and what waits for
those of other workers. Bounded by the ids in use: after `EXPIRES_MS`, the time after which brokers forget such an id,
it goes, and the next request counts as the first.

What comes late: what only another worker's answer could explain is unknown after `late_ms`. Nothing else does, as
decisions of a worker come in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import FAIL, PASS, UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.rules.epoch_workers import contradictions, explained
from kordon.spark_jobs.judging.rules.gaps import with_gaps
from kordon.spark_jobs.judging.schema import CHECKED, FINDINGS, columns
from kordon.spark_jobs.judging.tables import checked, decision, evidence, findings, named, stacked

INIT_PRODUCER_ID: Final = 22
EXPIRES_MS: Final = 7 * 24 * 60 * 60 * 1000
"""transactional.id.expiration.ms, as it comes."""
MOST_ANSWERS: Final = 100
_KEY: Final = ("transactional_id", "worker")
_DECISION: Final = ("worker", "number")
_PATHS: Final = {
    "given_id": "$.given[0]",
    "given_epoch": "$.given[1]",
    "producer_id": "$.answered[0]",
    "producer_epoch": "$.answered[1]",
}
_ANSWER: Final = columns(
    transactional_id=pl.String, worker=pl.String, **dict.fromkeys(("number", *_PATHS, "at_ms"), pl.Int64)
)
"""An answer that was no error."""
_WAITING: Final = columns(_ANSWER, error=pl.Int64, seen_ms=pl.Int64)
"""What another worker's answer may explain."""
_SENTENCES: Final = {
    "epoch-fell": "was at a newer epoch or producer id already, so a fenced producer can write again",
    "not-bumped": "was given its epoch a second time, so two producers hold the same one",
    "repeat-changed": "was answered something else to a request that came again, so the first answer is void",
    "not-fenced": "was raised by a producer that did not hold it any more",
    "half-given": "was raised by a request with a producer id or an epoch alone",
    "doubled-epoch": "was given the same epoch by another worker",
}
_TEXT: Final = (
    "The transactional.id {transactional_id} was answered producer id {producer_id}, epoch {producer_epoch}, to a"
    " request with id {given_id}, epoch {given_epoch}: it %s. Stop all producers that use it but one, and see which"
    " broker or proxy answered."
)


def _check(facts: Facts, state: State) -> RuleOutcome:
    answers = _answers(facts.decisions)
    if answers.is_empty() and state["waiting"].is_empty():
        in_use = state["answer"].filter(_is_in_use(facts))
        return RuleOutcome(findings=FINDINGS.to_frame(), state={**state, "answer": in_use}, checked=CHECKED.to_frame())
    granted = answers.filter(pl.col("error") == 0).drop("error", "crossed").with_columns(is_new=True)
    known = pl.concat([state["answer"].with_columns(is_new=False), granted])
    steps, kept = _judged(_steps(answers, known, facts)), _kept(known, facts)
    waits = (pl.col("verdict") == UNKNOWN) & pl.col("kind").is_null() & ~pl.col("across_gap")
    asked = stacked(_WAITING, state["waiting"], steps.filter(waits).with_columns(seen_ms=facts.newest_ms))
    told = explained(asked, kept).with_columns(verdict=pl.lit(PASS))
    untold = asked.join(told, on=_DECISION, how="anti")
    late = untold.filter(facts.is_late()).with_columns(verdict=pl.lit(UNKNOWN))
    wrong = pl.concat([steps.filter(pl.col("kind").is_not_null()), contradictions(kept)], how="diagonal")
    return RuleOutcome(
        findings=_findings(wrong, facts),
        state={"answer": kept.drop("is_new"), "waiting": untold.filter(~facts.is_late())},
        checked=checked(stacked(CHECKED, steps.filter(~waits), told, late)),
    )


def _answers(decisions: pl.DataFrame) -> pl.DataFrame:
    is_answer = (pl.col("kind") == Kind.ADMIT.value) & (pl.col("api_key") == INIT_PRODUCER_ID)
    told = decisions.select("kind", "api_key", "evidence", *_DECISION, "at_ms").filter(is_answer)
    answers = told.select(
        evidence("$.transactional_id").alias("transactional_id"),
        *_DECISION,
        *(_number(path, -1).alias(name) for name, path in _PATHS.items()),
        "at_ms",
        _number("$.error", 0).alias("error"),
        (evidence("$.crossed") == "true").fill_null(value=False).alias("crossed"),
    )
    return answers.filter(pl.col("transactional_id").is_not_null())


def _number(path: str, otherwise: int) -> pl.Expr:
    return evidence(path).cast(pl.Int64, strict=False).fill_null(otherwise)


def _kept(known: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    is_newest = pl.col("number") == pl.col("number").max().over(_KEY)
    place = pl.int_range(pl.len()).over("transactional_id")
    newest_first = known.filter(_is_in_use(facts)).sort("at_ms", "number", descending=True)
    return newest_first.filter(is_newest | (place < MOST_ANSWERS))


def _is_in_use(facts: Facts) -> pl.Expr:
    return pl.col("at_ms") > facts.newest_ms - EXPIRES_MS


def _steps(answers: pl.DataFrame, known: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Returns new answers with the one before of the same worker that was no error, and how they compare."""
    before = known.select(*_KEY, pl.col("number", *_PATHS).name.suffix("_before")).sort("number_before")
    steps = answers.sort("number").join_asof(
        before, left_on="number", right_on="number_before", by=_KEY, allow_exact_matches=False, check_sortedness=False
    )
    followed = [f"{name}_before" for name in ("number", *_PATHS)]
    steps = steps.with_columns(pl.when(~pl.col("crossed")).then(pl.col(followed)).name.keep())
    given, answered = ("given_id", "given_epoch"), ("producer_id", "producer_epoch")
    return with_gaps(steps, facts.gaps, after="number_before", until="number").with_columns(
        decision("worker", "number_before").alias("other"),
        is_anew=pl.all_horizontal(pl.col(given) == -1),
        is_half=pl.any_horizontal(pl.col(given) == -1) & ~pl.all_horizontal(pl.col(given) == -1),
        is_present=_are(given, answered),
        is_last=_are(given, given) & (pl.col("given_id") != -1),
        is_unchanged=_are(answered, answered),
    )


def _are(names: Sequence[str], before: Sequence[str]) -> pl.Expr:
    return pl.all_horizontal(pl.col(one) == pl.col(f"{other}_before") for one, other in zip(names, before, strict=True))


def _judged(steps: pl.DataFrame) -> pl.DataFrame:
    """Adds what is wrong with an answer, as `kind`: null where nothing is, or could be told; and `verdict`.

    What falls has fallen, whatever is missing; the rest may be explained by what is not there.
    """
    given_id, given_epoch, producer_id, epoch = (pl.col(name) for name in _PATHS)
    id_before, epoch_before = pl.col("producer_id_before"), pl.col("producer_epoch_before")
    is_anew, is_present, is_last = (pl.col(name) for name in ("is_anew", "is_present", "is_last"))
    is_error, is_unchanged, is_whole = pl.col("error") != 0, pl.col("is_unchanged"), ~pl.col("across_gap")
    contradicts_itself = (given_id == producer_id) & (given_id != -1) & (given_epoch >= epoch)
    fell = ((producer_id == id_before) & (epoch < epoch_before)) | ((producer_id < id_before) & (epoch > 0))
    was_over = ((given_id == id_before) & (given_epoch < epoch_before)) | (
        (given_id != id_before) & (producer_id == id_before)
    )
    kinds = (
        (pl.col("is_half"), "half-given"),
        (contradicts_itself & (given_epoch > epoch), "epoch-fell"),
        (contradicts_itself, "not-bumped"),
        (fell, "epoch-fell"),
        (is_unchanged & (is_present | is_anew), "not-bumped"),
        (is_last & ~is_present & ~is_unchanged, "repeat-changed"),
        (~is_anew & ~is_present & ~is_last & was_over, "not-fenced"),
    )
    kind = pl.coalesce(pl.when(~is_error & is_so).then(pl.lit(name)) for is_so, name in kinds)
    is_proven = is_whole | contradicts_itself | pl.col("kind").is_in(["epoch-fell", "half-given"])
    is_known = is_anew | ((is_present | is_last) & pl.col("number_before").is_not_null())
    is_held_back = is_error & (is_present | is_last).fill_null(value=False)
    verdict = (
        pl.when(pl.col("kind").is_not_null())
        .then(pl.when(is_proven).then(pl.lit(FAIL)).otherwise(pl.lit(UNKNOWN)))
        .when(~is_held_back & (is_error | (is_known & is_whole)))
        .then(pl.lit(PASS))
        .otherwise(pl.lit(UNKNOWN))
    )
    return steps.with_columns(kind.alias("kind")).with_columns(verdict.alias("verdict"))


def _findings(wrong: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    texts = {kind: _TEXT % why for kind, why in _SENTENCES.items()}
    text = pl.col("kind").replace_strict(texts, return_dtype=pl.String)
    told = wrong.with_columns(text.alias("text"), named(pl.col("other"), decision()).alias("decisions"))
    return findings(told, RULE.number, RULE.name, (*_DECISION, "other"), facts)


RULE: Final = Rule(
    number=7,
    name="EPOCH-LADDER",
    proves="The producer id and epoch of a transactional.id never fell, a request that came again got the same answer, "
    "and whoever did not hold it any more was fenced.",
    state={"answer": _ANSWER, "waiting": _WAITING},
    check=_check,
)
