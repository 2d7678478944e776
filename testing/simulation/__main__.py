"""Lets simulated clusters live, and tells the story of each that breaks a promise.

`python -m kordon.testing.simulation 17` runs one seed, `python -m kordon.testing.simulation 0-999` a thousand.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from typing import Final

from kordon.testing.simulation.cluster import run
from kordon.testing.simulation.kept_seeds import DIALECT_WRITERS, KINDS, PLAIN

BROKEN: Final = "breaks a promise: seed "
"""Begins the line that names a seed."""


def seeds_of(text: str) -> range:
    """Reads a seed, or the first and the last of many.

    Raises:
        ValueError: It is neither.
    """
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main(arguments: Sequence[str]) -> int:
    """Runs the seeds that are asked for.

    Returns:
        0: all keep every promise. 1: one does not.
    """
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(prog="python -m kordon.testing.simulation", description=summary, epilog=rest)
    parser.add_argument("seeds", nargs="+", type=seeds_of, help="one, or a first and a last one: 0-999")
    parser.add_argument("--kind", choices=KINDS, default=PLAIN, help="which clients write (default: plain)")
    asked = parser.parse_args(arguments)
    code = 0
    for seed in (seed for seeds in asked.seeds for seed in seeds):
        told = _lived(seed, has_dialect_writers=asked.kind == DIALECT_WRITERS)
        if told:
            code = 1
            print("\n".join([f"{BROKEN}{seed}", *told]), flush=True)
    return code


def _lived(seed: int, *, has_dialect_writers: bool) -> list[str]:
    """Returns the end of a cluster that broke a promise, or in which something failed; nothing if all is well."""
    try:
        cluster = run(seed, has_dialect_writers=has_dialect_writers)
    except Exception:
        return traceback.format_exc().splitlines()
    return [*cluster.world.story[-40:], *cluster.wrong] if cluster.wrong else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
