"""Counts for people: with their nouns and verbs, in the form that the count asks for."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby


def counted(count: int, noun: str) -> str:
    """Writes a count with its noun.

    >>> counted(1, "record"), counted(1204, "record"), counted(0, "branch")
    ('1 record', '1,204 records', '0 branches')
    """
    ending = "" if count == 1 else "es" if noun.endswith(("ch", "x")) else "s"
    return f"{count:,} {noun}{ending}"


def are(count: int, noun: str) -> str:
    """Writes a count with its noun and its verb.

    >>> are(1, "partition"), are(3, "partition")
    ('1 partition is', '3 partitions are')
    """
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"


def ranges(numbers: Iterable[int]) -> str:
    """Writes numbers.

    >>> ranges([8, 3, 2, 1, 0])
    '0-3, 8'
    """
    rows = sorted(set(numbers))
    runs = [[n for _, n in run] for _, run in groupby(enumerate(rows), key=lambda each: each[1] - each[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def numbered(noun: str, numbers: Iterable[int]) -> str:
    """Writes numbers behind the noun of what they number.

    >>> numbered("partition", [3]), numbered("partition", [0, 1, 2])
    ('partition 3', 'partitions 0-2')
    """
    named = ranges(numbers)
    return f"{noun}{'' if named.isdigit() else 's'} {named}"


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
