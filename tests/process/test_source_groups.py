"""Groups of sources without members are visited, so that brokers keep their restart points; no others are."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock, MagicMock
from uuid import UUID

import pytest

from kordon.codecs.messages import response
from kordon.codecs.source_points import Point, build
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.kafka.group_offsets import ListedGroup
from kordon.proxy.ordering.source_records import SourceTopic
from kordon.proxy.process import source_groups
from kordon.proxy.process.source_groups import SourceGroups
from kordon.proxy.topics.source_topics import SourceTopics
from kordon.testing.messages.as_read import as_read

POINT = build(Point(3, "12:34"))
CLAIMED = build(Point())


class Stage:
    """Groups and their commits.

    Args:
        groups: By name the state, the topic of its only commit, and the metadata of that.
    """

    def __init__(self, groups: dict[str, tuple[str, str, str]]) -> None:
        self.groups = groups
        self.topics = SourceTopics()
        self.topics.know({"db1": SourceTopic(UUID(int=7), 1)})
        self.leads = True
        self.now = 0.0
        self.visited: list[str] = []
        self.error: Exception | None = None
        admin = MagicMock()
        admin.groups.groups = AsyncMock(side_effect=self._listed)
        admin.groups.all_committed = AsyncMock(side_effect=self._committed)
        admin.commits_kept_seconds = AsyncMock(return_value=60.0)
        self.admin = admin
        self.keeper = SourceGroups(
            self.topics, MagicMock(), admin, leads=lambda: self.leads, session_ms=10_000, clock=lambda: self.now
        )

    async def _listed(self) -> list[ListedGroup]:
        return [ListedGroup(name, 1, "classic", state) for name, (state, _, _) in self.groups.items()]

    async def _committed(self, some: list[ListedGroup]) -> list[Any]:
        rows = [
            {
                "group_id": each.name,
                "topics": [
                    {
                        "name": self.groups[each.name][1],
                        "partitions": [
                            {
                                "partition_index": 0,
                                "committed_offset": 0,
                                "metadata": self.groups[each.name][2],
                                "error_code": 0,
                            }
                        ],
                    }
                ],
                "error_code": 0,
            }
            for each in some
        ]
        answer: Any = as_read(response(9), 8, {"groups": rows})
        return list(answer.groups)

    async def visit(self, brokers: object, group_id: str, session_ms: int) -> bool:
        if self.error is not None:
            raise self.error
        self.visited.append(group_id)
        return True


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage(
        {
            "resting": ("Empty", "db1", POINT),
            "at work": ("Stable", "db1", POINT),
            "elsewhere": ("Empty", "db2", POINT),
            "stock": ("Empty", "db1", ""),
            "new": ("Empty", "db1", CLAIMED),
        }
    )
    monkeypatch.setattr(source_groups, "visit", made.visit)
    return made


async def test_groups_with_restart_points_and_without_members_are_visited(stage: Stage) -> None:
    await stage.keeper.look()
    assert stage.visited == ["resting"]
    assert stage.keeper.outcomes == {"visited": 1, "refused": 0, "failed": 0}


@pytest.mark.parametrize(
    ("error", "outcome"), [(TopicsRefused("no", 30), "refused"), (UpstreamUnavailable("away"), "failed")]
)
async def test_what_cannot_be_visited_is_counted_and_the_next_one_is(
    stage: Stage, error: Exception, outcome: str
) -> None:
    stage.groups["another"] = stage.groups["resting"]
    stage.error = error
    await stage.keeper.look()
    assert stage.keeper.outcomes[outcome] == 2


async def runs(stage: Stage, monkeypatch: pytest.MonkeyPatch, seconds: list[float]) -> None:
    """Has it look at some times of a clock."""
    left = iter(seconds)

    async def sleep(_: float) -> None:
        try:
            stage.now = next(left)
        except StopIteration:
            raise asyncio.CancelledError from None

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await stage.keeper.run()


async def test_each_is_visited_four_times_in_the_time_for_which_brokers_keep_commits(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await runs(stage, monkeypatch, [5, 10, 19, 20, 25, 35, 40])
    assert stage.visited == ["resting"] * 3


async def test_whoever_does_not_lead_visits_nobody(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.leads = False
    await runs(stage, monkeypatch, [5, 100])
    assert not stage.visited


async def test_a_cluster_without_source_topics_is_asked_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.topics.know({})
    await runs(stage, monkeypatch, [5, 100])
    stage.admin.groups.groups.assert_not_awaited()


async def test_a_look_that_fails_is_counted_and_comes_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.admin.groups.groups.side_effect = UpstreamUnavailable("away")
    stage.admin.commits_kept_seconds.return_value = None
    await runs(stage, monkeypatch, [5, 10, 7 * 3600])
    assert stage.keeper.outcomes["failed"] == 2
