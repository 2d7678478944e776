"""A worker that leads: its controller's role begins again whenever it ends, until somebody else leads."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.member import leadership
from kordon.proxy.member.leadership import Leadership
from kordon.proxy.ordering.records import AckRecord
from kordon.proxy.own_topics.layouts_writer import Fenced
from kordon.proxy.runtime.tasks import Tasks
from kordon.testing.waiting import until


class Roles:
    """Makes roles that read the layouts, and then end as the test says."""

    def __init__(self) -> None:
        self.made = 0
        self.ends: list[Exception] = []
        self.reads = 0
        self.heard: list[str] = []
        self.tasks = Tasks()
        self.leadership = Leadership(self.new, self.read, self.tasks)

    def new(self) -> Any:
        self.made += 1
        return cast("Any", self)

    async def read(self) -> None:
        self.reads += 1

    async def run(self, read_to_end: Callable[[], Awaitable[object]]) -> None:
        """Is a role that takes over."""
        await read_to_end()
        if self.ends:
            raise self.ends.pop(0)
        await asyncio.Event().wait()

    def raised(self, fence: str) -> bool:
        return fence == "own"

    def on_ack(self, fence: str, incarnation: str, told: object) -> None:
        self.heard.append(f"{fence} {incarnation}")


@pytest.fixture
async def roles(monkeypatch: pytest.MonkeyPatch) -> Roles:
    """A worker that is not told to lead yet."""
    monkeypatch.setattr(leadership, "_LEAD_AGAIN_SECONDS", 0.0)
    return Roles()


async def test_whatever_ends_a_role_another_begins_and_reads_the_layouts_first(roles: Roles) -> None:
    """A new controller, a cluster that does not answer, a mistake: somebody has to lead (ONE-CONTROLLER)."""
    roles.ends = [Fenced("another"), UpstreamUnavailable("away"), RuntimeError("a mistake")]
    roles.leadership.lead()
    roles.leadership.lead()
    await until("the fourth one leads", lambda: roles.reads == 4)
    assert roles.made == 4, "to be told to lead twice makes no second one"
    roles.leadership.stop()
    await until("nobody leads", lambda: roles.leadership.role is None)
    roles.leadership.lead()
    await until("it leads again", lambda: roles.reads == 5)
    await roles.tasks.stop()


async def test_only_the_role_that_has_raised_a_fence_hears_of_it_at_once(roles: Roles) -> None:
    """All other acknowledgements go through the layouts, where every controller reads them."""
    assert not roles.leadership.hears(AckRecord("own", "me")), "it does not lead"
    roles.leadership.lead()
    await until("it leads", lambda: roles.reads == 1)
    assert roles.leadership.hears(AckRecord("own", "me"))
    assert not roles.leadership.hears(AckRecord("anothers", "me"))
    assert roles.heard == ["own me"]
    await roles.tasks.stop()
