"""What a rule is: a pure function from what is new, and from its own state, to findings and the next state.

The engine runs each rule once per micro-batch, and again with the same input if the job dies before the micro-batch is
complete. So a rule reads nothing but `Facts` and its state, and knows no clock: the present is `newest_ms`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from kordon.spark_jobs.schema import BATCHES, CHECKED, DECISIONS, FINDINGS, READ_TO, SEGMENTS, STAYS

FAIL: Final = "fail"
"""The promise is broken, and it is proven by the decisions and offsets named."""
UNKNOWN: Final = "unknown"
"""It cannot be told, as evidence is missing."""
LATE: Final = "late"
"""Of `checked` only: unknown, as what would tell had not come within `Facts.late_ms`. The engine counts it."""
PASS: Final = "pass"  # noqa: S105 - a verdict

__all__ = [
    "BATCHES",
    "CHECKED",
    "DECISIONS",
    "FAIL",
    "FINDINGS",
    "LATE",
    "PASS",
    "READ_TO",
    "SEGMENTS",
    "STAYS",
    "UNKNOWN",
    "Facts",
    "Rule",
    "RuleOutcome",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a rule may look at; each is a table of `schema.py`, which it does not change."""

    decisions: DataFrame
    """New in this micro-batch only. Those of one worker come in the order of their numbers over the micro-batches."""
    batches: DataFrame
    """New in this micro-batch only; per partition without gaps and in the order of offsets over the micro-batches."""
    segments: DataFrame
    """All, as of the newest layout that a decision has told."""
    stays: DataFrame
    """All, as of the same layouts."""
    read_to: DataFrame
    """All partitions that are read, behind this micro-batch."""
    batch_id: int
    """The number of the micro-batch: 0, 1, 2, …"""
    newest_ms: int
    """Time of the newest decision so far: `found_ms` of findings, and what lateness is told by; 0: there was none."""
    late_ms: int = 600_000
    """The time, by decisions, for which a rule waits for something before it judges without it."""
    is_last: bool = False
    """Nothing comes behind this micro-batch (`--once`): what waits still is judged as it is."""
    placed: DataFrame
    """Batches of which it has become certain in this micro-batch whose they are: rows of `belonging.PLACED`."""
    gaps: DataFrame | None = None
    """All numbers known to be missing (`gaps.py`): worker, first_number, last_number. None: there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOutcome:
    """What a rule has made of it."""

    findings: DataFrame
    """Rows of `FINDINGS`; found in this micro-batch only."""
    state: DataFrame
    """Rows of the rule's own `state`: the whole of it, in place of what it was given."""
    checked: DataFrame
    """Rows of `CHECKED`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One invariant."""

    number: int
    """The rule's number; findings carry it."""
    name: str
    """Its short name in capitals, such as COUNT-FENCE."""
    proves: str
    """What holds if the rule has found nothing, in one sentence."""
    state: StructType
    """Columns of what it keeps between micro-batches; the first micro-batch is given an empty table."""
    is_of_one_life: bool = False
    """Whether it holds decisions against what stands in topics, or offsets against each other: then it is given none
    of a topic that had the name before (`lives.py`). Others heed `forget` themselves."""
    check: Callable[[Facts, DataFrame], RuleOutcome]
    """The facts and the state so far, to an outcome. Built-ins and windows only; nothing is collected."""
