"""Topics that are let go, and made again under the same name: nothing of the former one is held against the new one.

Offsets and positions begin again in a topic that has got the name of another. Which one a decision is about, its
`layouts_offset` tells: that of the newest `forget` stands between them. So rules on what stands in topics are given
decisions of the topic that has the name now, and in the micro-batch of the `forget` their states lose the rows of the
former. What was not judged by then never will be: it is gone, and counts as unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.tables import checked

_JUDGED: Final = (Kind.ADMIT.value, Kind.DELIVER.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """Since when topics have their names, as far as others had them before."""

    let_go: pl.DataFrame
    """By `topic`, `_since`: the offset in `__kordon.layouts` of the record by which it was let go last."""
    now: frozenset[str] = frozenset()
    """Those of which this micro-batch tells that."""

    @classmethod
    def between(cls, before: pl.DataFrame, told: pl.DataFrame) -> Lives:
        """Returns what two tables of `layouts.TOLD` say, of which the second one is newer."""
        let_go = told.filter(pl.col("let_go").is_not_null()).select("topic", pl.col("let_go").alias("_since"))
        joined = let_go.join(before.select("topic", "let_go"), on="topic", how="left")
        is_new = pl.col("let_go").is_null() | (pl.col("_since") > pl.col("let_go"))
        return cls(let_go=let_go, now=frozenset(joined.filter(is_new).get_column("topic").to_list()))

    def judged(self, rule: Rule, facts: Facts, state: State) -> RuleOutcome:
        """Lets a rule judge a micro-batch."""
        if not rule.is_of_one_life or self.let_go.is_empty():
            return rule.check(facts, state)
        outcome = rule.check(*self.living(facts, state))
        former = self._parted(facts).filter("_is_former", pl.col("kind").is_in(_JUDGED))
        gone = checked(former.select("topic", pl.lit(UNKNOWN).alias("verdict")))
        return replace(outcome, checked=pl.concat([outcome.checked, gone]))

    def living(self, facts: Facts, state: State) -> tuple[Facts, State]:
        """Leaves out decisions about former topics, and what was kept of those that are let go now."""
        if self.let_go.is_empty():
            return facts, state
        decisions = self._parted(facts).filter(~pl.col("_is_former")).drop("_is_former")
        return replace(facts, decisions=decisions), {name: self._kept(table) for name, table in state.items()}

    def _kept(self, table: pl.DataFrame) -> pl.DataFrame:
        if not self.now or "topic" not in table.columns:
            return table
        return table.filter(pl.col("topic").is_null() | ~pl.col("topic").is_in(list(self.now)))

    def _parted(self, facts: Facts) -> pl.DataFrame:
        """Adds to decisions whether they are about former topics, as `_is_former`."""
        joined = facts.decisions.join(self.let_go, on="topic", how="left", maintain_order="left")
        is_former = (pl.col("layouts_offset") <= pl.col("_since")).fill_null(value=False)
        return joined.with_columns(is_former.alias("_is_former")).drop("_since")
