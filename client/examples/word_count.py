"""Counts words with state in memory, while the partitions of its topic come and go.

Run as many of these as you like, on one topic whose records have a word as their key:

    python -m kordon.client.examples.word_count --bootstrap kordon:9092 --topic words --store counts.db
    kafka-topics.sh --bootstrap-server kordon:9092 --alter --topic words --partitions 6

Each word is counted by the one that has its partition, in memory. `Store` stands for what all can reach, here a SQLite
file. Counts go there when keys or partitions may go to another counter, and once a second; with them goes the offset up
to which they count, in one transaction. So each record is counted once, though a counter be killed: whoever gets its
partitions begins where the store says.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sqlite3
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.structs import TopicPartition

from kordon.client import OrderedConsumer, PartitionKeyRebalanceListener

_FLUSH_SECONDS: Final = 1.0
_TABLES: Final = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS counts (word TEXT PRIMARY KEY, count INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS offsets (part INTEGER PRIMARY KEY, next INTEGER NOT NULL);
"""


class Store:
    """Counts by word, and per partition the offset up to which records are in them.

    Args:
        path: The path of the SQLite file, which is created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._db.executescript(_TABLES)

    def count(self, word: str) -> int:
        """Returns a word's count."""
        row = self._db.execute("SELECT count FROM counts WHERE word = ?", (word,)).fetchone()
        return row[0] if row else 0

    def counts(self) -> dict[str, int]:
        """Returns all counts by word."""
        return dict(self._db.execute("SELECT word, count FROM counts"))

    def offset(self, partition: int) -> int | None:
        """Returns where to continue in a partition; None: nobody has read it yet."""
        row = self._db.execute("SELECT next FROM offsets WHERE part = ?", (partition,)).fetchone()
        return row[0] if row else None

    def write(self, counts: Mapping[str, int], offsets: Mapping[int, int]) -> None:
        """Writes counts, and up to where they count, or nothing of it."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany("REPLACE INTO counts VALUES (?, ?)", counts.items())
            self._db.executemany("REPLACE INTO offsets VALUES (?, ?)", offsets.items())
        except sqlite3.Error:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Closes the file."""
        self._db.close()


class WordCount(ConsumerRebalanceListener, PartitionKeyRebalanceListener):
    """One counter of a group.

    Args:
        bootstrap: `host:port` of a Kordon.
        topic: The topic whose keys are counted.
        store: The store that all counters of the group share.
        group: The group that shares the work.
        options: Further ones of the consumer.
    """

    def __init__(self, bootstrap: str, topic: str, store: Store, group: str = "word-count", **options: Any) -> None:
        self._topic = topic
        self._store = store
        self._counts: dict[str, int] = {}
        """What it has counted or looked up."""
        self._fresh: dict[int, set[str]] = {}
        """By partition, words that it has counted since they were last written to the store."""
        self._offsets: dict[int, int] = {}
        self._consumer = OrderedConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,  # the store knows better
            group_id=group,
            **options,
        )

    async def run(self, stopped: asyncio.Event) -> None:
        """Counts until it is stopped."""
        self._consumer.subscribe([self._topic], listener=self, key_listener=self)
        try:
            await self._consumer.start()
            flushed = time.monotonic()
            while not stopped.is_set():
                for records in (await self._consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        self._take(record.partition, record.offset, (record.key or b"").decode())
                if time.monotonic() - flushed > _FLUSH_SECONDS:
                    self._flush(list(self._fresh))
                    flushed = time.monotonic()
        finally:
            await self._consumer.stop()

    def on_partition_key_maybe_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Others may count these words next: writes what it has."""
        self._flush(tp.partition for tp in revoked)

    def on_partition_key_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """It may count words now that others have counted: what is in the store counts."""
        del assigned
        self._forget()

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """What it has counted was written: that comes first (`on_partition_key_maybe_revoked`)."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Continues where the store says, which is behind all that is counted in it."""
        self._fresh.clear()
        self._forget()
        for tp in assigned:
            offset = self._store.offset(tp.partition)
            if offset is not None:
                self._consumer.seek(tp, offset)

    def _take(self, partition: int, offset: int, word: str) -> None:
        if word not in self._counts:
            self._counts[word] = self._store.count(word)
        self._counts[word] += 1
        self._fresh.setdefault(partition, set()).add(word)
        self._offsets[partition] = offset + 1

    def _flush(self, partitions: Iterable[int]) -> None:
        flushed = [partition for partition in partitions if partition in self._fresh]
        words = {word for partition in flushed for word in self._fresh[partition]}
        offsets = {partition: self._offsets[partition] for partition in flushed}
        if flushed:
            self._store.write({word: self._counts[word] for word in words}, offsets)
        for partition in flushed:
            del self._fresh[partition]

    def _forget(self) -> None:
        """Drops what is in the store, so that it is looked up there again."""
        fresh = {word for words in self._fresh.values() for word in words}
        self._counts = {word: count for word, count in self._counts.items() if word in fresh}


async def _main(arguments: argparse.Namespace) -> None:
    store, stopped = Store(arguments.store), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await WordCount(arguments.bootstrap, arguments.topic, store, arguments.group).run(stopped)
    for word, count in sorted(store.counts().items()):
        sys.stdout.write(f"{count:8} {word}\n")
    store.close()


def main() -> None:
    """Runs one counter until it is interrupted; then shows what is in the store."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bootstrap", required=True, help="host:port of a Kordon")
    parser.add_argument("--topic", required=True, help="its records have a word as their key")
    parser.add_argument("--store", required=True, type=Path, help="a SQLite file, the same for all")
    parser.add_argument("--group", default="word-count", help="of all that share the work")
    logging.basicConfig(level=logging.WARNING)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
