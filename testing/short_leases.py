"""`python -m kordon.testing.short_leases run …`: the usual `kordon`, whose leases and sessions last for seconds.

Who dies is waited for 8 seconds in place of 30. All proxies of a cluster must be such: a change waits for the longest
of their leases.
"""

from __future__ import annotations

import sys
from math import inf, isfinite
from typing import Any, Final

from kordon.proxy.commands.cli import main

PROGRAM: Final = "kordon.testing.short_leases"
LEASE_SECONDS: Final = 5.0
SESSION_MS: Final = 3_000
"""Of each, a machine on which nothing else goes on needs a tenth; operators cannot have so little."""


def shorten() -> None:
    """Has all members of this process hold such leases, and its connections end when it sleeps for longer."""
    # only where a proxy runs: they take three times as long to load as the commands of operators
    from kordon.proxy.member.membership import Membership  # noqa: PLC0415
    from kordon.proxy.process import managed_worker, server  # noqa: PLC0415
    from kordon.proxy.relay.relays import Relays  # noqa: PLC0415

    def member(*arguments: Any, **options: Any) -> Membership:
        return Membership(*arguments, **{**options, "session_ms": SESSION_MS, "lease_seconds": LEASE_SECONDS})

    def relays(*arguments: Any, **options: Any) -> Relays:
        lease_seconds = LEASE_SECONDS if isfinite(options["lease_seconds"]) else inf
        return Relays(*arguments, **{**options, "lease_seconds": lease_seconds})

    managed_worker.Membership = member  # type: ignore[attr-defined, assignment]
    server.Relays = relays  # type: ignore[attr-defined, assignment]


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        shorten()
    main(prog_name="kordon")
