"""Temporary folders that do not pile up, not even when their owner is killed."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from pathlib import Path
from typing import IO, Final

_OWNER: Final = "owner"
"""A file in each folder that its owner holds a lock on; the kernel lets go of it when the owner ends."""
_held: Final[dict[Path, IO[bytes]]] = {}


def make_folder(prefix: str) -> Path:
    """Makes a temporary folder, and removes those of the same prefix whose owners ended without doing so."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_OWNER}"):
        _remove_if_left(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    lock = (folder / "owner.new").open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / "owner.new").rename(folder / _OWNER)  # nobody finds the file before it is locked
    _held[folder] = lock
    return folder


def held_folders() -> list[Path]:
    return list(_held)


def remove_folder(folder: Path) -> None:
    """Removes a folder that `make_folder` made; may be called again."""
    shutil.rmtree(folder, ignore_errors=True)
    lock = _held.pop(folder, None)
    if lock is not None:
        lock.close()


def _remove_if_left(owner: Path) -> None:
    try:
        with owner.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(owner.parent, ignore_errors=True)
    except OSError:
        return  # somebody holds it, or has just removed it
