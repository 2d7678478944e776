"""What a process and all that it has started have used of the processor: what a test costs those that run beside it.

By the clock a test takes several times as long where six processes share two processors, and those of low priority
ten times as long.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_OF_ITSELF_AND_OF_THE_ENDED: Final = slice(11, 15)
"""utime, stime, cutime and cstime in `/proc/PID/stat`, counted behind the name."""


def used_below(process: int) -> float:
    """Returns the seconds of a process, of those below it that run, and of those that ended and were waited for.

    Those that run are found where the kernel tells of children (CONFIG_PROC_CHILDREN), as that of Debian does.
    """
    ticks, todo = 0, [process]
    while todo:
        each = todo.pop()
        with suppress(OSError):  # it has ended meanwhile: whoever started it has its seconds, once it has waited for it
            _, _, fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")
            ticks += sum(map(int, fields.split()[_OF_ITSELF_AND_OF_THE_ENDED]))
            for task in Path(f"/proc/{each}/task").iterdir():
                todo += map(int, (task / "children").read_text().split())
    return ticks / _TICKS
