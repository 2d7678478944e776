"""Points in time as people write them on a command line."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

_AGO: Final = re.compile(r"(\d+)\s*(s|m|h|d)")
_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment_ms(text: str, now_ms: int) -> int:
    """Reads a point in time: so long ago, or as ISO 8601 has it, in local time if it names no zone.

    >>> moment_ms("2m", 1_000_000), moment_ms("1970-01-01T00:00:01.500Z", 0)
    (880000, 1500)

    Returns:
        Milliseconds since 1970.

    Raises:
        ValueError: It is neither; the message says what to write.
    """
    if ago := _AGO.fullmatch(text):
        return now_ms - int(ago[1]) * _MS[ago[2]]
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is not a time: write 10m, 2h or 2026-11-22T09:30") from error
