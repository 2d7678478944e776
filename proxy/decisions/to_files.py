"""Decisions as files: JSON lines, a series of files for each worker, of bounded size and number.

A line is written whole or taken back. If the disk is full in the middle of a line, the file is cut to its former end.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kordon.proxy.decisions.sinks import SinkFailed

PATTERN: Final = "decisions-*.jsonl"
"""The files of all workers in a folder."""


class Files:
    """Writes to `decisions-<worker>-<number>.jsonl`.

    Args:
        file_bytes: The size at which another file begins.
        files: The number of files kept in the folder, of all workers; the oldest go first.
    """

    def __init__(self, folder: Path, worker: str, file_bytes: int, files: int) -> None:
        self._folder = folder
        self._worker = worker
        self._file_bytes = file_bytes
        self._files = files
        self._number = 0
        self._fd: int | None = None
        self._size = 0

    async def write(self, values: Sequence[bytes]) -> None:
        """Appends records; see `Sink`."""
        try:
            await asyncio.to_thread(self._write_all, deque(value + b"\n" for value in values))
        except OSError as error:
            raise SinkFailed(f"{error.filename or self._folder}: {error.strerror}") from error

    async def close(self) -> None:
        """Closes the file."""
        self._close()

    def _write_all(self, lines: deque[bytes]) -> None:
        while lines:
            if self._fd is not None:
                is_full = self._size + len(lines[0]) > self._file_bytes
                if is_full or not os.fstat(self._fd).st_nlink:
                    self._close()
            self._write(b"".join(self._fitting(lines)))

    def _fitting(self, lines: deque[bytes]) -> Iterator[bytes]:
        """Takes the lines that fit into the file, and at least one."""
        size = self._size
        while lines:
            size += len(lines[0])
            yield lines.popleft()
            if lines and size + len(lines[0]) > self._file_bytes:
                return

    def _write(self, lines: bytes) -> None:
        fd = self._fd if self._fd is not None else self._open()
        try:
            view = memoryview(lines)
            while view:
                view = view[os.write(fd, view) :]
        except OSError:
            self._take_back(fd)
            raise
        self._size += len(lines)

    def _take_back(self, fd: int) -> None:
        """Cuts off half a line. If even that fails, the next line begins another file."""
        try:
            os.ftruncate(fd, self._size)
        except OSError:
            self._close()

    def _open(self) -> int:
        path = self._folder / f"decisions-{self._worker}-{self._number:06}.jsonl"
        self._fd = fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._number += 1
        self._prune()
        return fd

    def _prune(self) -> None:
        """Removes the oldest surplus files; another worker may do so at the same time."""
        ages: list[tuple[float, Path]] = []
        for path in self._folder.glob(PATTERN):
            with suppress(FileNotFoundError):
                ages.append((path.stat().st_mtime, path))
        for _, path in sorted(ages)[: -self._files]:
            path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd, self._size = None, 0
