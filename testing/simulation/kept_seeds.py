"""Seeds whose clusters have broken a promise: `tests/ordering/kept_seeds.txt`, which quick tests run ever after."""

from __future__ import annotations

from pathlib import Path
from typing import Final

KEPT: Final = Path(__file__).resolve().parents[2] / "tests" / "ordering" / "kept_seeds.txt"
"""A line each: the kind of cluster, and the seed."""
PLAIN: Final = "plain"
DIALECT_WRITERS: Final = "dialect-writers"
KINDS: Final = (PLAIN, DIALECT_WRITERS)


def kept(kind: str) -> list[int]:
    """Returns the seeds of a kind of clusters."""
    rows = [line.split() for line in KEPT.read_text().splitlines() if line and not line.startswith("#")]
    return [int(seed) for each, seed in rows if each == kind]


def keep(kind: str, seed: int) -> None:
    """Adds one, unless it is there."""
    if seed not in kept(kind):
        with KEPT.open("a") as file:
            print(kind, seed, file=file)
