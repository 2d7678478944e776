"""Records `make try` as an animated picture of a terminal: `python -m kordon.testing.pages.recording docs/try.svg`.

Lines appear as they did, in the same order; long waits are shortened. The picture needs no script and no network.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from rich.console import Console

from kordon.testing.pages.try_it import try_it

COMMANDS: Final = ("grow 6", "kill 2", "shrink 3", "")
_COLUMNS: Final = 98
_FONT_PX: Final = 13
_CHARACTER_PX: Final = 7.83
_LINE_PX: Final = 18
_MARGIN_PX: Final = 16
_LONGEST_WAIT_SECONDS: Final = 2.5
"""Of what happened in silence; more is cut."""
_LINE_SECONDS: Final = 0.12
_STAY_SECONDS: Final = 12.0
"""For which the whole is shown before it begins anew."""
_COLOURS: Final = (("Kafka alone  ", "#ff7b72"), ("through Kordon  ", "#7ee787"), ("try> ", "#79c0ff"))


class TimedLines:
    """A file that notes when each line came."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.lines: list[tuple[float, str]] = []
        self._begun = ""

    def write(self, text: str) -> int:
        """Takes text, of whole lines or parts."""
        *whole, self._begun = (self._begun + text).split("\n")
        now = time.monotonic()
        self.lines += [(now, line.rstrip()) for line in whole]
        return len(text)

    def flush(self) -> None:
        """Does nothing: what was written is kept."""


def shortened(lines: Sequence[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Yields lines with the seconds from the first on, long waits cut and short ones made visible."""
    at = 0.0
    for number, (when, line) in enumerate(lines):
        if number:
            at += min(max(when - lines[number - 1][0], _LINE_SECONDS), _LONGEST_WAIT_SECONDS)
        yield at, line


def drawing(lines: Sequence[tuple[float, str]]) -> str:
    """Returns an SVG in which lines appear at their times, again and again."""
    whole = lines[-1][0] + _STAY_SECONDS
    width, height = _COLUMNS * _CHARACTER_PX + 2 * _MARGIN_PX, len(lines) * _LINE_PX + 2 * _MARGIN_PX
    rules, texts = [], []
    for number, (at, line) in enumerate(lines):
        part = at / whole * 100
        rules.append(f"@keyframes l{number}{{0%,{part:.2f}%{{opacity:0}}{part + 0.01:.2f}%,100%{{opacity:1}}}}")
        rules.append(f".l{number}{{animation:l{number} {whole:.1f}s infinite}}")
        colour = next((each for begin, each in _COLOURS if line.lstrip().startswith(begin)), "#e6edf3")
        y = _MARGIN_PX + (number + 0.75) * _LINE_PX
        texts.append(f'<text class="l{number}" x="{_MARGIN_PX}" y="{y:g}" fill="{colour}">{escape(line)}</text>')
    still = "@media (prefers-reduced-motion: reduce){text{animation:none!important}}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img"'
            ' aria-label="make try in a terminal">',
            f"<style>text{{font:{_FONT_PX}px ui-monospace,Menlo,Consolas,monospace;white-space:pre}}",
            *rules,
            f"{still}</style>",
            f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#0d1117"/>',
            *texts,
            "</svg>\n",
        ]
    )


def main() -> int:
    """Records it; returns 0 when all records were read once and in order."""
    file = TimedLines()
    console = Console(file=file, width=_COLUMNS, force_terminal=False)  # type: ignore[arg-type] # it writes and flushes
    commands = iter(COMMANDS)

    def next_command() -> str | None:
        time.sleep(1.0)  # the traffic goes on
        command = next(commands, None)
        console.print(f"try> {'quit' if command is None else command}", highlight=False)
        return command

    console.print("$ make try", highlight=False)
    order = try_it(console, next_command)
    Path(sys.argv[1]).write_text(drawing(list(shortened(file.lines))))
    return 0 if order.holds else 1


if __name__ == "__main__":
    sys.exit(main())
