"""What a process imports that others are forked from (`forked_program.py`), and dies with the one that started it."""

# pyright: reportUnusedImport=false

import ctypes
import signal

import kordon.proxy.cli
import kordon.proxy.service
import kordon.testing.faults  # noqa: F401 - so that whoever is forked has them

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Has the kernel kill this process when its parent ends, however that happens."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


die_with_parent()
