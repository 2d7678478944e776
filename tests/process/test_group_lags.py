"""Who looks at the lag of groups, whom he asks, and what he makes of their commits."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kordon.codecs import apis
from kordon.codecs.messages import response
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.group_offsets import GroupOffsets
from kordon.proxy.ordering.lags import LagKey
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.process.group_lags import GROUPS_A_LOOK, GroupLags, commits_of
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.fake_broker import Answer, Asked, FakeBroker
from kordon.testing.messages.as_read import as_read
from kordon.testing.waiting import until

UNSTABLE_OFFSET_COMMIT, COORDINATOR_LOAD_IN_PROGRESS = 88, 14
FETCH_VERSION = 9
FACE = "__kordon.orders"
Rows = Mapping[str, Mapping[int, int]]
"""Commits by topic and partition."""


def taken_over() -> ManagedTopics:
    """Knows `orders`, of 2 partitions that are 4 for clients."""
    topics = ManagedTopics()
    topics.add(ManagedTopic(Layout.unmanaged("orders", UUID(int=1), 2, 4), UUID(int=2)))
    return topics


def coordinator_says(group: str, rows: Rows, error_code: int = 0, row_error: int = 0) -> dict[str, Any]:
    topics = [
        {
            "name": name,
            "partitions": [
                {"partition_index": p, "committed_offset": at, "metadata": "", "error_code": row_error}
                for p, at in each.items()
            ],
        }
        for name, each in rows.items()
    ]
    return {"group_id": group, "topics": topics, "error_code": error_code}


def group_as_read(row: dict[str, Any]) -> Any:
    return as_read(response(apis.OFFSET_FETCH), FETCH_VERSION, {"groups": [row]}).groups[0]


@pytest.mark.parametrize(
    ("rows", "streams"),
    [
        ({FACE: {0: 5, 3: 7}}, {0: 5, 3: 7}),
        ({FACE: {0: 5}, "orders": {0: 2, 1: 3}}, {0: 5, 1: 3}),
        ({"orders": {0: 2, 1: 3}}, {~0: 2, ~1: 3}),
        ({"orders": {5: 2}}, {~5: 2}),
        ({"other": {0: 5}, "__kordon.layouts": {0: 1}}, None),
        ({}, None),
    ],
    ids=["virtual", "some from before", "physical", "of a partition to come", "of no managed topic", "none"],
)
def test_commits_are_of_virtual_partitions_or_of_physical_ones(rows: Rows, streams: Mapping[int, int] | None) -> None:
    """A group with commits on the face has the virtual ones, the old ones included; others read what brokers have."""
    found = commits_of(group_as_read(coordinator_says("g", rows)), taken_over())
    assert found == ({"orders": streams} if streams is not None else {})


def test_commits_that_a_coordinator_does_not_tell_are_none() -> None:
    """One that waits for the end of a transaction is told later."""
    row = coordinator_says("g", {FACE: {0: 5}}, row_error=UNSTABLE_OFFSET_COMMIT)
    assert commits_of(group_as_read(row), taken_over()) == {}


@dataclass
class Cluster:
    """What is asked of brokers, and of the readers of the worker."""

    commits: dict[str, Rows] = field(default_factory=dict[str, Rows])
    ends: dict[int, int] = field(default_factory=dict[int, int])
    read: set[int] = field(default_factory=set[int])
    """Virtual partitions on which nothing is left, whatever is committed."""
    errors: dict[str, int] = field(default_factory=dict[str, int])
    asked: list[list[str]] = field(default_factory=list[list[str]])
    """By look, the groups that were asked for."""
    looked_from: list[int] = field(default_factory=list[int])
    """Where it was looked whether anything is left."""

    def __post_init__(self) -> None:
        self.broker = FakeBroker(handlers={apis.LIST_GROUPS: self._groups, apis.OFFSET_FETCH: self._committed})

    def _groups(self, _: Asked) -> Answer:
        self.asked.append([])
        return {"error_code": 0, "groups": [{"group_id": name, "protocol_type": ""} for name in self.commits]}

    def _committed(self, asked: Asked) -> Answer:
        names = [group.group_id for group in asked.body.groups]
        self.asked[-1] += names
        return {"groups": [coordinator_says(name, self.commits[name], self.errors.get(name, 0)) for name in names]}

    async def end_if_read(self, topic: ManagedTopic, v: int, offset: int, ends: Mapping[int, int]) -> int | None:
        self.looked_from.append(offset)
        return ends[0] if v in self.read else None


class Ends:
    """Where the logs of a cluster end."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def of(self, topic: str, partitions: Collection[int], timestamp: int) -> dict[int, int]:
        return {q: self._cluster.ends[q] for q in partitions if q in self._cluster.ends}


class NoLimits:
    """No fence stands, and the lease lives."""

    def of(self, topic: ManagedTopic, partition: int) -> int | None:
        return None

    def may_serve(self) -> bool:
        return True


def created() -> ManagedTopics:
    """Knows `orders`, of 2 virtual partitions on one."""
    topics = ManagedTopics()
    topics.add(ManagedTopic(Layout.created("orders", UUID(int=1), 1, 2), UUID(int=2)))
    return topics


