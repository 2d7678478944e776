"""An OrderedConsumer as a member of its group, and one that reads alone."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer.group_coordinator import BaseCoordinator, GroupCoordinator, NoGroupCoordinator
from aiokafka.consumer.subscription_state import Assignment, Subscription, SubscriptionState
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import InconsistentGroupProtocolError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from kordon.client.assignor import OrderedAssignor, told_epochs
from kordon.client.dialect_client import DialectClient
from kordon.client.key_move_driver import KeyMoveDriver
from kordon.client.layouts import Layouts

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_MOST_REFRESHES: Final = 5
"""How often a leader asks for metadata that a member has seen already and it has not."""

_log = logging.getLogger(__name__)


class MixedGroupError(InconsistentGroupProtocolError):
    """The group has members of the other kind: in one group there are either OrderedConsumers or others."""

    def __init__(self, group_id: str = "") -> None:
        super().__init__(group_id)
        self.group_id = group_id

    def __str__(self) -> str:
        return (
            f"[Error {self.errno}] group {self.group_id!r} has members that are no OrderedConsumers. They see virtual "
            "partitions, this one would see physical ones: stop them first, or use another group (docs/sdk.md)"
        )


class _KeptCoordinator(BaseCoordinator):
    """What both coordinators do: their driver looks when metadata has come."""

    def __init__(
        self, client: DialectClient, subscription: SubscriptionState, *, driver: KeyMoveDriver, **options: Any
    ) -> None:
        self._driver = driver
        self._layouts = client.layouts
        super().__init__(client, subscription, **options)

    def _handle_metadata_update(self, cluster: ClusterMetadata) -> None:
        super()._handle_metadata_update(cluster)
        self._driver.look()


class OrderedCoordinator(_KeptCoordinator, GroupCoordinator):
    """GroupCoordinator that shares out managed topics again under each layout, and has state flushed before."""

    async def knows(self, topic: str) -> bool:
        """Whether the group has a commit on any partition of a topic."""
        partitions = self._cluster.partitions_for_topic(topic) or ()
        return bool(await self.fetch_committed_offsets([TopicPartition(topic, q) for q in partitions]))

    def _get_metadata_snapshot(self) -> dict[str, Any]:
        counts: Mapping[str, int] = super()._get_metadata_snapshot()
        return {topic: (count, _epoch(self._layouts, topic)) for topic, count in counts.items()}

    async def _do_rejoin_group(self, subscription: Subscription) -> bool:
        try:
            joined: bool = await super()._do_rejoin_group(subscription)
        except InconsistentGroupProtocolError as error:
            raise MixedGroupError(self.group_id) from error
        return joined

    async def _on_join_prepare(self, previous_assignment: Assignment | None) -> None:
        self._subscription.begin_reassignment()
        await self._driver.give_up()
        await super()._on_join_prepare(previous_assignment)
        self._driver.gone()

    async def _perform_assignment(self, response: Any) -> bytes | None:
        """Shares out by a layout that is at least as new as what any member knows."""
        known = [
            told_epochs(ConsumerProtocol.METADATA.decode(metadata).user_data or b"")
            for *_, metadata in response.members
        ]
        for _ in range(_MOST_REFRESHES):
            if all(_epoch(self._layouts, topic) >= epoch for each in known for topic, epoch in each.items()):
                break
            await self._client.force_metadata_update()
        assignment: bytes | None = await super()._perform_assignment(response)
        return assignment

    async def _on_join_complete(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        told = ConsumerProtocol.ASSIGNMENT.decode(member_assignment_bytes)
        await super()._on_join_complete(generation, member_id, protocol, member_assignment_bytes)
        assignment = self._subscription.subscription.assignment
        if assignment is not None and protocol == OrderedAssignor.name:
            self._driver.take(assignment, self, told_epochs(told.user_data or b""))

    async def _maybe_do_last_autocommit(self, assignment: Assignment) -> None:
        """Leaves out what the application failed to flush: whoever gets it next reads it once more."""
        if self._enable_auto_commit:
            await self.commit_offsets(assignment, self._flushed(assignment.all_consumed_offsets()))

    def _flushed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
        unflushed = self._driver.moves.unflushed
        return {tp: offset for tp, offset in offsets.items() if tp not in unflushed}


class OrderedReader(_KeptCoordinator, NoGroupCoordinator):
    """NoGroupCoordinator of one that reads alone: it continues where it stands when partitions come or go."""

    def assign_all_partitions(self, check_unknown: bool = False) -> None:
        """Takes all partitions of the topics that were subscribed to."""
        before: Assignment | None = self._subscription.subscription.assignment
        super().assign_all_partitions(check_unknown)
        after: Assignment = self._subscription.subscription.assignment
        if after is before:
            return
        if before is not None:
            _carry_over(before, after)
        self._driver.take(after, None, known_epochs(self._layouts, after.tps))


def known_epochs(layouts: Layouts, partitions: Iterable[TopicPartition]) -> dict[str, int]:
    """Returns the layout epochs of the managed topics among those of some partitions."""
    return {tp.topic: epoch for tp in partitions if (epoch := _epoch(layouts, tp.topic)) >= 0}


def _epoch(layouts: Layouts, topic: str) -> int:
    layout = layouts.get(topic)
    return -1 if layout is None else layout.layout_epoch


def _carry_over(before: Assignment, after: Assignment) -> None:
    for tp in before.tps & after.tps:
        state = before.state_value(tp)
        if state.has_valid_position:
            after.state_value(tp).seek(state.position)
