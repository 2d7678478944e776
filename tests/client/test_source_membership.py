"""A source producer as a member of its group, with a coordinator that answers from a list."""

import copy
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import GroupAuthorizationFailedError, GroupLoadInProgressError

from kordon.client import SourceCountError
from kordon.client.sources import membership
from kordon.client.sources.assignor import Had
from kordon.client.sources.membership import SourceCoordinator
from kordon.client.sources.settings import SourceSettings
from kordon.client.sources.source_topic import check_count
from kordon.client.sources.store import SourceMember
from kordon.testing.waiting import until

# pyright: reportPrivateUsage=false


class Noted:
    """Who does the work of the partitions."""

    def __init__(self) -> None:
        self.log: list[object] = []

    async def give_up(self, *, is_member: bool) -> None:
        self.log.append("gave up" if is_member else "thrown out")

    def take(self, member: SourceMember, partitions: Collection[int]) -> None:
        self.log.append((member, set(partitions)))

    def fail(self, error: BaseException) -> None:
        self.log.append(type(error))


def client(error: BaseException) -> Any:
    return SimpleNamespace(
        cluster=ClusterMetadata(),
        coordinator_lookup=AsyncMock(side_effect=error),
        force_metadata_update=AsyncMock(),
    )


async def test_what_the_group_refuses_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is given the right later needs no restart; heartbeats begin again with the next assignment."""
    monkeypatch.setattr(membership, "_RETRY_SECONDS", 0.0)
    owner = Noted()
    coordinator = SourceCoordinator(client(GroupAuthorizationFailedError("g")), SourceSettings("g", 3), owner)
    await until("it is told again", lambda: owner.log.count(GroupAuthorizationFailedError) > 2)
    assert coordinator.need_rejoin(coordinator._subscription.subscription)
    await coordinator.close()


async def test_partitions_are_given_up_before_it_joins_again() -> None:
    """As a member, or as one that the group has thrown out (ENDED-FIRST)."""
    owner = Noted()
    coordinator = SourceCoordinator(client(GroupLoadInProgressError()), SourceSettings("g", 3), owner)
    assignment = ConsumerProtocolMemberAssignment(0, [("g", [2, 0])], b"").encode()
    await coordinator._on_join_prepare(None)
    coordinator.generation = 7
    await coordinator._on_join_complete(7, "me", "range", assignment)
    await coordinator._on_join_prepare(None)
    assert owner.log == ["thrown out", (SourceMember("me", 7), {0, 2}), "gave up"]
    assert coordinator._assignor.had == Had(7, frozenset({0, 2}))
    coordinator.generation = -1
    await coordinator.close()


@pytest.mark.parametrize(("told", "begun"), [(3, False), (None, True)])
async def test_partitions_that_the_application_does_not_know_are_not_begun_with(told: int | None, begun: bool) -> None:
    """Somebody has added some, and who leads the group has shared them out; only who takes any number takes them."""
    owner = Noted()
    coordinator = SourceCoordinator(client(GroupLoadInProgressError()), SourceSettings("g", told), owner)
    assignment = ConsumerProtocolMemberAssignment(0, [("g", [2, 3])], b"").encode()
    await coordinator._on_join_complete(7, "me", "range", assignment)
    assert owner.log == [(SourceMember("me", 7), {2, 3}) if begun else SourceCountError]
    await coordinator.close()


def test_more_than_a_source_has_is_refused() -> None:
    """The group's leader would share millions of partitions out; each call gets an error of its own."""
    check_count(SourceSettings("g", None), 10_000)
    with pytest.raises(SourceCountError, match="10001 partitions, and a source has at most 10,000") as error:
        check_count(SourceSettings("g", None), 10_001)
    assert str(copy.copy(error.value)) == str(error.value)
