"""One audit at a time in a folder: a lock that goes with its process, however that ends."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kordon.spark_jobs.errors import CannotCheck

NAME: Final = "audit.lock"

log: Final = logging.getLogger("kordon.audit")


@contextmanager
def held(out: str) -> Iterator[None]:
    """Keeps other audits of this machine out of a folder.

    Args:
        out: The folder, as in `audit.Options`. An address of another file system is not locked, because such systems
            have no locks.

    Raises:
        CannotCheck: Another audit is at work there, or the folder cannot be written to.
    """
    if "://" in out:
        yield
        return
    path = Path(out) / NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise CannotCheck(f"--out: {out} cannot be written to: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = file.read().strip() or "which has not said who it is"
            raise CannotCheck(
                f"another audit ({who}) is at work in {out}: end it first, or give this one an --out of its own"
            ) from None
        except OSError as error:
            log.warning("%s cannot be locked (%s): make sure that no second audit works there", out, error.strerror)
        _sign(file.fileno(), out)
        yield


def _sign(file: int, out: str) -> None:
    try:
        os.ftruncate(file, 0)
        os.write(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    except OSError as error:
        raise CannotCheck(f"--out: {out} cannot be written to: {error.strerror}") from error
