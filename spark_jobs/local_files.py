"""Small files of this machine, by Python itself: Hadoop would run a program (`chmod`) for each of them."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path


class LocalFiles:
    """Files by their paths; what can be done is what `HadoopFiles` can do."""

    def exists(self, address: str) -> bool:
        """Returns whether there is a file or folder."""
        return Path(address).exists()

    def names(self, address: str) -> list[str]:
        """Returns what a folder has; a folder that is not there has nothing."""
        with suppress(FileNotFoundError):
            return [each.name for each in Path(address).iterdir()]
        return []

    def read(self, address: str) -> bytes | None:
        """Returns what stands in a file; None: it is not there."""
        with suppress(FileNotFoundError):
            return Path(address).read_bytes()
        return None

    def write(self, address: str, told: bytes) -> None:
        """Writes a file, which may be half of it if the machine dies meanwhile."""
        path = Path(address)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(told)

    def replace(self, address: str, told: bytes) -> None:
        """Writes a file: it is there whole, or as it was before."""
        new = Path(f"{address}.new")
        self.write(str(new), told)
        with new.open("rb") as written:
            os.fsync(written.fileno())
        new.replace(address)

    def remove(self, address: str) -> None:
        """Removes a file, or a folder with all that it has."""
        path = Path(address)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
