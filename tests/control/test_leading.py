"""The controller's role when what it writes does not arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from kordon.proxy.control import sweeping
from kordon.proxy.control.batches import Entry
from kordon.proxy.control.fence_times import FenceTimes
from kordon.proxy.control.layouts_writer import NotCommitted
from kordon.proxy.control.leading import Cleaning, Leading
from kordon.proxy.ordering.leftovers import Leftovers
from kordon.proxy.ordering.presence import Presence
from kordon.proxy.ordering.wishes import Resize
from kordon.testing.waiting import until


class Writer:
    """Opens, and then writes nothing."""

    async def open(self) -> None:
        """Takes over."""

    async def close(self) -> None:
        """Ends."""

    async def commit(self, entries: Sequence[Entry]) -> list[int]:
        """Fails as when no coordinator is found."""
        raise NotCommitted("no coordinator")


async def read() -> None:
    """Has read all there is."""


async def confirm() -> bool:
    """Is the present generation."""
    return True


def leads(writer: Writer, leftovers: Leftovers) -> Leading:
    """A controller that is the only member and has nothing to do with topics."""
    return Leading(
        cast("Any", None),
        cast("Any", writer),
        lambda: frozenset({"me"}),
        confirm,
        presence=Presence(),
        admit=cast("Any", None),
        takeovers=cast("Any", None),
        times=FenceTimes(),
        on_layout=lambda *_: None,
        cleaning=Cleaning(cast("Any", None), dict, 0),
        leftovers=leftovers,
    )


async def test_a_role_whose_writer_failed_ends_and_is_taken_up_again() -> None:
    """A writer that failed has to be opened anew: to go on with it would delay every wish for ever."""
    leading = leads(Writer(), Leftovers({}))
    async with asyncio.timeout(60):
        with pytest.raises(NotCommitted):
            await leading.run(
                read_to_end=read,
                known=dict,
                unfinished=lambda: ({}, {"w1": Resize("nobody-manages-it", 4)}),
            )


class Written(Writer):
    """Writes, and keeps the keys."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def commit(self, entries: Sequence[Entry]) -> list[int]:
        """Tells where each record stands."""
        self.keys += [each.key for each in entries]
        return [0] * len(entries)


async def test_controller_that_began_with_an_empty_log_removes_what_is_left_over_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It keeps to the leftovers that the proxy reads, whether or not there are any when it begins."""
    monkeypatch.setattr(sweeping, "SWEEP_SECONDS", 0.001)
    written, leftovers = Written(), Leftovers({"outcome": 0.0})
    running = asyncio.ensure_future(
        leads(written, leftovers).run(read_to_end=read, known=dict, unfinished=lambda: ({}, {}))
    )
    leftovers.on_record("outcome/w1", 0.0, is_tombstone=False)
    await until("the outcome is removed", lambda: "outcome/w1" in written.keys)
    running.cancel()
