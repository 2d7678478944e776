"""Topics that are let go, and made again under the same name: nothing of the former one is held against the new one.

Offsets and positions begin anew in a topic that has got the name of another. Which one a decision is about, its
`layouts_offset` tells: that of the newest `forget` stands between them. So rules on what stands in topics are given
decisions of the topic that has the name now, and in the micro-batch of the `forget` their states lose the rows of the
former. What was not judged by then never will be: it is gone, and counts as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kordon.codecs.decision import Kind
from kordon.spark_jobs.frames import local_rows, stacked
from kordon.spark_jobs.rules.rule import UNKNOWN, Facts, Rule, RuleOutcome
from kordon.spark_jobs.rules.tables import checked
from kordon.spark_jobs.schema import DECISIONS

_SINCE: Final = StructType([StructField("topic", StringType()), StructField("_since", LongType())])
_JUDGED: Final = (Kind.ADMIT.value, Kind.DELIVER.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """Since when topics have their names, as far as others had them before."""

    let_go: Mapping[str, int] = field(default_factory=dict[str, int])
    """The offset in `__kordon.layouts` of the record by which a topic was let go last, by topic."""
    now: frozenset[str] = frozenset()
    """Those of which this micro-batch tells that."""

    def judged(self, rule: Rule, facts: Facts, state: DataFrame) -> RuleOutcome:
        """Lets a rule judge a micro-batch."""
        if not (rule.is_of_one_life and self.let_go):
            return rule.check(facts, state)
        outcome = rule.check(*self.living(facts, state))
        former = self._parted(facts, is_former=True).where(F.col("kind").isin(*_JUDGED))
        gone = checked(former.select("topic", F.lit(UNKNOWN).alias("verdict")))
        return replace(outcome, checked=stacked(outcome.checked, gone))

    def living(self, facts: Facts, state: DataFrame) -> tuple[Facts, DataFrame]:
        """Leaves out decisions about former topics, and what was kept of those that are let go now."""
        if not self.let_go:
            return facts, state
        return replace(facts, decisions=self._parted(facts, is_former=False)), self._kept(state)

    def _kept(self, state: DataFrame) -> DataFrame:
        if not self.now or "topic" not in state.columns:
            return state
        return state.where(F.col("topic").isNull() | ~F.col("topic").isin(*self.now))

    def _parted(self, facts: Facts, *, is_former: bool) -> DataFrame:
        """Returns the decisions about former topics, or all others."""
        told = facts.decisions
        since = local_rows(told.sparkSession, [*self.let_go.items()], _SINCE)
        joined = told.join(since, "topic", "left")
        ends_it = F.coalesce(F.col("layouts_offset") <= F.col("_since"), F.lit(False))
        return joined.where(ends_it if is_former else ~ends_it).select(*DECISIONS.names)
