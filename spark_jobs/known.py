"""What an audit itself knows behind a micro-batch, besides the states of its parts: small, so the driver keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import TypeAdapter

from kordon.spark_jobs.judging.shipments import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What was read so far."""

    newest_ms: int = 0
    """The time of decisions."""
    decisions: int = 0
    batches: int = 0
    bytes: int = 0
    unreadable: int = 0
    """Records of the decision log that are no decisions."""

    def as_dict(self) -> dict[str, int]:
        """Returns the numbers by their names."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def with_news(self, parts: Iterable[Mapping[str, int]]) -> Totals:
        """Returns it with what was new to each part, by the same names."""
        told = list(parts)
        sums = {name: value + sum(each[name] for each in told) for name, value in self.as_dict().items()}
        return replace(Totals(**sums), newest_ms=max([self.newest_ms, *(each["newest_ms"] for each in told)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownState:
    """All that is kept behind a micro-batch."""

    version: int = 0
    """`VERSION` of the states; 0: of a Kordon that did not say."""
    parts: int = 1
    """Among how many parts topics were divided."""
    managed: tuple[str, ...] = ()
    """Topics that are managed, as far as decisions tell."""
    totals: Totals = field(default_factory=Totals)
    ranges: Mapping[int, Mapping[str, int]] = field(default_factory=dict[int, Mapping[str, int]])
    """How many ranges were looked at, by rule and verdict."""

    def with_ranges(self, looked_at: Iterable[tuple[int, str]]) -> KnownState:
        """Returns it with more ranges, each told by rule and verdict."""
        found = {rule: dict(verdicts) for rule, verdicts in self.ranges.items()}
        for rule, verdict in looked_at:
            of_rule = found.setdefault(rule, {})
            of_rule[verdict] = of_rule.get(verdict, 0) + 1
        return replace(self, ranges=found)

    def dump(self) -> dict[str, Any]:
        """Returns it as what JSON has."""
        told: dict[str, Any] = _KNOWN.dump_python(replace(self, version=VERSION), mode="json")
        return told

    @staticmethod
    def load(told: str) -> KnownState:
        """Reads what `dump` has returned.

        Raises:
            ValueError: The text is incomplete, because the job died while it was written.
        """
        return _KNOWN.validate_json(told)


_KNOWN: Final = TypeAdapter(KnownState)
