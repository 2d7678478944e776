"""What a checker found, counted, with examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

WRITES: Final = "writes"
"""Stands where a group's name would, for what producers' histories alone show."""
EXAMPLES: Final = 5
"""Kept of each anomaly in each place."""


class Anomaly(StrEnum):
    """Breaches of a topic's promises; `checker.py` defines each. The names are those of Jepsen's Kafka tests."""

    LOST_WRITE = "lost-write"
    UNSEEN = "unseen"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    POLL_SKIP = "poll-skip"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    INVERSION = "inversion"
    """Not Jepsen's: two keys of one producer stand in one partition in another order than they were sent."""
    G1A = "G1a"
    ABORTED_READ = "aborted-read"
    """G1a, too: of a transaction. `transactions.py` defines this one and the next two."""
    ATOMICITY = "atomicity"
    DISAGREEMENT = "disagreement"
    UNFLUSHED = "unflushed"
    """Not Jepsen's, nor the next: of callbacks around a key's move (`handovers.py`)."""
    UNLOADED = "unloaded"


@dataclass(frozen=True, slots=True)
class Example:
    """One breach.

    Attributes:
        partition: Where it was met, or None.
        offset: Where it was met, or None.
        time_us: When, or None for what is missing.
        told: The rest, as a sentence.
    """

    key: str
    sequence: int
    partition: int | None
    offset: int | None
    time_us: int | None
    told: str


class Findings:
    """Counts of each anomaly in each group, or in the writes, with the first examples."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[Anomaly, str]] = Counter()
        self.examples: dict[tuple[Anomaly, str], list[Example]] = {}

    def add(self, anomaly: Anomaly, where: str, example: Example) -> None:
        self.counts[anomaly, where] += 1
        kept = self.examples.setdefault((anomaly, where), [])
        if len(kept) < EXAMPLES:
            kept.append(example)

    def forget(self, where: str) -> None:
        """Takes back what was found in one place."""
        for found in [each for each in self.counts if each[1] == where]:
            del self.counts[found]
            del self.examples[found]

    def __str__(self) -> str:
        """Returns a line for each anomaly and place, with how often it was found, and a line for each example."""
        rows = sorted(self.counts.items())
        return "\n".join(
            "\n  ".join([f"{anomaly} {where}: {count}", *map(str, self.examples[anomaly, where])])
            for (anomaly, where), count in rows
        )

    def found(self) -> set[Anomaly]:
        return {anomaly for anomaly, _ in self.counts}


@dataclass(slots=True)
class Account:
    """How much was looked at, of the writes or of one group: a check of nothing finds nothing."""

    records: int = 0
    """Acknowledged, or processed by the group at least once."""
    failed: int = 0
    """Sends without acknowledgement."""
    again: int = 0
    """Deliveries again that are allowed: after a rebalance, from the last commit on."""
    stints: int = 0
    """Times a member was given a partition."""
    commits: int = 0
    torn: int = 0
    """Members that began anew because Kafka's own client gave up (docs/limits.md)."""
    flushes: int = 0
    """Calls of `on_partition_key_maybe_revoked` that have returned."""
    loads: int = 0
    """Calls of `on_partition_key_assigned`."""
    moved: int = 0
    """Times a key's next record came to another member in another partition."""

    @property
    def has_callbacks(self) -> bool:
        """Whether callbacks around a key's move could be judged."""
        return bool(self.flushes or self.loads)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a check."""

    findings: Findings
    accounts: Mapping[str, Account] = field(default_factory=dict[str, Account])
    """By group, and of the writes."""

    @property
    def passed(self) -> bool:
        return not self.findings.counts

    def count(self, anomaly: Anomaly, where: str | None = None) -> int:
        """Returns how often an anomaly was found, in one place or over all."""
        counts = self.findings.counts
        return sum(n for (each, place), n in counts.items() if each is anomaly and where in (None, place))

    def with_other(self, other: Verdict) -> Verdict:
        """Returns this verdict and another one of the same writes: of other groups, by other positions."""
        self.findings.counts.update(other.findings.counts)
        for place, examples in other.findings.examples.items():
            self.findings.examples.setdefault(place, []).extend(examples)
        return Verdict(self.findings, {**other.accounts, **self.accounts})
