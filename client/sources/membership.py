"""A member of a group on the source topic: aiokafka's coordinator, without a consumer that would read or commit."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Collection
from typing import Any, Final, Protocol

from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import Assignment, SubscriptionState
from aiokafka.coordinator.protocol import ConsumerProtocol

from kordon.client.requests import WireRequest
from kordon.client.sources.assignor import Had, SourceAssignor
from kordon.client.sources.errors import SourceCountError
from kordon.client.sources.settings import MOST_PARTITIONS, SourceSettings
from kordon.client.sources.source_topic import check_count
from kordon.client.sources.store import SourceMember

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_log = logging.getLogger(__name__)

_NEVER_MS: Final = 2**31 - 1
_RETRY_SECONDS: Final = 1.0
"""After which a member tries again what the group's coordinator has refused."""


class WorkOwner(Protocol):
    """The object that does the work of the partitions."""

    async def give_up(self, *, is_member: bool) -> None:
        """Ends what is open, before another member may have the partitions."""
        ...

    def take(self, member: SourceMember, partitions: Collection[int]) -> None:
        """Begins with partitions."""
        ...

    def fail(self, error: BaseException) -> None:
        """Tells the application what is wrong with the group."""
        ...


class SourceCoordinator(GroupCoordinator):
    """One member, from when it is made until `close`.

    Args:
        client: The member's connections.
        settings: The group's settings.
        owner: The object that does the work.
    """

    def __init__(self, client: AIOKafkaClient, settings: SourceSettings, owner: WorkOwner) -> None:
        self._owner = owner
        self._settings = settings
        self._topic = settings.topic
        self._assignor = SourceAssignor(settings.topic)
        subscription = SubscriptionState()
        super().__init__(
            client,
            subscription,
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            max_poll_interval_ms=_NEVER_MS,
            enable_auto_commit=False,
            assignors=(self._assignor,),
        )
        subscription.subscribe({settings.topic})
        self._coordination_task.add_done_callback(self._on_end)

    @property
    def is_member(self) -> bool:
        """Whether the group still counts this member, as far as is known here."""
        generation: int = self.generation
        return generation > 0

    async def ask(self, request: WireRequest) -> Any:
        """Sends a request to the group's coordinator, and returns the answer.

        Raises:
            KafkaError: The coordinator gives no answer.
        """
        await self.ensure_coordinator_known()
        return await self._send_req(request)

    def look_again(self) -> None:
        """Notes that another broker coordinates the group now."""
        self.coordinator_dead()

    async def _on_join_prepare(self, previous_assignment: Assignment | None) -> None:
        """Ends what is open before JoinGroup (ENDED-FIRST); heartbeats continue meanwhile."""
        del previous_assignment  # the owner knows
        self._subscription.begin_reassignment()
        self._group_subscription = None
        await self._owner.give_up(is_member=self.is_member)

    async def _on_join_complete(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        await super()._on_join_complete(generation, member_id, protocol, member_assignment_bytes)
        told = ConsumerProtocol.ASSIGNMENT.decode(member_assignment_bytes)
        mine = {tp.partition for tp in told.partitions() if tp.topic == self._topic}
        self._assignor.had = Had(generation, frozenset(mine))
        try:
            await self._check_count(mine)
        except SourceCountError as error:
            self._owner.fail(error)  # the application would not know what these partitions are
        else:
            self._owner.take(SourceMember(member_id, generation), mine)

    async def _check_count(self, mine: Collection[int]) -> None:
        """Compares an assignment with the number of partitions that the application knows."""
        told = self._settings.source_partition_count
        if max(mine, default=-1) >= (MOST_PARTITIONS if told is None else told):
            await self._client.force_metadata_update()  # only who leads the group has heard of new ones
            known = len(self._cluster.partitions_for_topic(self._topic) or ())
            check_count(self._settings, max(known, *(each + 1 for each in mine)))

    async def _push_error_to_user(self, exc: BaseException) -> Any:
        """Tells the application, and joins again after a while: aiokafka would wait until somebody has asked.

        Heartbeats have ended with the error, and only a new assignment begins them again.
        """
        self._owner.fail(copy.copy(exc))
        waited = await asyncio.wait([self._closing], timeout=_RETRY_SECONDS)
        self.request_rejoin()
        return waited

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._owner.fail(error)
