"""What a janitor reads and marks, how far it has come, and what another one goes on from; with logs in memory."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.proxy.controller.marker_writer import NotNow
from kordon.proxy.controller.topic_janitor import JanitorTools, TopicJanitor
from kordon.proxy.kafka.batched_fetcher import BatchedFetcher
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.kafka.opening import Opener
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.testing.random_logs import NAME, Log, LogBroker

MOVER = 3
"""A virtual partition that has left partition 0 for partition 1."""


class Stage:
    """The janitor of a topic that has grown from one partition to two, and what it writes."""

    def __init__(self, broker: LogBroker) -> None:
        self.logs = broker.logs
        self.written: list[tuple[int, str]] = []
        """By physical partition, the keys of markers."""
        self.fences: list[str | None] = []
        """Under which each was written."""
        self.allowed = True
        created = replace(Layout.created(NAME, UUID(int=1), 1, 4), janitor=True)
        self.logs[0].append(tag(MOVER, 0, 3), ["moved"])
        self.layout = created.changed(created.next_epoch(2), {0: 1, 1: 0})
        tools = JanitorTools(BatchedFetcher(broker, Leaders(broker)).fetch, cast("Any", self), self._may, Opener(), 0)
        self.janitor = TopicJanitor(
            lambda: self.layout, NAME, tools, cast("Any", None), {}, renew=lambda _, homes: None
        )

    def _may(self, topic: str, epoch: int, fence: str | None) -> bool:
        assert (topic, epoch) == (NAME, self.layout.epoch)
        self.fences.append(fence)
        return self.allowed

    async def write(
        self, topic: str, partition: int, copies: Sequence[Any], tagged: Callable[[int], int], may: Callable[[], bool]
    ) -> list[Any]:
        """Writes markers, if it may."""
        if not may():
            raise NotNow("a fence of others stands")
        assert all(copy.value is None for copy in copies)
        self.written += [(partition, copy.key.decode()) for copy in copies]
        return []

    def new(self, *values: str) -> None:
        """Has the virtual partition that moved get records, whose keys are their values."""
        home = self.layout.chains[MOVER].home
        assert home is not None
        self.logs[1].append(tag(MOVER, home.move, 3), list(values))


@asynccontextmanager
async def a_stage() -> AsyncIterator[Stage]:
    """A stage, and the end of what is under way."""
    broker = LogBroker({0: Log(), 1: Log()}, 1 << 20)
    stage = Stage(broker)
    yield stage
    await stage.janitor.close()
    await broker.close()


async def test_what_a_key_has_got_anew_takes_its_old_value_away_in_its_former_home() -> None:
    """A marker for each key, once; a sweep looks at all below the cuts and says whether it has written."""
    async with a_stage() as stage:
        stage.new("moved", "other")
        assert await stage.janitor.sweep("f1", {0: 1, 1: 2})
        assert stage.written == [(0, "moved"), (0, "other")]
        assert stage.janitor.looked_to == {0: 1, 1: 2}
        assert stage.fences == ["f1"]
        stage.new("moved")
        assert not await stage.janitor.sweep("f1", {0: 1, 1: 3})
        assert stage.janitor.looked_to == {0: 1, 1: 3}
        assert len(stage.written) == 2


async def test_what_cannot_be_marked_is_looked_at_again() -> None:
    """Nothing is passed over: the sweep fails, and the next one begins where it began."""
    async with a_stage() as stage:
        stage.new("moved")
        stage.allowed = False
        with pytest.raises(NotNow):
            await stage.janitor.sweep("f1", {1: 1})
        assert stage.janitor.looked_to.get(1, 0) == 0
        stage.allowed = True
        assert await stage.janitor.sweep("f2", {1: 1})
        assert stage.written == [(0, "moved")]


async def test_another_controller_looks_again_at_what_is_in_doubt() -> None:
    """A record that nobody sees may have taken the last value of its key away; that is not written down yet."""
    async with a_stage() as stage:
        stage.logs[0].append(tag(MOVER, 0, 3), ["moved"])  # behind its cut: a stray
        stage.logs[0].append(tag(0, 0, 3), ["fine"])
        assert not await stage.janitor.sweep("f1", {0: 3})
        assert stage.janitor.looked_to == {0: 3}
        assert stage.janitor.durable() == {0: 1}
