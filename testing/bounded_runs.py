"""How long a run of tests may take, and how much memory, that is one of many and may be of what is broken."""

from __future__ import annotations

import faulthandler
import os
import resource
import select
import signal
import time
from pathlib import Path
from typing import Final

import pytest

_MOST_BYTES: Final = 4 << 30
"""Of memory of a run: what is broken may go on and on."""
_LONGEST_SECONDS: Final = 60
"""Of a test as it is."""
_LONGEST_BROKEN_SECONDS: Final = 20
"""Of a test of what is broken: such a test may wait for ever, and takes a second where it does not."""
_LOOK_SECONDS: Final = 1.0
"""Between two looks at how long a run has taken."""


def longest_seconds(*, is_broken: bool) -> int:
    """Returns how long a test may take."""
    return _LONGEST_BROKEN_SECONDS if is_broken else _LONGEST_SECONDS


def bound() -> None:
    """Bounds the memory of this process, and has it tell where it stands when it is ended."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A timeout that is raised between two steps of an event loop loses the step, and its task is waited for ever:
    # whoever waits for this process ends it then, and this tells where it stands.
    faulthandler.enable(file=os.dup(2))  # pytest keeps what goes to the other


def end_of(process: int, seconds: float) -> int:
    """Waits for a child's end; has it tell where it stands, and end, when it has run and waited for so long.

    What it was ready to run, and others ran instead, does not count: on a busy machine that takes minutes.

    Returns:
        Its exit code; whoever was ended by a signal has failed.
    """
    began, told = time.monotonic(), os.pidfd_open(process)
    try:
        while not select.select([told], [], [], _LOOK_SECONDS)[0]:
            if time.monotonic() - began - kept_from_processor(process) > seconds:
                os.kill(process, signal.SIGABRT)
    finally:
        os.close(told)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return code if code >= 0 else int(pytest.ExitCode.TESTS_FAILED)


def kept_from_processor(process: int) -> float:
    """Returns the seconds in which a process had to wait for one, of its main thread; 0.0 where no kernel tells."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0
