"""Numbers, times and places as a person reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from kordon.codecs.counted import counted

_UNITS: Final = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))

_CLOCKS: Final = (
    (3600, (60, 1, "min", "s")),
    (86_400, (3600, 60, "h", "min")),
    (float("inf"), (86_400, 3600, "d", "h")),
)


def whole(number: float | None) -> str:
    """Writes a count.

    >>> whole(1234567), whole(None)
    ('1,234,567', '-')
    """
    return "-" if number is None else f"{number:,.0f}"


def short(number: float) -> str:
    """Writes a number into little room.

    >>> short(0), short(0.25), short(950), short(1500), short(20_000), short(3_400_000)
    ('0', '0.25', '950', '1.5 k', '20 k', '3.4 M')
    """
    for size, unit in _UNITS:
        if abs(number) >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def size(count: float | None) -> str:
    """Writes a number of bytes.

    >>> size(512), size(2_500_000), size(None)
    ('512 B', '2.5 MB', '-')
    """
    if count is None:
        return "-"
    return f"{short(count)}B" if count >= 1000 else f"{count:.0f} B"


def duration(ms: float | None) -> str:
    """Writes how long something took.

    >>> duration(7), duration(1500), duration(90_000), duration(3_700_000), duration(200_000_000), duration(None)
    ('7 ms', '1.5 s', '1 min 30 s', '1 h 1 min', '2 d 7 h', '-')
    """
    if ms is None:
        return "-"
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.3g} s"
    large, small, big, little = next(unit for most, unit in _CLOCKS if seconds < most)
    first, rest = divmod(int(seconds), large)
    return f"{first} {big}" + (f" {rest // small} {little}" if rest // small else "")


def moment(ms: float | None, *, parts: bool = False) -> str:
    """Writes a point in time, in UTC; with `parts`, down to the millisecond.

    >>> moment(1_760_000_000_123), moment(1_760_000_000_123, parts=True), moment(None)
    ('2025-10-09 08:53:20', '2025-10-09 08:53:20.123', '-')
    """
    if ms is None:
        return "-"
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a clock, or a client, may say anything
        return f"{ms:.0f} ms"
    return at.strftime("%Y-%m-%d %H:%M:%S") + (f".{int(ms) % 1000:03d}" if parts else "")


_WHY_HELD: Final = {
    "fence": "fence: the layout was being changed",
    "lease": "lease: the worker might not serve before it had heard from the others",
    "unborn": "unborn: the partition was not there yet",
    "leader": "leader: it was not known who leads the partition",
    "connection": "connection: the way to the partition's leader was just being opened",
    "gate": "order of keys: what came before had still to be read elsewhere",
}


def why_held(reason: str | None) -> str:
    """Says what was waited for.

    >>> why_held("leader"), why_held("other"), why_held(None)
    ('leader: it was not known who leads the partition', 'other', '-')
    """
    return _WHY_HELD.get(reason or "-", reason or "-")


def spaced(numbers: str) -> str:
    """Writes a list of numbers that stands as JSON in a table.

    >>> spaced("[0,1,2]"), spaced("-")
    ('0, 1, 2', '-')
    """
    return numbers.strip("[]").replace(",", ", ")


def stream_name(stream: int | None) -> str:
    """Names a virtual partition, or a physical one as such, as clients of the dialect see it.

    >>> stream_name(4), stream_name(-3), stream_name(None)
    ('v4', 'partition 2', '-')
    """
    if stream is None:
        return "-"
    return f"v{stream}" if stream >= 0 else f"partition {~stream}"


def several(count: int, noun: str) -> str:
    """Writes a count with its noun; none in words.

    >>> several(1, "finding"), several(2, "finding"), several(0, "fence")
    ('1 finding', '2 findings', 'no fences')
    """
    return counted(count, noun) if count else f"no {noun}s"
