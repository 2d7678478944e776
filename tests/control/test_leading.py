"""The controller's role when what it writes does not arrive."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kordon.proxy.control.fence_times import FenceTimes
from kordon.proxy.control.layouts_writer import NotCommitted
from kordon.proxy.control.leading import Cleaning, Leading
from kordon.proxy.ordering.presence import Presence
from kordon.proxy.ordering.wishes import Resize


class Writer:
    """Opens, and then writes nothing."""

    async def open(self) -> None:
        """Takes over."""

    async def close(self) -> None:
        """Ends."""

    async def commit(self, entries: object) -> None:
        """Fails as when no coordinator is found."""
        raise NotCommitted("no coordinator")


async def read() -> None:
    """Has read all there is."""


async def confirm() -> bool:
    """Is the present generation."""
    return True


async def test_a_role_whose_writer_failed_ends_and_is_taken_up_again() -> None:
    """A writer that failed has to be opened anew: to go on with it would delay every wish for ever."""
    leading = Leading(
        cast("Any", None),
        cast("Any", Writer()),
        lambda: frozenset({"me"}),
        confirm,
        presence=Presence(),
        admit=cast("Any", None),
        takeovers=cast("Any", None),
        times=FenceTimes(),
        on_layout=lambda *_: None,
        cleaning=Cleaning(cast("Any", None), dict, 0),
    )
    async with asyncio.timeout(60):
        with pytest.raises(NotCommitted):
            await leading.run(
                read_to_end=read,
                known=dict,
                unfinished=lambda: ({}, {"w1": Resize("nobody-manages-it", 4)}),
            )
