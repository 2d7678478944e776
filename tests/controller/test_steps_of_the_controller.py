"""In which order the controller does what a change asks for, against a cluster and a writer that note each step."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.codecs.producers import ProducerRows
from kordon.proxy.controller.controller_role import ControllerRole
from kordon.proxy.controller.fence_times import FenceTimes
from kordon.proxy.controller.leading_worker import LeadingWorker
from kordon.proxy.controller.topic_janitor import JanitorTools
from kordon.proxy.decisions.journal import NoJournal
from kordon.proxy.kafka.batches import NewRecord
from kordon.proxy.kafka.ends import Ends, Snapshot
from kordon.proxy.ordering import controller
from kordon.proxy.ordering.changes import Change
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.layouts_state import LayoutsState
from kordon.proxy.ordering.leftovers import Leftovers
from kordon.proxy.ordering.records import FenceRecord, TopicRecord, load
from kordon.proxy.ordering.wishes import Resize
from kordon.proxy.runtime.clock import clock
from kordon.testing.waiting import until

LAYOUT = Layout.created("orders", UUID(int=1), 1, 4)
NOBODY = ProducerRows.of(())


class Cluster:
    """A cluster with the topic `orders`, the layouts' writer, the group and the janitors: each step is noted.

    All members acknowledge each fence when it is durable.
    """

    producer_id = 7

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.moves: list[int] = []
        """By how many records the logs grow behind each look at their ends."""
        self.end = 5
        self.refusals = 0
        """How often the group says that the known generation is not the present one."""
        self.sweeps = 0
        """How often a sweep finds something to mark."""
        self.behind = 0
        """How often the janitor says that it is behind."""
        self.layout: Layout | None = None
        """That was written last."""
        self.done = asyncio.Event()
        self.ends = self
        self.transactions = self
        self.state = LayoutsState("me", Leftovers({}))
        self.state.presence.joined(1, {"me", "other"}, 0.0, clock())
        nothing: Any = None
        self.leading = ControllerRole(
            LeadingWorker(self.state, self.confirm, lambda *_: None, nothing, FenceTimes()),
            admin=cast("Any", self),
            writer=cast("Any", self),
            admit=nothing,
            takeovers=nothing,
            tools=JanitorTools(nothing, nothing, nothing, nothing, 0),
            journal=NoJournal(),
        )
        cast("Any", self.leading)._steps._janitors = self.leading.janitors = cast("Any", self)

    # The cluster.

    async def topic_id(self, topic: str) -> UUID:
        return LAYOUT.topic_id

    async def create_partitions(self, topic: str, count: int) -> None:
        self.steps.append("partitions")

    async def wait_for_leaders(self, topic: str, *, partitions: int) -> None:
        """Has elected."""

    async def producers_remembered_ms(self) -> None:
        """Does not say."""

    async def leaders(self, topic: str) -> dict[int, object]:
        return {0: object()}

    async def producers_of(self, topic: str, partitions: object) -> dict[int, ProducerRows]:
        return {0: NOBODY}

    async def snapshots(self, topic: str, partitions: Collection[int]) -> dict[int, Snapshot]:
        self.steps.append("look")
        before = self.end
        self.end += self.moves.pop(0) if self.moves else 0
        found = {q: Snapshot(0, NOBODY, Ends(0, 0, 1)) for q in partitions}
        return found | {0: Snapshot(before, NOBODY, Ends(self.end, self.end, 1))}

    async def gone(self, topics: object) -> dict[str, UUID]:
        return {}

    async def leaders_of(self, topics: object) -> dict[str, object]:
        return {}

    # The layouts, and the group.

    async def open(self) -> None:
        self.steps.append("open")

    async def begin(self) -> None:
        """Begins a transaction."""

    async def close(self) -> None:
        """Ends."""

    async def read(self) -> None:
        self.steps.append("read")

    async def confirm(self) -> bool:
        """Says whether the known generation is the present one."""
        self.refusals -= 1
        self.steps.append("confirm" if self.refusals < 0 else "refuse")
        return self.refusals < 0

    async def commit(self, entries: list[NewRecord]) -> list[int]:
        """Writes, and has members acknowledge."""
        values = [None if entry.value is None else load(entry.key, entry.value) for entry in entries]
        for value in values:
            if isinstance(value, FenceRecord) and value.sealed:
                self.steps.append("fence")
            if isinstance(value, TopicRecord):
                self.steps.append("layout")
                self.layout = value.layout
            if isinstance(value, FenceRecord):
                for each in ("me", "other"):
                    asyncio.get_running_loop().call_soon(self.leading.on_ack, value.id, each)
        if any(entry.key == "outcome/w1" for entry in entries):
            self.done.set()
        return [0] * len(entries)

    # The janitors.

    async def run(self) -> None:
        await asyncio.Event().wait()

    def is_behind(self, topic: str) -> bool:
        """Says whether a change should begin later."""
        self.behind -= 1
        return self.behind >= 0

    async def sweep(self, topic: str, fence: str, cuts: Mapping[int, int]) -> bool:
        """Looks at all below the cuts; where it writes a marker the log moves on."""
        self.steps.append(f"sweep to {cuts[0]}")
        self.sweeps -= 1
        self.end += self.sweeps >= 0
        return self.sweeps >= 0

    async def bring_back(self, topic: str, fence: str, renewed: Collection[int]) -> None:
        self.steps.append(f"bring back {sorted(renewed)}")


@asynccontextmanager
async def led(cluster: Cluster) -> AsyncIterator[None]:
    """Has a controller lead that knows the topic, and is wished to let it grow to two partitions."""
    cluster.state.member.on_record("topic/orders", TopicRecord(LAYOUT, UUID(int=2)))
    cluster.state.wishes["w1"] = Resize("orders", 2)
    leads = asyncio.ensure_future(cluster.leading.run(cluster.read))
    try:
        yield
    finally:
        leads.cancel()
        with suppress(asyncio.CancelledError):
            await leads


async def grown(cluster: Cluster) -> list[str]:
    """Lets the topic grow; returns the steps up to the layout."""
    async with led(cluster):
        await cluster.done.wait()
    assert cluster.layout is not None
    assert cluster.layout.u == 2
    return cluster.steps[: cluster.steps.index("layout") + 1]


async def test_a_controller_fences_the_former_one_before_it_reads_and_reads_before_it_acts() -> None:
    """What is read before the former one is fenced may change yet (ONE-CONTROLLER)."""
    steps = await grown(Cluster())
    assert steps == ["open", "read", "partitions", "fence", "confirm", "look", "sweep to 5", "layout"]


async def test_cuts_are_read_when_the_group_has_confirmed_its_members_behind_the_fence() -> None:
    """A generation that is over may lack somebody who writes, and who has not read the fence (MISSING-WAITED)."""
    cluster = Cluster()
    cluster.refusals = 2
    steps = await grown(cluster)
    assert steps[3:] == ["fence", "refuse", "refuse", "confirm", "look", "sweep to 5", "layout"]


async def test_a_cut_is_looked_for_until_the_end_stands_still() -> None:
    """And again when the janitor has written there (STILL-CUT, KIP-253 9)."""
    cluster = Cluster()
    cluster.moves = [2, 1]
    cluster.sweeps = 1
    steps = await grown(cluster)
    assert steps[5:] == ["look", "look", "look", "sweep to 8", "look", "sweep to 9", "layout"]
    assert cluster.layout is not None
    assert {segment.end for segment in cluster.layout.segments if segment.id.epoch == 0} == {9}


async def test_no_fence_waits_for_a_janitor_that_is_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The change begins when it has caught up."""
    monkeypatch.setattr(controller, "RETRY_SECONDS", 0.0)
    cluster = Cluster()
    cluster.behind = 2
    steps = await grown(cluster)
    assert cluster.behind == -1
    assert steps[:5] == ["open", "read", "partitions", "fence", "confirm"]


async def test_values_are_brought_back_behind_the_cuts() -> None:
    """They are the first that stands in the segments that are begun for them (KIP-253 9)."""
    cluster = Cluster()
    async with led(cluster):
        await cluster.done.wait()
        cluster.steps.clear()
        assert cluster.leading.controller is not None
        change = Change("orders", 2, renewed=frozenset({1}))
        cast("Any", cluster.leading)._do(cluster.leading.controller.begin(change, clock()))
        await until("the next layout is written", lambda: "layout" in cluster.steps)
    assert cluster.steps[: cluster.steps.index("layout")] == [
        "partitions",
        "fence",
        "confirm",
        "look",
        "sweep to 5",
        "bring back [1]",
    ]