def lags_of(cluster: Cluster, *, leads: bool = True, most: int = 1_000) -> GroupLags:
    reads, caught_up = cast("Any", SimpleNamespace(ends=Ends(cluster), limits=NoLimits())), cast("Any", cluster)
    groups = GroupOffsets(Brokers(cluster.broker))
    return GroupLags(created(), groups, reads, caught_up, leads=lambda: leads, seconds=0.001, most=most)


async def test_a_lag_is_what_is_left_up_to_the_end_and_0_for_whoever_has_read_all() -> None:
    """Of both kinds of groups; a partition without a commit has no series."""
    cluster = Cluster({"g": {FACE: {0: 5, 1: 6}}, "sdk": {"orders": {0: 9}}, "none": {}}, {0: 10}, {1})
    lags = lags_of(cluster)
    await lags.look()
    assert lags.told == {
        LagKey("orders", "g", "0"): 5,
        LagKey("orders", "g", "1"): 0,
        LagKey("orders", "sdk", "~0"): 1,
    }


async def test_what_was_found_empty_behind_a_commit_is_not_looked_at_again() -> None:
    """However far the neighbours go on in the meantime; another commit is looked at from where it is."""
    cluster = Cluster({"g": {FACE: {1: 6}}}, {0: 10}, {1})
    lags = lags_of(cluster)
    await lags.look()
    cluster.ends[0] = 12
    await lags.look()
    cluster.read.clear()
    cluster.ends[0] = 15
    await lags.look()
    assert lags.told == {LagKey("orders", "g", "1"): 9}, "as it is committed"
    cluster.commits["g"] = {FACE: {1: 8}}
    await lags.look()
    assert cluster.looked_from == [6, 10, 12, 8]


async def test_a_group_that_is_gone_has_no_lag_and_one_whose_coordinator_moves_keeps_it() -> None:
    """What is not told now is what it was, held against the end of now."""
    cluster = Cluster({"g": {FACE: {0: 5}}, "h": {FACE: {0: 5}}}, {0: 10})
    lags = lags_of(cluster)
    await lags.look()
    del cluster.commits["g"]
    cluster.errors["h"], cluster.ends[0] = COORDINATOR_LOAD_IN_PROGRESS, 12
    await lags.look()
    assert lags.told == {LagKey("orders", "h", "0"): 7}


async def test_groups_that_read_managed_topics_are_asked_first_and_all_in_turn() -> None:
    """A look asks so many and no more; whoever has begun to read is found after some looks."""
    cluster = Cluster({"z": {FACE: {0: 5}}}, {0: 10})
    cluster.commits |= {f"idle-{number:04}": {} for number in range(1_000)}
    lags = lags_of(cluster)
    for _ in range(10):
        await lags.look()
    assert all(len(asked) == GROUPS_A_LOOK for asked in cluster.asked)
    assert {name for asked in cluster.asked for name in asked} == cluster.commits.keys()
    first = next(number for number, asked in enumerate(cluster.asked) if "z" in asked)
    assert all("z" in asked for asked in cluster.asked[first:])
    assert lags.told == {LagKey("orders", "z", "0"): 5}


async def test_a_known_group_does_not_keep_new_ones_from_being_found() -> None:
    """Of very many groups with commits each has its turn, and so have those of which nothing is known."""
    cluster = Cluster({f"known-{number:04}": {FACE: {0: 5}} for number in range(500)}, {0: 10})
    lags = lags_of(cluster)
    for _ in range(7):
        await lags.look()
    assert len(lags.told) == 500
    cluster.commits |= {f"new-{number}": {FACE: {0: 1}} for number in range(60)}
    for _ in range(3):
        await lags.look()
    assert len(lags.told) == 560


async def run_until(lags: GroupLags, *, told: bool) -> None:
    """Runs until something, or nothing, is told."""
    tasks = Tasks()
    tasks.start(lags.run(), name="look")
    try:
        await until("told" if told else "nothing is told", lambda: bool(lags.told) is told, pause=0)
    finally:
        await tasks.stop()


async def test_nothing_is_told_by_a_worker_that_does_not_lead() -> None:
    """What it told while it led is the next one's to tell."""
    cluster = Cluster({"g": {FACE: {0: 5}}}, {0: 10})
    lags = lags_of(cluster)
    await run_until(lags, told=True)
    other = lags_of(cluster, leads=False)
    other.told = lags.told
    await run_until(other, told=False)


async def test_while_brokers_do_not_answer_nothing_is_told_and_the_log_says_so_once() -> None:
    """A lag of before could be anything by now."""
    cluster = Cluster({"g": {FACE: {0: 5}}}, {0: 10})
    lags = lags_of(cluster)
    await run_until(lags, told=True)
    cluster.broker.is_away = True
    with capture_logs() as logged:
        await run_until(lags, told=False)
    assert [each["error"] for each in logged if each["event"] == "lags_unknown"] == ["broker 1: nobody answers"]
    cluster.broker.is_away = False
    await run_until(lags, told=True)
