"""Finished ranges in commits: what is sent, and what is not sent any more."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import CommitFailedError, IllegalGenerationError, OffsetMetadataTooLargeError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from kordon.client.cooperative.entry import Progress
from kordon.client.cooperative.range_store import CommitMetadata, Found

# pyright: reportPrivateUsage=false

TP = TopicPartition("t", 0)
MANY = Progress(0, tuple((10 * n, 10 * n + 3) for n in range(1, 3_000)))


class Coordinator(GroupCoordinator):  # type: ignore[misc]  # aiokafka has no types
    """Answers as it is told to."""

    def __init__(self) -> None:
        self.generation = 3
        self.rebalances = False
        self.error: Exception | None = None
        self.sent: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    async def ensure_coordinator_known(self) -> None:
        self.generation += self.rebalances

    async def _do_commit_offsets(self, assignment: object, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.sent.append(offsets)
        if self.error is not None:
            raise self.error


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def store(coordinator: Coordinator) -> CommitMetadata:
    subscription = SimpleNamespace(subscription=SimpleNamespace(assignment=object()))
    consumer: Any = SimpleNamespace(_coordinator=coordinator, _subscription=subscription)
    return CommitMetadata(consumer, "g")


async def test_a_commit_has_the_stable_offset_and_the_ranges_behind_it(
    store: CommitMetadata, coordinator: Coordinator
) -> None:
    """Without ranges it is like any other."""
    await store.write({TP: Progress(5, ())})
    await store.write({TP: Progress(5, ((7, 9),))})
    assert [each[TP].offset for each in coordinator.sent] == [5, 5]
    assert [each[TP].metadata[:4] for each in coordinator.sent] == ["", "kr1:"]


async def test_a_commit_of_a_former_assignment_is_not_sent(store: CommitMetadata, coordinator: Coordinator) -> None:
    """It waited while the group rebalanced, and would be taken for one of the generation that is now."""
    coordinator.rebalances = True
    with pytest.raises(CommitFailedError):
        await store.write({TP: Progress(5, ())})
    assert coordinator.sent == []


async def test_who_is_no_member_commits_nothing(store: CommitMetadata, coordinator: Coordinator) -> None:
    """Its commit would pass for one of a tool."""
    coordinator.generation = -1
    with pytest.raises(CommitFailedError):
        await store.write({TP: Progress(5, ())})
    assert (coordinator.sent, store.is_member) == ([], False)


async def test_a_fenced_member_is_told_so(store: CommitMetadata, coordinator: Coordinator) -> None:
    """The coordinator knows a newer generation."""
    coordinator.error = IllegalGenerationError()
    with pytest.raises(CommitFailedError):
        await store.write({TP: Progress(5, ())})


async def test_ranges_that_do_not_fit_are_warned_of_once(
    store: CommitMetadata, coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    """And once more when they have fitted in between."""
    for progress in (MANY, MANY, Progress(0, ()), MANY):
        await store.write({TP: progress})
    assert caplog.text.count("has 2999 finished ranges behind offset 0") == 2
    assert max(len(each[TP].metadata) for each in coordinator.sent) <= 4096


async def test_a_broker_that_takes_less_metadata_gets_less(
    store: CommitMetadata, coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    """Each refusal halves it."""
    coordinator.error = OffsetMetadataTooLargeError()
    for _ in range(2):
        with pytest.raises(OffsetMetadataTooLargeError):
            await store.write({TP: MANY})
    coordinator.error = None
    await store.write({TP: MANY})
    assert [len(each[TP].metadata) // 1000 for each in coordinator.sent] == [4, 2, 1]
    assert "offset.metadata.max.bytes" in caplog.text


@pytest.mark.parametrize(
    ("start", "found"),
    [
        (0, Found(41, ((43, 46), (48, 50)))),
        (41, Found(41, ((43, 46), (48, 50)))),
        (42, Found(42, ((43, 46), (48, 50)))),
        (44, Found(46, ((48, 50),))),
        (99, Found(99)),
        (None, Found(41, ((43, 46), (48, 50)))),
    ],
)
async def test_a_member_begins_no_earlier_than_the_log(start: int | None, found: Found) -> None:
    """What is gone cannot be handled any more; where the log begins may not be known."""

    async def beginning_offsets(partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        if start is None:
            raise TimeoutError
        return dict.fromkeys(partitions, start)

    consumer: Any = SimpleNamespace(beginning_offsets=beginning_offsets)
    store = CommitMetadata(consumer, "g")
    committed = {TP: Found(41, ((43, 46), (48, 50)))}
    assert await store._from_the_start_of_the_log(committed) == {TP: found}
    assert await store._from_the_start_of_the_log({}) == {}
