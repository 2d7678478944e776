"""The command line as a whole: the proxy's commands, and the auditor's, which know nothing of each other.

Workers and containers that only ever run the proxy begin at `kordon.proxy` and load nothing of the auditor.
"""

from __future__ import annotations

from kordon.proxy.cli import main
from kordon.spark_jobs.cli import audit

main.add_command(audit)

__all__ = ["main"]
