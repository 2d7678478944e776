"""The command line as a whole: the proxy's commands, and the auditor's, which know nothing of each other.

Workers and containers that only ever run the proxy begin at `kordon.proxy` and load nothing of the auditor.
"""

from __future__ import annotations

import sys

try:
    from kordon.proxy.commands.cli import main
    from kordon.spark_jobs.cli import audit
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("kordon"):
        raise
    sys.exit(f"kordon: {error.name} is not installed: pip install '.[proxy]' in a clone of Kordon")

main.add_command(audit)

__all__ = ["main"]
