"""Text of others, made fit for a log line, a terminal and a page.

Client ids, group names and topic names come from clients. A terminal obeys escape sequences that stand in them, a line
end in them forges a second line, and marks of writing direction turn round what stands behind them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

MOST_CHARACTERS: Final = 256
"""Characters of a text of others that are shown."""
MOST_ENTRIES: Final = 32
"""Entries of a collection that are shown."""

_COMMANDS: Final = "\x00-\x1f\x7f-\x9f"
"""The control characters C0 (with ESC), DEL and C1."""
_UNSEEN: Final = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""Ends of lines and directions as Unicode has them, and halves of characters, which no stream can take."""
_ESCAPED: Final = re.compile(f"[{_COMMANDS}{_UNSEEN}]")
_ESCAPED_IN_LINES: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_UNSEEN}]")


def shown(text: str, *, keeps_lines: bool = False) -> str:
    r"""Escapes what a terminal would obey or could not show.

    The escapes are those of JSON, so JSON that is escaped so still says the same.

    Args:
        keeps_lines: Whether line ends and tabs stay, as in a page or in a text of Kordon's own.

    >>> print(shown("app\x1b[2K\nforged"))
    app\u001b[2K\u000aforged
    """
    pattern = _ESCAPED_IN_LINES if keeps_lines else _ESCAPED
    return pattern.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """Cuts a text that is too long, and says how much is missing.

    >>> cut("orders-and-payments", 6)
    'orders… (13 more characters)'
    """
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


def shown_facts(value: Any, most: int | None = None) -> Any:
    """Escapes all text in a value that JSON can take.

    Args:
        value: Text, a number, or lists and mappings of such; it is not changed.
        most: Texts are cut to so many characters, collections to `MOST_ENTRIES`; None: nothing is cut.

    Returns:
        A value of the same shape; values of other types stay as they are.
    """
    if isinstance(value, str):
        return shown(value if most is None else cut(value, most))
    if isinstance(value, Mapping):
        kept = value.items() if most is None else islice(value.items(), MOST_ENTRIES)
        facts = {shown_facts(key, most): shown_facts(entry, most) for key, entry in kept}
        return facts | _left_out(len(value), most)
    if isinstance(value, list | tuple | set | frozenset):
        entries = [shown_facts(entry, most) for entry in (value if most is None else islice(value, MOST_ENTRIES))]
        return [*entries, *_left_out(len(value), most).values()]
    return value


def _left_out(count: int, most: int | None) -> dict[str, str]:
    return {"…": f"{count - MOST_ENTRIES:,} more"} if most is not None and count > MOST_ENTRIES else {}
