"""Linear hashing (KIP-253 "Linear hashing"), and the numbering of virtual partitions that keeps neighbours together.

U = 3        U = 4              U = 6                      (N = 3)
0  1  2      0  1  2  3         0  1  2  3  4  5
└───────┘ 0 split  └────────┴──┴──┘ 0, 1 and 2 split into 3, 4 and 5
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kordon.codecs.counted import are, counted

LARGEST_VIRTUAL_PARTITIONS: Final = 32_765
"""More do not fit beside a producer id (ORIGIN-TAG)."""
LARGEST_PARTITIONS: Final = 4_000
"""Physical ones of a topic: the record of its layout names each of them, and has to fit into a batch."""


def linear(value: int, n: int, u: int) -> int:
    """Returns the physical partition of a slot or hash.

    Args:
        value: The value, which is not negative.
        n: initial_partition_count, at least 1.
        u: undeleted_partition_count, at least `n`.
    """
    level = n << ((u // n).bit_length() - 1)
    partition = value % (2 * level)
    return partition if partition < u else value % level


def parent(partition: int, n: int) -> int:
    """Returns the partition that `partition` was split from.

    Raises:
        ValueError: The partition is one of the first `n`, which have no parent.
    """
    if partition < n:
        raise ValueError(f"partition {partition} is one of the first {n}: it has no parent")
    return partition - (n << ((partition // n).bit_length() - 1))


def slot(v: int, n: int, virtual_partitions: int) -> int:
    """Returns the number of a virtual partition in linear hashing.

    Each physical partition then holds one unbroken run of neighbours at every U, and a growth halves a run, so that
    assignors that give neighbours to one consumer make it read few physical partitions.

    Args:
        v: The virtual partition, below `virtual_partitions`.
        virtual_partitions: V = n * 2^k.
    """
    bits = (virtual_partitions // n).bit_length() - 1
    return (v >> bits) + n * _reversed(v & ((1 << bits) - 1), bits)


def _reversed(number: int, bits: int) -> int:
    return int(f"{number:0{bits}b}"[::-1], 2) if bits else 0


def home(v: int, n: int, u: int, virtual_partitions: int) -> int:
    """Returns the physical partition where a virtual one lives."""
    return linear(slot(v, n, virtual_partitions), n, u)


@lru_cache(maxsize=64)
def homes(n: int, u: int, virtual_partitions: int) -> tuple[int, ...]:
    """Returns the physical partition of each virtual one; those of a few counts are remembered."""
    found = [0] * virtual_partitions
    for partition in range(u):
        run = residents(partition, n, u, virtual_partitions)
        found[run.start : run.stop] = [partition] * len(run)
    return tuple(found)


def residents(partition: int, n: int, u: int, virtual_partitions: int) -> range:
    """Returns the virtual partitions that live on a physical one: a run of neighbours, empty for one beyond `u`."""
    if not 0 <= partition < u:
        return range(0)
    halvings = (u // n).bit_length() - 1
    level = n << halvings
    if partition >= level or partition + level < u:
        halvings += 1  # it is split already at this level, or came of a split
    bits = (virtual_partitions // n).bit_length() - 1
    length = 1 << (bits - halvings)
    first = (partition % n << bits) + _reversed(partition // n, halvings) * length
    return range(first, first + length)


def shortest_run(n: int, u: int, virtual_partitions: int) -> int:
    """Returns how many virtual partitions at least live together; those of each such run do at all smaller `u`, too."""
    return virtual_partitions // (n << (-(-u // n) - 1).bit_length())


def why_not(n: int, u: int, virtual_partitions: int) -> str | None:
    """Says why counts are impossible, and what would be possible; None if they are fine."""
    if n < 1:
        return f"a topic has at least one partition, not {n}"
    if virtual_partitions > LARGEST_VIRTUAL_PARTITIONS:
        return f"{are(virtual_partitions, 'virtual partition')} more than the {LARGEST_VIRTUAL_PARTITIONS} there can be"
    factor, rest = divmod(virtual_partitions, n)
    if rest or factor < 1 or factor & (factor - 1):
        some = ", ".join(str(n << k) for k in range(5))
        return f"{are(virtual_partitions, 'virtual partition')} not {n} times a power of two; {some}, … would be"
    if u < n:
        return f"{are(u, 'partition')} fewer than the {n} the topic began with, which is the least there can be"
    if u > LARGEST_PARTITIONS:
        return f"{are(u, 'partition')} more than the {LARGEST_PARTITIONS} that a managed topic can have"
    if u > virtual_partitions:
        virtual = counted(virtual_partitions, "virtual one")
        return f"{are(u, 'partition')} more than the {virtual}, so some would stay empty"
    return None
