"""What a SourceProducer writes: data and restart points; each life in the group has a transactional id of its own."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping

from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from kordon.client.options import ProducerOptions
from kordon.client.producer import OrderedProducer
from kordon.client.sources.member_producer import MemberProducer
from kordon.client.sources.settings import SourceSettings
from kordon.client.sources.store import PointStore, SourceMember
from kordon.codecs.source_points import OFFSET, Point, build


class NotCommitted(Exception):  # noqa: N818  its cause is the error
    """Nothing of a transaction is committed, for the reason that is its cause: it can only be aborted."""


class Outgoing(ABC):
    """Data and restart points on their way: together (`TransactionalOutgoing`), or data first (`PlainOutgoing`)."""

    owner = ""
    """What stands for these transactions on record; empty: there are none."""
    producer: OrderedProducer
    """What data are sent by."""

    async def start(self) -> None:
        """Connects."""
        await self.producer.start()

    async def stop(self) -> None:
        """Closes all connections."""
        await self.producer.stop()

    @abstractmethod
    async def renew(self) -> None:
        """Continues under an id that nobody has used (ID-ONCE), if it has one."""

    @abstractmethod
    async def begin(self) -> None:
        """Begins."""

    @abstractmethod
    async def put(self, points: Mapping[int, Point], member: SourceMember) -> None:
        """Adds restart points to what is committed next; on an error nothing of it is committed."""

    @abstractmethod
    async def commit(self) -> None:
        """Commits.

        Raises:
            NotCommitted: Nothing is committed. After any other error it may be.
        """

    @abstractmethod
    async def abort(self) -> None:
        """Drops what was begun."""


class TransactionalOutgoing(Outgoing):
    """Data and restart points in one transaction (POINT-WITH-DATA).

    Args:
        settings: The group's settings.
        options: The producer's options.
    """

    def __init__(self, settings: SourceSettings, options: ProducerOptions) -> None:
        self._settings = settings
        self._options = options
        self.owner = uuid.uuid4().hex
        self.producer = self._own = self._made()

    async def renew(self) -> None:
        """Continues under an id that nobody has used (ID-ONCE)."""
        await self.producer.stop()
        self.owner = uuid.uuid4().hex
        self.producer = self._own = self._made()
        await self.producer.start()

    async def begin(self) -> None:
        """Begins a transaction."""
        await self.producer.begin_transaction()

    async def put(self, points: Mapping[int, Point], member: SourceMember) -> None:
        """Adds restart points to the transaction; after an error it can only be aborted."""
        topic, group_id = self._settings.topic, self._settings.group_id
        offsets = {
            TopicPartition(topic, each): OffsetAndMetadata(OFFSET, build(point)) for each, point in points.items()
        }
        if offsets:
            await self._own.commit_as(member, offsets, group_id)

    async def commit(self) -> None:
        """Commits the transaction; raises NotCommitted."""
        try:
            await self.producer.commit_transaction()
        except KafkaError as error:
            if self._own.can_only_abort:
                raise NotCommitted from error
            raise

    async def abort(self) -> None:
        """Aborts the transaction."""
        await self.producer.abort_transaction()

    def _made(self) -> MemberProducer:
        options = self._options.copy()
        options["transactional_id"] = f"{self._settings.group_id}.{self.owner}"
        return MemberProducer(**options)


class PlainOutgoing(Outgoing):
    """Data first, and restart points when they are written: at least once.

    Args:
        options: The producer's options.
        store: Where restart points are kept.
    """

    def __init__(self, options: ProducerOptions, store: PointStore) -> None:
        self.producer = OrderedProducer(**options)
        self._store = store
        self._points: Mapping[int, Point] = {}
        self._member: SourceMember | None = None

    async def renew(self) -> None:
        """Nothing of it could be open."""

    async def begin(self) -> None:
        """Nothing needs to begin."""

    async def put(self, points: Mapping[int, Point], member: SourceMember) -> None:
        """Keeps restart points until the data are written."""
        self._points, self._member = points, member

    async def commit(self) -> None:
        """Waits until all data are written, and commits the restart points then."""
        points, member, self._points, self._member = self._points, self._member, {}, None
        await self.producer.flush()
        if member is not None:
            await self._store.write(points, member)

    async def abort(self) -> None:
        """Forgets the restart points; data that were sent stay."""
        self._points, self._member = {}, None
