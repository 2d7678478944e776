"""How work is divided among tasks, and what spares them time: a task costs more than a small partition has to read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Final, TypeVar
from zipimport import zipimporter

COLUMNS: Final = "part int, what string, name string, first bigint, table binary"
"""`judging.shipments.ROWS` in Spark's words; here, as Spark has processes that plan and need nothing else."""
_Item = TypeVar("_Item")


def bundled(items: Iterable[_Item], size: Callable[[_Item], int], count: int) -> list[list[_Item]]:
    """Divides items into at most `count` bundles of about the same size, none of them empty.

    >>> bundled([5, 1, 4, 2], lambda each: each, 2)
    [[5, 1], [4, 2]]
    """
    bundles: list[list[_Item]] = [[] for _ in range(count)]
    sizes = [0] * count
    for each in sorted(items, key=size, reverse=True):
        lightest = sizes.index(min(sizes))
        bundles[lightest].append(each)
        sizes[lightest] += size(each)
    return [each for each in bundles if each]


def forget_archives() -> None:
    """Spares this worker's next tasks most of what they cost at least, once all modules are imported.

    Before each task Spark has Python forget what import paths hold. Python then reads the directory of pyspark's zip
    file again, once for each package that came from it.
    """
    archives = [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]
    for path in archives:
        del sys.path_importer_cache[path]
