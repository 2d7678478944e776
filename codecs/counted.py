"""Counts for people: with their nouns, in the form that the count asks for."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Writes a count with its noun.

    >>> counted(1, "record"), counted(1204, "record"), counted(0, "branch")
    ('1 record', '1,204 records', '0 branches')
    """
    ending = "" if count == 1 else "es" if noun.endswith(("ch", "x")) else "s"
    return f"{count:,} {noun}{ending}"


def size(count: float) -> str:
    """Writes a number of bytes.

    >>> size(999), size(3_400_000)
    ('999 B', '3.4 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
