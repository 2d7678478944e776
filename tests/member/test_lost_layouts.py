"""A topic that has a face and no layout is no ordinary one: nobody serves it until its layout is there."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.member import lost_layouts
from kordon.proxy.member.findings import Findings
from kordon.proxy.member.lost_layouts import LostLayouts
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.layouts_state import LayoutsState
from kordon.proxy.ordering.leftovers import Leftovers
from kordon.proxy.ordering.records import TopicRecord
from kordon.proxy.ordering.wishes import Manage
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.testing.waiting import until

ORDERS = Layout.created("orders", UUID(int=1), 3, 12)


class Worker:
    """What one worker has read, and the faces of the cluster."""

    def __init__(self, *faces: str) -> None:
        self.named = list(faces)
        self.is_away = False
        self.topics = ManagedTopics()
        self.state = LayoutsState("me", Leftovers({}))
        self.member = self.state.member
        leadership: Any = SimpleNamespace(role=None)
        self.findings = Findings(self.topics, self.state, leadership)
        self.lost = LostLayouts(self._know, cast("Any", SimpleNamespace(faces=self._faces)), self.findings)

    async def _know(self) -> None:
        """Has read what there is."""

    async def _faces(self) -> list[str]:
        if self.is_away:
            raise UpstreamUnavailable("nobody answers")
        return self.named

    def read(self, layout: Layout) -> None:
        """Reads a layout."""
        record = TopicRecord(layout, UUID(int=2))
        self.member.on_record(f"topic/{layout.topic}", record)
        self.findings.on_record(f"topic/{layout.topic}", record, 0)

    @property
    def unserved(self) -> set[str]:
        return set(self.topics.unserved)


async def test_a_topic_with_a_face_and_no_layout_is_not_served_until_its_layout_is_there() -> None:
    """Its keys would go to the brokers' partitions; all proxies of a cluster may have been started again by then."""
    worker = Worker("orders", "other")
    worker.read(ORDERS)
    await worker.lost.know()
    assert worker.unserved == {"other"}
    assert [each.kind for each in worker.findings.unserved.values()] == ["layout_lost"]
    worker.read(Layout.created("other", UUID(int=3), 3, 12))
    assert worker.unserved == set()


async def test_nothing_is_known_before_the_faces_are() -> None:
    """A broker that does not answer does not make an ordinary topic of a managed one."""
    worker = Worker("orders")
    worker.is_away = True
    knowing = asyncio.ensure_future(worker.lost.know())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not knowing.done()
    worker.is_away = False
    await knowing
    assert worker.unserved == {"orders"}
    assert worker.findings.all_is_lost


async def test_a_topic_whose_face_is_deleted_is_an_ordinary_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is the way out where no backup is left."""
    monkeypatch.setattr(lost_layouts, "_LOOK_SECONDS", 0.001)
    worker = Worker("orders")
    await worker.lost.know()
    looking = asyncio.ensure_future(worker.lost.run())
    worker.named = []
    await until("it is served", lambda: not worker.unserved)
    looking.cancel()


async def test_a_topic_that_is_about_to_be_managed_is_not_lost() -> None:
    """Its face is made before its layout; who has asked for that stands in the layouts."""
    worker = Worker("orders")
    worker.state.wishes["a wish"] = Manage("orders", 12)
    await worker.lost.know()
    assert worker.unserved == set()
    assert not worker.findings.all_is_lost
