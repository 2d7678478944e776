"""How long changes of partitions wait for leases of proxies that are missing, by what controllers say in their logs.

A test that is not about such a wait takes half a minute longer by it, and nobody sees why.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

_SAID: Final = b'"change_waits"'


class LeaseWaits:
    """Sums what the logs that it follows say."""

    def __init__(self) -> None:
        self._read: dict[Path, int] = {}
        self._seconds = 0.0

    def follow(self, log_file: Path) -> None:
        """Takes in all that this log says; it may be told again."""
        self._read.setdefault(log_file, 0)

    def take(self) -> float:
        """Returns the seconds since it was asked last."""
        self._read = {log_file: at for log_file, at in self._read.items() if log_file.exists()}
        for log_file in list(self._read):
            self.look(log_file)
        taken, self._seconds = self._seconds, 0.0
        return taken

    def look(self, log_file: Path) -> None:
        """Takes in what a log that is followed has said so far; for logs that are removed before `take`."""
        at = self._read[log_file]
        with log_file.open("rb") as log:
            log.seek(at)
            said = log.read()
        whole = said[: said.rfind(b"\n") + 1]
        self._read[log_file] = at + len(whole)
        lines = (json.loads(line) for line in whole.splitlines() if _SAID in line)
        self._seconds += sum(float(line["seconds"]) for line in lines if line["event"] == "change_waits")


LEASE_WAITS: Final = LeaseWaits()
"""Of all Kordons that this process starts."""
