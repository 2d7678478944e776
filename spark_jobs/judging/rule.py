"""What a rule is: a pure function from what is new, and from its own state, to findings and the next state.

Each rule runs once per micro-batch, and again with the same input if the job dies before the micro-batch is complete.
So a rule reads nothing but `Facts` and its state, and knows no clock: the present is `newest_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import polars as pl

from kordon.spark_jobs.judging.facts import Facts

FAIL: Final = "fail"
"""The promise is broken, and it is proven by the decisions and offsets named."""
UNKNOWN: Final = "unknown"
"""It cannot be told, as evidence is missing."""
LATE: Final = "late"
"""Of `checked` only: unknown, as what would tell had not come within `Facts.late_ms`. It is counted apart."""
PASS: Final = "pass"  # noqa: S105 - a verdict

State: TypeAlias = Mapping[str, pl.DataFrame]
"""What a rule keeps between micro-batches: tables by their names."""

KEYS: Final = ("topic", "transactional_id")
"""Columns by which tables of states are divided among the parts of a cluster. A table that has neither concerns all:
each part works it out from `Facts.of_all`, `Facts.numbers` and `Facts.gaps` alone, so that all come to the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOutcome:
    """What a rule has made of it."""

    findings: pl.DataFrame
    """Rows of `FINDINGS`; found in this micro-batch only."""
    state: State
    """Each table of the rule's own `state`: the whole of it, in place of what it was given."""
    checked: pl.DataFrame
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
    state: Mapping[str, pl.Schema]
    """The tables that it keeps between micro-batches; the first micro-batch is given empty ones."""
    is_of_one_life: bool = False
    """Whether it holds decisions against what stands in topics, or offsets against each other: then it is given none
    of a topic that had the name before (`lives.py`). Others heed `forget` themselves."""
    check: Callable[[Facts, State], RuleOutcome]
    """The facts and the state so far, to an outcome."""
