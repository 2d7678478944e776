"""The parts of a SourceProducer that need connections: group, restart points and what is written."""

from __future__ import annotations

from typing import Any

from aiokafka.errors import GroupCoordinatorNotAvailableError

from kordon.client.dialect_client import DialectClient
from kordon.client.options import ProducerOptions
from kordon.client.requests import WireRequest
from kordon.client.sources.holding import Holding
from kordon.client.sources.listener import SourceRebalanceListener
from kordon.client.sources.membership import SourceCoordinator
from kordon.client.sources.outgoing import Outgoing, PlainOutgoing, TransactionalOutgoing
from kordon.client.sources.settings import SourceSettings, connection_options
from kordon.client.sources.source_topic import find_source_topic
from kordon.client.sources.store import PointStore


class Session:
    """From `start` to `stop`; in between it may join its group and leave it several times.

    Args:
        settings: The group's settings.
        options: The producer's options.
    """

    def __init__(self, settings: SourceSettings, options: ProducerOptions) -> None:
        self._settings = settings
        self._client = DialectClient(**connection_options(options))
        self._coordinator: SourceCoordinator | None = None
        store = PointStore(settings.group_id, settings.topic, self, self._client)
        self.outgoing: Outgoing = (
            TransactionalOutgoing(settings, options) if settings.transactional else PlainOutgoing(options, store)
        )
        """What data are sent by."""
        self.holding = Holding(settings, store, self.outgoing, self._rejoin)
        """The partitions that the member holds."""

    @property
    def has_joined(self) -> bool:
        """Whether it is in its group, or on the way into it."""
        return self._coordinator is not None

    async def start(self) -> None:
        """Connects.

        Raises:
            KafkaConnectionError: No bootstrap server answers.
        """
        await self._client.bootstrap()
        await self.outgoing.start()

    async def stop(self) -> None:
        """Leaves the group, and closes all connections."""
        try:
            await self.leave()
        finally:
            await self.outgoing.stop()
            await self._client.close()

    async def join(self, listener: SourceRebalanceListener | None) -> None:
        """Joins the group; returns when partitions are assigned.

        Raises:
            SourceCountError: The source has another number of partitions.
            KafkaError: The member cannot join the group.
        """
        await find_source_topic(self._client, self._settings)
        self.holding.listener = listener
        self._client.set_topics({self._settings.topic})
        self._coordinator = SourceCoordinator(self._client, self._settings, self.holding)
        try:
            await self.holding.ready()
        except BaseException:
            await self.leave()
            raise

    async def leave(self) -> None:
        """Gives partitions up, and leaves the group."""
        coordinator = self._coordinator
        if coordinator is None:
            return
        await self.holding.give_up(is_member=coordinator.is_member)
        await coordinator.close()
        await self.holding.give_up(is_member=False)
        self._coordinator = None

    async def ask(self, request: WireRequest) -> Any:
        """Sends a request to the group's coordinator, and returns the answer.

        Raises:
            KafkaError: The coordinator gives no answer.
        """
        if self._coordinator is None:
            raise GroupCoordinatorNotAvailableError
        return await self._coordinator.ask(request)

    def look_again(self) -> None:
        """Notes that another broker coordinates the group now."""
        if self._coordinator is not None:
            self._coordinator.look_again()

    def _rejoin(self) -> None:
        if self._coordinator is not None:
            self._coordinator.request_rejoin()
