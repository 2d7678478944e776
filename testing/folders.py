"""Temporary folders that do not pile up, not even when their owner is killed.

Brokers write dozens of files for each topic, and wait for the disk each time: that is a third of what a topic costs
them. So folders may be in memory.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO, Final

import psutil

_OWNER: Final = "owner"
"""A file in each folder that its owner holds a lock on; the kernel lets go of it when the owner ends."""
_held: Final[dict[Path, IO[bytes]]] = {}
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - mkdtemp makes what nobody else can open
"""A file system in memory, where Linux has one."""
LEAST_FREE_BYTES: Final = 4 << 30
"""Of memory, or else folders are on disk."""


def make_folder(prefix: str, *, in_memory: bool = False) -> Path:
    """Makes a temporary folder, and removes those of the same prefix whose owners ended without doing so.

    Args:
        in_memory: It is in memory if there is enough, and the environment variable TMPDIR names no other place.
    """
    parent = _MEMORY if in_memory and _has_memory() else Path(tempfile.gettempdir())
    for left in parent.glob(f"{prefix}*/{_OWNER}"):
        _remove_if_left(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    lock = (folder / "owner.new").open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / "owner.new").rename(folder / _OWNER)  # nobody finds the file before it is locked
    _held[folder] = lock
    return folder


def _has_memory() -> bool:
    if os.environ.get("TMPDIR") or not os.access(_MEMORY, os.W_OK):
        return False
    return min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available) >= LEAST_FREE_BYTES


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
