"""`python -m kordon.testing.dying_lender run …`: a `kordon` that dies at a step of lending an epoch.

The environment variable LENDER_DIES_AT names the step: `claimed`, `called` or `settled`. That is behind the claim,
behind the broker's answer, or before the producer is told what was written. Without one it lives. In all of them claims
are taken over after a second instead of 15.
"""

from __future__ import annotations

import os
import signal
from typing import Any, Final

from kordon.proxy.commands.cli import main

PROGRAM: Final = "kordon.testing.dying_lender"
STEPS: Final = ("claimed", "called", "settled")
DIES_AT: Final = "LENDER_DIES_AT"
TAKE_OVER_SECONDS: Final = 1.0


def _die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def patch(step: str) -> None:
    """Has this process die at a step."""
    from kordon.proxy.handlers import epoch_lending  # noqa: PLC0415 - only where a proxy runs
    from kordon.proxy.ordering import lent_table  # noqa: PLC0415

    lending: Any = epoch_lending.EpochLending
    lent_table.TAKE_OVER_SECONDS = TAKE_OVER_SECONDS  # type: ignore[attr-defined]
    if step == "claimed":
        lending._called = _die
    elif step == "called":
        lending._settled = _die
    elif step == "settled":
        settle = lending._settled

        async def settle_and_die(*arguments: Any) -> None:
            await settle(*arguments)
            _die()

        lending._settled = settle_and_die


if __name__ == "__main__":
    patch(os.environ.get(DIES_AT, ""))
    main(prog_name="kordon")
