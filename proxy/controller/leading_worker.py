"""What the controller's role has from the worker that leads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from kordon.proxy.controller.fence_times import FenceTimes
from kordon.proxy.ordering.layouts_state import LayoutsState
from kordon.proxy.own_topics.layouts_writer import Offsets, Records


class LeadingWorker(NamedTuple):
    """What the controller's role has from the worker that leads."""

    state: LayoutsState
    """What the layouts say, and who belongs to the group."""
    confirm: Callable[[], Awaitable[bool]]
    """Tells whether the generation that is known is still the present one."""
    on_layout: Callable[[Records, Offsets], None]
    """Told of the records of a change that is durable, by key where they stand: the worker would read them later."""
    on_forged: Callable[[str, int], None]
    """Told the key and the offset of a fence that no controller has raised."""
    times: FenceTimes
    """Counts what fences wait for."""
