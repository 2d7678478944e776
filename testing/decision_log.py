"""What stands in the decision log, read by a plain consumer or from files, and what every log must hold to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kordon.codecs.decision import Entry, Kind
from kordon.testing.managed_clients import read_to_ends

TOPIC: Final = "__kordon.decisions"


def read_topic(bootstrap: str) -> list[Entry]:
    """Reads all that stands in the topic now, partition by partition, in the order of their offsets.

    Args:
        bootstrap: Of the brokers: clients of Kordon do not see the topic.
    """
    messages = read_to_ends({"bootstrap.servers": bootstrap}, TOPIC)
    entries: list[Entry] = []
    for message in sorted(messages, key=lambda message: message.partition() or 0):
        entry = Entry.load(message.value() or b"")
        assert message.key() == entry.worker.encode()
        entries.append(entry)
    return entries


def read_files(folder: Path) -> list[Entry]:
    return [
        Entry.load(line) for path in sorted(folder.glob("decisions-*.jsonl")) for line in path.read_bytes().splitlines()
    ]


def by_worker(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Sorts entries by who wrote them; one that stands twice counts once."""
    found: dict[str, dict[int, Entry]] = defaultdict(dict)
    for entry in entries:
        twin = found[entry.worker].setdefault(entry.number, entry)
        assert twin == entry, f"two decisions have the number {entry.number} of {entry.worker}"
    return {worker: list(rows.values()) for worker, rows in found.items()}


def missing(entries: Iterable[Entry]) -> set[int]:
    """Returns the numbers that one worker's log lacks and no GAP names."""
    rows = list(entries)
    numbers = {entry.number for entry in rows}
    for entry in rows:
        gap = entry.decision
        if gap.kind is Kind.GAP:
            assert gap.first_number is not None
            assert gap.last_number is not None
            numbers.update(range(gap.first_number, gap.last_number + 1))
    return set(range(max(numbers) + 1)) - numbers
