"""What the files of commands have in common: a bound on their bytes, and a line for each mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_core import ErrorDetails


class FileUnreadable(Exception):  # noqa: N818 - what the file is
    """Raised when a file cannot be read; the message names it."""


def read_bounded(file: Path, most_bytes: int) -> bytes | None:
    """Reads a file; None: it has more bytes than may be read.

    Raises:
        FileUnreadable: The system does not let it be read.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(most_bytes + 1)
    except OSError as error:
        raise FileUnreadable(f"{file}: {(error.strerror or str(error)).lower()}") from error
    return text if len(text) <= most_bytes else None


def mistake(file: Path, detail: ErrorDetails) -> str:
    """Says what is wrong with a value, with its place in the file."""
    name = ".".join(map(str, detail["loc"]))
    return f"{file}: {name + ': ' if name else ''}{detail['msg'].removeprefix('Value error, ')}"
