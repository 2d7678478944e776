"""Which place a record gets: by its key, by a partitioner of the user's, or any if it has no key. No I/O."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from aiokafka.partitioner import DefaultPartitioner, murmur2

_REMEMBERED_KEYS: Final = 65_536
_POSITIVE: Final = 0x7FFF_FFFF

Partitioner = Callable[[bytes | None, list[int], list[int]], int]


@lru_cache(maxsize=_REMEMBERED_KEYS)
def key_hash(key: bytes) -> int:
    """Returns the hash by which Java's clients choose the partition of a key; those of many keys are remembered."""
    hashed: int = murmur2(key) & _POSITIVE
    return hashed


def hashes_like_java(partitioner: Partitioner) -> bool:
    """Whether a partitioner is the default one, whose choice depends on the key alone."""
    return type(partitioner) is DefaultPartitioner


def chosen(partitioner: Partitioner, key: bytes | None, homes: Sequence[int], available: Sequence[int]) -> int:
    """Asks a partitioner of the user's for a virtual partition.

    Args:
        partitioner: Called as aiokafka calls its own.
        homes: The physical partition of each virtual one.
        available: Physical partitions that have a leader.

    Raises:
        ValueError: The partitioner chose a partition that does not exist.
    """
    reachable = set(available)
    everything = list(range(len(homes)))
    place = partitioner(key, everything, [v for v in everything if homes[v] in reachable])
    if not 0 <= place < len(homes):
        raise ValueError(f"the partitioner has chosen partition {place} of {len(homes)}")
    return place


def any_partition(available: Sequence[int], count: int) -> int:
    """Returns a partition for records without key: one that has a leader, if there is one."""
    return random.choice(available or range(count))  # noqa: S311  no secret
