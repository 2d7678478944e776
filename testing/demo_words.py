"""A part of `make demo`: the SDK's word count, whose counters keep counts in memory while the topic grows.

Three counters share a managed topic, which goes from 3 partitions to 6 and back to 4; one of them is killed. What they
have in memory is flushed and loaded as keys move from one to another, and in the end each word is counted once.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]
from rich.console import Console

from kordon.client.examples.word_count import Store
from kordon.testing.folders import make_folder, remove_folder
from kordon.testing.java_process import DIES_WITH_PARENT
from kordon.testing.managed_clients import create_managed, resize
from kordon.testing.waiting import wait_until

TOPIC: Final = "words"
WORDS: Final = tuple(f"word-{number}" for number in range(60))
RESIZE_TO: Final = (6, 4)
COUNTERS: Final = 3
PATIENCE_SECONDS: Final = 90.0
_PHASE_SECONDS: Final = 3.0
"""For which words are written at each number of partitions, at least."""


def count_words(console: Console, bootstrap: str) -> list[str]:
    """Runs it.

    Args:
        bootstrap: host:port of a Kordon.

    Returns:
        What was wrong.
    """
    folder = make_folder("kordon-words-")
    began = time.monotonic()
    try:
        with console.status("words are counted while their topic grows and shrinks"):
            written, counted = _count(bootstrap, folder / "counts.db")
    except (KafkaException, AssertionError) as error:
        return [f"words: {error}"]
    finally:
        remove_folder(folder)
    sizes = " → ".join(map(str, (3, *RESIZE_TO)))
    console.print(
        f"{TOPIC}: {written.total():,} words written, {sum(counted.values()):,} counted by {COUNTERS} counters of the"
        f" SDK over {sizes} partitions, one of them killed: {time.monotonic() - began:.1f} s",
        highlight=False,
    )
    return [] if counted == dict(written) else ["words: they were not counted once each"]


def _count(bootstrap: str, path: Path) -> tuple[Counter[str], dict[str, int]]:
    """Writes words and has them counted; returns how often each was written, and counted."""
    admin, store, written = create_managed(bootstrap, TOPIC, {"log_level": "0"}), Store(path), Counter[str]()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2})
    try:
        with _counters(bootstrap, path) as counters:
            for partitions in RESIZE_TO:
                _write_while_resized(producer, admin, partitions, written)
                wait_until("something is counted", lambda: bool(store.counts()), PATIENCE_SECONDS)
                counters[0].kill()
            wait_until("all is counted", lambda: sum(store.counts().values()) >= written.total(), PATIENCE_SECONDS)
            return written, store.counts()
    finally:
        store.close()


def _write_while_resized(producer: Producer, admin: AdminClient, partitions: int, written: Counter[str]) -> None:
    chance = random.Random(partitions)  # noqa: S311 - chance that can be repeated
    until, changed = time.monotonic() + _PHASE_SECONDS, resize(admin, TOPIC, partitions)
    while not changed.done() or time.monotonic() < until:
        for word in chance.choices(WORDS, k=50):
            producer.produce(TOPIC, key=word)
            written[word] += 1
        producer.poll(0.02)
    changed.result()
    producer.flush(PATIENCE_SECONDS)


@contextmanager
def _counters(bootstrap: str, path: Path) -> Generator[list[subprocess.Popen[Any]]]:
    """Runs counters as a user would, each a process; ends them all."""
    what = ["--bootstrap", bootstrap, "--topic", TOPIC, "--store", str(path)]
    command = [*DIES_WITH_PARENT, sys.executable, "-m", "kordon.client.examples.word_count", *what]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    counters = [subprocess.Popen(command, **quiet) for _ in range(COUNTERS)]
    try:
        yield counters
    finally:
        for each in counters:
            each.kill()
            each.wait()
