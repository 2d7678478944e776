"""The word count of `make demo` by Kafka Streams with exactly-once v2, from one managed topic into another.

Both topics grow and shrink meanwhile, and one of the proxies is killed. Streams writes every count of a word, so in the
end each word must have the counts 1, 2, 3 … once each and in this order.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]
from rich.console import Console

from kordon.testing.client_programs import streams_word_count
from kordon.testing.folders import make_folder, remove_folder
from kordon.testing.java_process import DIES_WITH_PARENT
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, read, resize, watermarks
from kordon.testing.waiting import wait_until

SOURCE: Final = "lines"
SINK: Final = "counts"
WORDS: Final = tuple(f"word-{number}" for number in range(60))
GUARANTEE: Final = "exactly_once_v2"
_TRANSACTION_MS: Final = "60000"
"""Of Streams, whose default is 10 s: the first transaction of a topic may wait for a lease, which lasts 20 s."""
_CHANGE_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 120.0
_PAUSE_SECONDS: Final = 0.02


class ExactCount:
    """Words that are written, and Streams that counts them.

    Args:
        bootstraps: host:port of each proxy; all but the first may be killed.
        folder: An empty one.
    """

    def __init__(self, bootstraps: Sequence[str], folder: Path) -> None:
        self.written: Counter[str] = Counter()
        self._bootstrap = bootstraps[0]
        self._admin: AdminClient = create_managed(self._bootstrap, SOURCE, {"log_level": "0"})
        create_managed(self._bootstrap, SINK, {"log_level": "0"})
        self._errors = folder / "errors"
        # the proxy that is to be killed is named first, though Java asks whichever it likes
        told = (",".join(reversed(bootstraps)), "word-count", SOURCE, SINK, str(folder / "state"), GUARANTEE)
        with self._errors.open("wb") as sink:
            command = [*DIES_WITH_PARENT, *streams_word_count(), *told, _TRANSACTION_MS]
            self._streams = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sink, stderr=sink)
        self._over = threading.Event()
        self._writer = threading.Thread(target=self._write, name="words", daemon=True)
        self._writer.start()

    def change(self, partitions: int) -> None:
        """Changes the number of partitions of both topics; raises KafkaException."""
        for each in [resize(self._admin, topic, partitions) for topic in (SOURCE, SINK)]:
            each.result(_CHANGE_SECONDS)

    def finish(self) -> list[str]:
        """Writes no more, and waits until all is counted; returns what is wrong."""
        self._over.set()
        self._writer.join()
        settings = {"bootstrap.servers": self._bootstrap, "isolation.level": "read_committed", "log_level": 0}
        wait_until("all words are counted", lambda: self._ends() >= self.written.total(), _PATIENCE_SECONDS)
        counts: defaultdict[str, list[int]] = defaultdict(list)
        for each in read(settings, SINK, self.written.total()):
            counts[(each.key() or b"").decode()].append(int(each.value() or b"-1"))
        self._streams.communicate(timeout=_PATIENCE_SECONDS)
        return wrong_counts(self.written, counts)

    def close(self) -> None:
        """Ends all that is left."""
        self._over.set()
        self._streams.kill()
        self._streams.communicate()
        self._writer.join()

    def _ends(self) -> int:
        """Returns how many offsets Streams has used; raises AssertionError if it has ended."""
        if self._streams.poll() is not None:
            raise AssertionError(f"Streams ended:\n{self._errors.read_text(errors='replace')[-1500:]}")
        return sum(end for _, end in watermarks(self._bootstrap, SINK, range(VIRTUAL_PARTITIONS)).values())

    def _write(self) -> None:
        chance = random.Random(1)  # noqa: S311 - chance that can be repeated
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 2})
        while not self._over.is_set():
            for word in chance.choices(WORDS, k=2):
                producer.produce(SOURCE, word, word)
                self.written[word] += 1
            producer.poll(_PAUSE_SECONDS)
            time.sleep(_PAUSE_SECONDS)
        producer.flush(_PATIENCE_SECONDS)


def wrong_counts(written: Mapping[str, int], counts: Mapping[str, Sequence[int]]) -> list[str]:
    """Holds the counts that Streams has written against how often each word was; returns what is wrong.

    Args:
        counts: Of each word, in the order of their offsets.
    """
    return [
        f"exactly once: {word} was written {times} times, and its counts are {list(counts.get(word, ()))[:100]}"
        for word, times in written.items()
        if list(counts.get(word, ())) != list(range(1, times + 1))
    ] + [f"exactly once: {word} was counted, and never written" for word in sorted(counts.keys() - written.keys())]


@contextmanager
def exact_count(bootstraps: Sequence[str]) -> Generator[ExactCount]:
    """Runs the word count in a folder that is removed."""
    folder = make_folder("kordon-exactly-once-")
    try:
        count = ExactCount(bootstraps, folder)
        try:
            yield count
        finally:
            count.close()
    finally:
        remove_folder(folder)


def show_counts(console: Console, count: ExactCount, sizes: str) -> list[str]:
    """Ends the word count, and prints what came of it; returns what is wrong."""
    try:
        wrong = count.finish()
    except (KafkaException, AssertionError, subprocess.TimeoutExpired) as error:
        return [f"exactly once: {error}"]
    said = "each count of each word once, in its order" if not wrong else "[red]WRONG[/]"
    console.print(
        f"{SOURCE} → Kafka Streams ({GUARANTEE}) → {SINK}: {count.written.total():,} words over {sizes} partitions,"
        f" one of two proxies killed: {said}",
        highlight=False,
    )
    return wrong
