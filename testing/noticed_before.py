"""What `make mutate` has shown and need not show again, so that the whole list can be tried in pieces."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Final

KEPT: Final = Path(".cache", "noticed-mutations.txt")
"""In the project: a digest a line."""


def digest_of(root: Path, row: Iterable[str], files: Iterable[str]) -> str:
    """Returns what a verdict is known by: a row of the list, and the text of the files that it is about.

    Args:
        row: All that the row says.
        files: Relative to the root.
    """
    digest = sha256()
    for part in (*(each.encode() for each in row), *((root / each).read_bytes() for each in files)):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()[:16]


class NoticedBefore:
    """The mutations that a test has noticed, in this run or an earlier one.

    Args:
        file: Where they are kept; it may be missing.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._digests = set(file.read_text().split()) if file.exists() else set[str]()

    def __contains__(self, digest: str) -> bool:
        return digest in self._digests

    def add(self, digests: Iterable[str]) -> None:
        """Keeps more of them, on disk as well."""
        new = sorted({*digests} - self._digests)
        self._digests.update(new)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.writelines(f"{each}\n" for each in new)
