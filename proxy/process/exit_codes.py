"""What the exit code of `kordon` says; the command line imports nothing else of a proxy to end by one."""

from __future__ import annotations

from typing import Final

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
