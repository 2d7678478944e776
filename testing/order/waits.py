"""How long records waited for each group: from a record's acknowledgement to when the group first got it.

Each action of a run begins a phase, which lasts until the next one begins. A record belongs to the phase in which it
was acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kordon.testing.order.history import Acknowledged, Done, Processed, actions, reads, writes

BEFORE: Final = "before"
"""The first phase: clients begin their work, and groups catch up with what was written until they had joined."""


@dataclass(slots=True)
class Waits:
    """How long the records of a phase waited for a group, in microseconds; a record that came at once waited for 0."""

    all_us: list[int] = field(default_factory=list[int])

    @property
    def longest_us(self) -> int:
        return max(self.all_us, default=0)

    @property
    def p99_us(self) -> int:
        return sorted(self.all_us)[len(self.all_us) * 99 // 100] if self.all_us else 0


def waits_of(folder: Path) -> Mapping[str, Mapping[str, Waits]]:
    """Returns by group and phase how long the records of a run waited that the group has got; raises HistoryError."""
    done = sorted(actions(folder))
    acknowledged = {
        (event.key, event.sequence): event.time_us for _, event in writes(folder) if isinstance(event, Acknowledged)
    }
    found: dict[str, Mapping[str, Waits]] = {}
    for group, events in reads(folder).items():
        phases = found[group] = {name: Waits() for name in (BEFORE, *(each.what for each in done))}
        unseen = dict(acknowledged)
        for _, event in events:
            since = unseen.pop((event.key, event.sequence), None) if isinstance(event, Processed) else None
            if since is not None:
                phases[_phase(done, since)].all_us.append(max(event.time_us - since, 0))
    return found


def longest_us(waits: Mapping[str, Mapping[str, Waits]]) -> int:
    """Returns how long any record of any group waited at most, but for the first phase."""
    return max(each.longest_us for phases in waits.values() for name, each in phases.items() if name != BEFORE)


def _phase(done: Sequence[Done], time_us: int) -> str:
    return next((each.what for each in reversed(done) if each.began_us <= time_us), BEFORE)
