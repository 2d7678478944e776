"""`python -m kordon.testing.failing_tasks run …`: the usual `kordon`, whose background work fails, all of it.

Whatever `Tasks.keep` is given fails twice: as soon as it is begun, and, begun again, in the midst of what it does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from kordon.proxy.commands.cli import main
from kordon.proxy.runtime.tasks import Tasks

_LIFE_SECONDS: Final = 2.0
"""How long work lives until it fails in the midst of it."""


def fail_all_twice() -> None:
    """Has all kept work of this process fail."""
    keep, failures = Tasks.keep, Counter[str]()

    def keep_failing(
        tasks: Tasks, work: Callable[[], Coroutine[Any, Any, None]], *, name: str, of: str = ""
    ) -> asyncio.Task[None]:
        async def failing() -> None:
            if not failures[name]:
                failures[name] = 1
                raise RuntimeError("it fails at once, for a test")
            if failures[name] > 1:
                return await work()
            try:
                async with asyncio.timeout(_LIFE_SECONDS):
                    await work()
            except TimeoutError:
                failures[name] = 2
                raise RuntimeError("it fails in the midst of it, for a test") from None

        return keep(tasks, failing, name=name, of=of)

    Tasks.keep = keep_failing  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    fail_all_twice()
    main(prog_name="kordon")
