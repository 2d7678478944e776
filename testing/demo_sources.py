"""What `make demo` copies from a file into a managed topic by producers in a group (KIP-509), while three are killed.

The topic grows and shrinks meanwhile, and one of the proxies is killed. In the end each line must be there once.

One producer has the file, and one stands by. If two had shared what a third one had, both would fence it, and answers
that cross on their way look to the audit as if an epoch had fallen (EPOCH-LADDER).
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from rich.console import Console

from kordon.testing.folders import make_folder, remove_folder
from kordon.testing.managed_clients import create_managed, resize
from kordon.testing.tails import Tails
from kordon.testing.waiting import wait_until

TOPIC: Final = "copied"
GROUP: Final = "files"
PRODUCERS: Final = 2
KILLS: Final = (0.2, 0.5, 0.8)
"""When, as parts of all the time."""
_SESSION_MS: Final = 4_000
_LINES: Final = 15
_PAUSE_SECONDS: Final = 0.1
"""Between so many lines."""
_PATIENCE_SECONDS: Final = 90.0


class CopiedFiles:
    """A file that grows, and programs that copy it.

    Args:
        bootstraps: host:port of each proxy; all but the first may be killed.
        folder: An empty one.
        seconds: In which the programs are killed.
    """

    def __init__(self, bootstraps: Sequence[str], folder: Path, seconds: float) -> None:
        self._admin = create_managed(bootstraps[0], TOPIC, {"log_level": "0"})
        self.tails = Tails(bootstraps[0], GROUP, TOPIC, folder, files=1, session_ms=_SESSION_MS)
        for _ in range(PRODUCERS):
            self.tails.start()
        self._kills = [part * seconds for part in KILLS]
        self._over = threading.Event()
        self._written = threading.Event()
        self._closed = threading.Event()
        self._player = threading.Thread(target=self._play, name="files", daemon=True)
        self._player.start()

    def change(self, partitions: int) -> Any:
        """Begins to change the number of partitions; returns the future of it."""
        return resize(self._admin, TOPIC, partitions)

    def finish(self) -> Counter[bytes]:
        """Writes no more, waits until all is copied, and returns what is there.

        Raises:
            TimeoutError: It is not.
        """
        self._over.set()
        self._written.wait()
        wait_until("all lines are copied", self._is_over, _PATIENCE_SECONDS)
        return self.tails.copied()

    def close(self) -> None:
        """Ends all that is left."""
        self._over.set()
        self._closed.set()
        self._player.join()
        self.tails.stop()

    def _is_over(self) -> bool:
        return self.tails.copied().total() >= self.tails.lines.total()

    def _play(self) -> None:
        """Lets the file grow, and kills programs. The kernel kills those that a thread has started when it ends."""
        began = time.monotonic()
        kills = iter(self._kills)
        due = next(kills, None)
        while not self._over.wait(_PAUSE_SECONDS):
            self.tails.add(_LINES)
            if due is not None and time.monotonic() - began > due:
                self.tails.running.pop(0).kill()  # the oldest, which has the file
                self.tails.start()
                due = next(kills, None)
        self._written.set()
        self._closed.wait()


def wrong_lines(written: Mapping[bytes, int], copied: Mapping[bytes, int]) -> list[str]:
    """Holds what is in a topic against what was in the files; returns what is wrong."""
    lost, more = Counter(written), Counter(copied)
    lost.subtract(copied)
    more.subtract(written)
    found = {"lost": +lost, "doubled": +more}
    return [
        f"files: {lines.total()} lines were {what}, such as {min(lines)!r}" for what, lines in found.items() if lines
    ]


@contextmanager
def copied_files(bootstraps: Sequence[str], seconds: float) -> Generator[CopiedFiles]:
    """Runs the programs in a folder that is removed."""
    folder = make_folder("kordon-sources-")
    try:
        files = CopiedFiles(bootstraps, folder, seconds)
        try:
            yield files
        finally:
            files.close()
    finally:
        remove_folder(folder)


def show_copied(console: Console, files: CopiedFiles, sizes: str) -> list[str]:
    """Ends the copying, and prints what came of it; returns what is wrong."""
    try:
        copied = files.finish()
    except (KafkaException, AssertionError, TimeoutError) as error:
        return [f"files: {error}"]
    wrong = wrong_lines(files.tails.lines, copied)
    same = digest(copied) == digest(files.tails.lines)
    said = f"each line once, digest {digest(copied)}" if same and not wrong else "[red]WRONG[/]"
    console.print(
        f"a file → {PRODUCERS} SourceProducers, {len(KILLS)} times the one that copies killed → {TOPIC}:"
        f" {copied.total():,} lines over {sizes} partitions: {said}",
        highlight=False,
    )
    return wrong


def digest(lines: Counter[bytes]) -> str:
    """Returns a short checksum of lines, whatever their order."""
    return hashlib.sha256(b"\n".join(sorted(lines.elements()))).hexdigest()[:6]
