"""Which simulated clusters notice that a rule is taken out: `python -m kordon.testing.simulation.noticing`.

Prints, by rule, which of the first seeds do: what `NOTICED_IN` of the tests takes, so that these need not search.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice

from kordon.testing.simulation.cluster import HEAL_SECONDS, run
from kordon.testing.simulation.rules import OF_DELIVERING, OF_WRITERS, PLACES


def noticing(
    rule: str, seeds: Sequence[int], first: Sequence[int] = (), heal_seconds: float = HEAL_SECONDS
) -> Iterator[int]:
    """Finds the seeds in which a promise is broken without a rule.

    Args:
        rule: One of `rules.PLACES`, of `rules.OF_WRITERS` (clients of the dialect write as well), or of
            `rules.OF_DELIVERING` (the topic is taken over, and no record waits).
        seeds: All that are looked through.
        first: Those of them that are looked at first.
        heal_seconds: By which all of them settle with all rules; without one, some never do.
    """
    for seed in (*(each for each in first if each in seeds), *(each for each in seeds if each not in first)):
        is_of_writers, delivers = rule in OF_WRITERS, rule in OF_DELIVERING
        cluster = run(seed, rule, has_dialect_writers=is_of_writers, delivers=delivers, heal_seconds=heal_seconds)
        if cluster.failures:
            yield seed


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each rule that is asked for."""
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=summary, epilog=rest)
    parser.add_argument("rules", nargs="*", help="default: all")
    parser.add_argument("--seeds", type=int, default=30, help="how many are looked through (default: 30)")
    parser.add_argument("--enough", type=int, default=3, help="stop at so many (default: 3)")
    asked = parser.parse_args(arguments)
    for rule in asked.rules or [*PLACES, *OF_WRITERS, *OF_DELIVERING]:
        found = tuple(islice(noticing(rule, range(asked.seeds)), asked.enough))
        print(f'    "{rule}": {found},', flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
