"""Lets simulated transactions live, and tells the story of each seed that breaks a promise.

`python -m kordon.testing.transactions 17` runs one seed, `python -m kordon.testing.transactions 0-999` a thousand. With
`--without` a rule is taken out, and with `--rules` each in turn, to find the seeds that notice it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice

from kordon.testing.simulation.__main__ import seeds_of
from kordon.testing.transactions.rules import PLACES
from kordon.testing.transactions.run import run


def noticing(rule: str, seeds: Sequence[int]) -> Iterator[int]:
    """Finds the seeds in which a promise is broken without a rule.

    Args:
        rule: One of `rules.PLACES`.
        seeds: All that are looked through.
    """
    return (seed for seed in seeds if run(seed, rule).wrong)


def main(arguments: Sequence[str]) -> int:
    """Runs the seeds that are asked for.

    Returns:
        0: all keep every promise. 1: one does not.
    """
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(prog="python -m kordon.testing.transactions", description=summary, epilog=rest)
    parser.add_argument("seeds", type=seeds_of, help="one, or a first and a last one: 0-999")
    parser.add_argument("--without", choices=PLACES, default="", metavar="RULE", help="a rule that is taken out")
    parser.add_argument("--rules", action="store_true", help="for each rule, print three seeds that notice it")
    asked = parser.parse_args(arguments)
    if asked.rules:
        for rule in PLACES:
            print(f'    "{rule}": {tuple(islice(noticing(rule, asked.seeds), 3))},', flush=True)
        return 0
    code = 0
    for seed in asked.seeds:
        lived = run(seed, asked.without)
        if lived.wrong:
            code = 1
            print("\n".join([f"seed {seed}", *lived.world.story[-40:], *lived.wrong]), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
