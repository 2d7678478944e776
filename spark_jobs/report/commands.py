"""Commands for a shell that show what a finding rests on: its decisions, and the records at its offsets.

Names of topics and workers come from others. So each word is quoted, whatever stands in it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kordon.codecs.shown_text import shown
from kordon.spark_jobs.report.tables import Row, Tables

MOST_RECORDS: Final = 1000
"""A console consumer is to show at most so many."""
_SECONDS: Final = 10
"""A console consumer ends when nothing has come for so long: offsets may be empty, and records gone."""
_PRINTED: Final = ("timestamp", "offset", "key")
_NAME: Final = re.compile(r"(.+):[0-9]{1,19}", re.DOTALL)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9@%+=:,./_-]")
_CLOCK_MS: Final = 60_000
"""The clock of a worker may have been set back by so much before it wrote a decision."""
_COLUMNS: Final = 100
_NEXT_LINE: Final = " \\\n    "


def quoted(word: str) -> str:
    r"""Quotes a word for bash and zsh; characters that a page cannot show as they are become bytes by number.

    >>> print(quoted("orders"), quoted("it's"), quoted("a\nb'"))
    orders 'it'"'"'s' $'a\x0ab\x27'
    """
    return shlex.quote(word) if shown(word) == word else f"$'{_UNSAFE.sub(_as_bytes, word)}'"


def _as_bytes(found: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass"))


def _line(*parts: Sequence[str]) -> str:
    """Joins the parts of a command, of which none is torn apart, to several lines if it is long."""
    lines = [""]
    for part in parts:
        text = " ".join(map(quoted, part))
        if lines[-1] and len(lines[-1]) + len(text) >= _COLUMNS:
            lines.append(text)
        elif text:
            lines[-1] += f" {text}" if lines[-1] else text
    return _NEXT_LINE.join(lines)


class Commands:
    """Makes the commands of an audit."""

    def __init__(self, tables: Tables) -> None:
        about: Mapping[str, Any] = tables.about
        self._bootstrap = str(about.get("bootstrap") or "")
        self._folder = str(about.get("files") or "")
        self._began = {row["worker"]: row["first_ms"] for row in tables.workers}
        self._times = {f"{row['worker']}:{row['number']}": row["at_ms"] for row in tables.proofs}

    def show(self, names: Sequence[str]) -> str:
        """Returns the command that shows decisions; empty where they were read is not known, or none is named.

        Args:
            names: The names of decisions as findings have them, `worker:number`.
        """
        told = [name for name in names if _NAME.fullmatch(name)]
        if not told or not (self._folder or self._bootstrap):
            return ""
        place = [["--files", self._folder]] if self._folder else [["--bootstrap", self._bootstrap], self._since(told)]
        end_of_options = ["--"] if any(name.startswith("-") for name in told) else []
        return _line(["kordon", "decisions", "show"], *place, end_of_options, *([name] for name in told))

    def _since(self, names: Iterable[str]) -> list[str]:
        """Spares a search what was written before the decisions, if it is known when that was."""
        times = [self._times.get(name) or self._began.get(name.rpartition(":")[0]) for name in names]
        known = [at for at in times if at is not None]
        if len(known) < len(times):
            return []
        since = datetime.fromtimestamp(max(0, min(known) - _CLOCK_MS) // 1000, UTC)
        return ["--since", f"{since:%Y-%m-%dT%H:%M:%SZ}"]

    def read(self, finding: Row) -> str:
        """Returns the command of Kafka that shows the records of a finding; empty if it names none, or no broker is."""
        topic, partition, first = finding["topic"], finding["partition"], finding["first_offset"]
        if not self._bootstrap or topic is None or partition is None or first is None or first < 0:
            return ""
        count = max(1, min(MOST_RECORDS, records(finding)))
        numbers = {"partition": partition, "offset": first, "max-messages": count, "timeout-ms": 1000 * _SECONDS}
        options = [[f"--{name}", str(number)] for name, number in numbers.items()]
        printed = [["--property", f"print.{name}=true"] for name in _PRINTED]
        place = [["--bootstrap-server", self._bootstrap], [f"--topic={topic}"]]
        return _line(["kafka-console-consumer.sh"], *place, *options, *printed)


def records(finding: Row) -> int:
    """Returns how many offsets a finding names."""
    first, last = finding["first_offset"], finding["last_offset"]
    return 0 if first is None else 1 if last is None else int(last - first + 1)
