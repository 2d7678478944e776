"""Where a group begins without a commit: it is decided once, and committed before a record is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from aiokafka.errors import CommitFailedError, KafkaConnectionError, NoOffsetForPartitionError
from aiokafka.structs import TopicPartition

from kordon.client.cooperative.beginning import Beginning
from kordon.client.cooperative.entry import Progress
from kordon.client.cooperative.range_text import RangesOwner

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Store:
    """Takes commits, or fails as it is told to."""

    def __init__(self) -> None:
        self.topic_id = UUID(int=7)
        self.fails: list[Exception] = []
        self.written: list[Mapping[TopicPartition, Progress]] = []

    def owner(self, tp: TopicPartition) -> RangesOwner:
        return RangesOwner("g", tp.topic, tp.partition, self.topic_id)

    async def write(self, progress: Mapping[TopicPartition, Progress]) -> None:
        if self.fails:
            raise self.fails.pop()
        self.written.append(progress)


class Consumer:
    """Resolves `auto_offset_reset` as it is told to."""

    def __init__(self) -> None:
        self._auto_offset_reset = "latest"
        self._coordinator = SimpleNamespace(check_errors=lambda: None)
        self.ends: dict[TopicPartition, int] = {}
        self.sought: dict[TopicPartition, int] = {}
        self._subscription = SimpleNamespace(subscription=SimpleNamespace(assignment=self))

    def state_value(self, tp: TopicPartition) -> object:
        return SimpleNamespace(has_valid_position=tp in self.ends, position=self.ends.get(tp))

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.sought[tp] = offset


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def beginning(consumer: Any, store: Any) -> Beginning:
    return Beginning(consumer, store)


async def test_each_partition_is_committed_as_soon_as_it_is_known(
    beginning: Beginning, consumer: Consumer, store: Store
) -> None:
    """One whose broker does not answer holds up no other."""
    beginning.expect([TP, OTHER])
    assert beginning.resolved() == {}
    consumer.ends[TP] = 58
    assert await beginning.commit(beginning.resolved()) == {TP: 58}
    assert (store.written, consumer.sought) == ([{TP: Progress(58)}], {})
    consumer.ends[OTHER] = 3
    assert beginning.resolved() == {OTHER: 3}


async def test_a_commit_that_fails_is_made_again_with_the_same_offset(
    beginning: Beginning, consumer: Consumer, store: Store
) -> None:
    """It may have been taken, or may be taken yet (FIRST-STAYS)."""
    beginning.expect([TP])
    consumer.ends[TP] = 58
    store.fails.append(KafkaConnectionError())
    with pytest.raises(KafkaConnectionError):
        await beginning.commit(beginning.resolved())
    consumer.ends[TP] = 63
    assert await beginning.commit(beginning.resolved()) == {TP: 58}
    assert (store.written, consumer.sought) == ([{TP: Progress(58)}], {TP: 58})


async def test_a_group_that_has_moved_on_says_anew_what_is_this_member_s(
    beginning: Beginning, consumer: Consumer, store: Store
) -> None:
    """Nothing is fetched until then, and the offset stays if nobody else has had the partition."""
    beginning.expect([TP])
    consumer.ends[TP] = 58
    store.fails.append(CommitFailedError())
    assert await beginning.commit(beginning.resolved()) == {}
    assert beginning.resolved() == {}
    consumer.ends[TP] = 63
    beginning.expect([TP])
    assert beginning.resolved() == {TP: 58}


@pytest.mark.parametrize("what", ["another member had it", "its topic is made anew"])
async def test_what_others_have_had_is_resolved_anew(
    beginning: Beginning, consumer: Consumer, store: Store, what: str
) -> None:
    """The offset is kept no longer than the partition is this member's."""
    consumer.ends[TP] = 58
    beginning.expect([TP])
    assert beginning.resolved() == {TP: 58}
    if what == "another member had it":
        beginning.expect([])
    else:
        store.topic_id = UUID(int=8)
    beginning.expect([TP])
    consumer.ends[TP] = 63
    assert beginning.resolved() == {TP: 63}


async def test_who_wants_no_policy_gets_an_error(beginning: Beginning, consumer: Consumer) -> None:
    """It names the partitions; where all have commits, there is none."""
    consumer._auto_offset_reset = "none"  # pyright: ignore[reportPrivateUsage] # it stands for aiokafka's
    assert beginning.resolved() == {}
    beginning.expect([OTHER, TP])
    with pytest.raises(NoOffsetForPartitionError, match=r"partition=0.*partition=1"):
        beginning.resolved()
