"""Notices that files have changed, and that they have been written to the end.

Files are looked at once a second instead of asking the kernel for events: a handful of `stat` calls costs
nothing, and events do not cross the bind mounts, network folders and swapped links that configuration and
certificates are delivered by in containers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

INTERVAL_SECONDS: Final = 1.0

Look = tuple[int, int, int] | None
"""Time of change, size and inode of a file; None if it is not there."""
_NEVER: Final = (-1, -1, -1)
"""Stands for the first look at a file: its reader may have read it before."""


class FileWatch:
    """Compares files with what they were."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = tuple(files)
        self._settled = self._last = self._looks()

    def watch(self, files: Iterable[Path]) -> None:
        """Watches these files from now on; a change since the last look still counts, and so does a new file."""
        self._files = tuple(files)
        self._settled = {file: self._settled.get(file, _NEVER) for file in self._files}

    def changed(self) -> bool:
        """Whether the files differ from the last time this was true, and have been still since the last call.

        Two equal looks in a row keep a file that is being written, or a pair of which one half has been
        replaced, from being read too early.
        """
        now = self._looks()
        still, self._last = now == self._last, now
        if not still or now == self._settled:
            return False
        self._settled = now
        return True

    def _looks(self) -> dict[Path, Look]:
        return {file: _look(file) for file in self._files}


def _look(file: Path) -> Look:
    try:
        stat = file.stat()
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_size, stat.st_ino)


async def watch_files(
    watch: FileWatch, files: Callable[[], list[Path]], on_change: Callable[[], Awaitable[None]]
) -> None:
    """Calls `on_change` whenever the files have changed, even during the previous call; runs until it is cancelled.

    Args:
        watch: The watch. It has taken its first look before the files were read.
        files: Returns the files to watch. It is called again after each change, because the files may be others then.
        on_change: Called after a change. It must not raise.
    """
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        if watch.changed():
            await on_change()
            watch.watch(files())
