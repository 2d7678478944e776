"""What the product logs in a simulated cluster: lines of its story, and failures that nobody has reckoned with."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

import structlog

from kordon.testing.simulation.loop import running
from kordon.testing.simulation.world import World

_LEFT_OUT: Final = frozenset({"layout_adopted", "layouts_read", "group_joined", "broker_learned"})
"""Lines that say what the story says anyway."""


@contextmanager
def told_in(world: World, fail: Callable[[str], None]) -> Iterator[None]:
    """Has log lines go into the story; `fail` is told of exceptions that were caught at an outermost edge."""

    def note(_: object, __: str, event: MutableMapping[str, Any]) -> Any:
        name, error = event.pop("event"), event.pop("exc_info", None)
        if error:
            caught = error if isinstance(error, BaseException) else sys.exc_info()[1]
            fail("".join([f"{running()}: {name} {event}\n", *traceback.format_exception(caught)]))
        elif name not in _LEFT_OUT:
            world.say(f"{running()}: {name} {event}")
        raise structlog.DropEvent

    processors = structlog.get_config()["processors"]
    before = list(processors)
    processors[:] = [note]  # in place, as loggers hold on to the list
    try:
        yield
    finally:
        processors[:] = before
