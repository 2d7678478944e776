"""What stands in the decision log, read by a plain consumer or from files, and what every log must hold to."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from kordon.codecs.decision import Entry, Kind

TOPIC: Final = "__kordon.decisions"
_PATIENCE_SECONDS: Final = 60.0


def read_topic(bootstrap: str) -> list[Entry]:
    """Reads all that stands in the topic now, partition by partition, in the order of their offsets.

    Args:
        bootstrap: Of the brokers: clients of Kordon do not see the topic.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions
        entries: list[Entry] = []
        for number in partitions:
            entries += _read_partition(consumer, number)
        return entries
    finally:
        consumer.close()


def _read_partition(consumer: Consumer, number: int) -> Iterable[Entry]:
    first, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=60)
    consumer.assign([TopicPartition(TOPIC, number, first)])
    deadline = time.monotonic() + _PATIENCE_SECONDS
    position = first
    while position < end:
        assert time.monotonic() < deadline, f"partition {number} could not be read to {end}, but to {position}"
        for message in consumer.consume(5_000, 0.5):
            assert message.error() is None, message.error()
            entry = Entry.load(message.value() or b"")
            assert message.key() == entry.worker.encode()
            position = (message.offset() or 0) + 1
            yield entry


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
