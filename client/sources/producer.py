"""`SourceProducer`: producers of one source that share its partitions, and continue where the last one has stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import fields
from types import TracebackType
from typing import Any, Final, Self, Unpack, cast

from aiokafka.errors import IllegalOperation, ProducerFenced
from aiokafka.structs import RecordMetadata
from aiokafka.util import create_task

from kordon.client.batches import Header
from kordon.client.sources.errors import SourceLeftError
from kordon.client.sources.listener import SourceRebalanceListener
from kordon.client.sources.liveness import Liveness
from kordon.client.sources.session import Session
from kordon.client.sources.settings import SourceOptions, SourceSettings
from kordon.client.starting import start_or_stop

_log = logging.getLogger(__name__)

_OWN: Final = frozenset(each.name for each in fields(SourceSettings))


class SourceProducer:
    """A producer that shares the partitions of a source with the others of its group (KIP-509).

    The group gives each source partition to one of them, with its *restart point*: a text in which the application has
    said how far it had come. Data and restart points are committed in one transaction, so what is written is written
    once, whoever dies. It needs Kafka 2.5 or newer, and works with and without Kordon. docs/sources.md has the rest.

    Args:
        group_id: Whoever has the same one shares the source.
        source_partition_count: How many partitions the source has; the same in all members. None: as many as its topic
            has, and more when that grows.
        session_timeout_ms: The time after which a silent member is considered dead. An application that neither sends
            nor calls `alive` for so long leaves the group, too. By default 30,000. Brokers accept 6,000 to 1,800,000
            unless they are configured otherwise (group.min.session.timeout.ms).
        options: Those of OrderedProducer, but for `transactional_id`; and those of `SourceOptions`.

    Raises:
        ValueError: Options are out of their ranges, or do not fit one another.
    """

    def __init__(
        self,
        *,
        group_id: str,
        source_partition_count: int | None,
        session_timeout_ms: int = 30_000,
        **options: Unpack[SourceOptions],
    ) -> None:
        told = dict(cast("dict[str, Any]", options))
        own = {name: told.pop(name) for name in _OWN & told.keys()}
        self._settings = SourceSettings(group_id, source_partition_count, session_timeout_ms, **own)
        if "transactional_id" in told:
            raise ValueError(
                "`transactional_id` makes no sense for a SourceProducer: it makes one for each life in the group"
            )
        self._options: Any = told
        self._session: Session | None = None
        self._liveness = Liveness(session_timeout_ms / 1000, time.monotonic())
        self._watching: asyncio.Task[None] | None = None
        self._has_left = False

    async def start(self) -> None:
        """Connects.

        Raises:
            KafkaConnectionError: No bootstrap server answers.
        """
        self._session = Session(self._settings, self._options)
        await self._session.start()

    async def stop(self) -> None:
        """Waits for the open transaction (`drain_timeout_ms`), leaves the group, and closes all connections."""
        await self._stop_watching()
        if self._session is not None:
            session, self._session = self._session, None
            await session.stop()

    async def __aenter__(self) -> Self:
        """Starts; what cannot be started is stopped."""
        await start_or_stop(self)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stops."""
        await self.stop()

    async def subscribe(self, listener: SourceRebalanceListener | None = None) -> dict[int, str | None]:
        """Joins the group; returns when this member has its share.

        Args:
            listener: Called when partitions are given up and when they are assigned.

        Returns:
            By source partition its restart point; None: none was ever committed. Empty: this member is a standby.

        Raises:
            SourceCountError: The source has another number of partitions.
            UnknownTopicOrPartitionError: There is no source topic, and no number to create it with.
            SourcePointError: A commit of the group is not a restart point.
            IllegalOperation: The producer has already subscribed.
            KafkaError: The member cannot join the group.
        """
        session = self._started()
        if self._has_left and self._watching is not None:
            await asyncio.gather(self._watching, return_exceptions=True)  # it is leaving
        if session.has_joined:
            raise IllegalOperation("this producer has subscribed already")
        self._has_left = False
        with self._called():
            await session.join(listener)
        self._watching = create_task(self._watch(session))
        return session.holding.points

    @property
    def points(self) -> dict[int, str | None]:
        """The restart points of the source partitions that are this member's now. A transaction gives them, too."""
        return self._started().holding.points

    async def send(  # noqa: PLR0917  as OrderedProducer
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[Header] | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Queues a record, as `OrderedProducer.send` does; it belongs to the open transaction.

        Raises:
            SourceRebalancedError: The transaction was aborted: begin another one.
            IllegalOperation: No transaction is open.
            KafkaError: As for `OrderedProducer.send`.
        """
        session = self._joined()
        work = session.holding.work
        opened = work.writing()
        self._liveness.begin()
        try:
            return await session.outgoing.producer.send(topic, value, key, partition, timestamp_ms, headers)
        except (IllegalOperation, ProducerFenced) as error:
            told = work.judge(opened, error)
            if told is error:
                raise
            raise told from error
        finally:
            self._liveness.end(time.monotonic())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[dict[int, str | None]]:
        """Begins a transaction, gives the restart points, and commits at the end; aborts on an error.

        It waits for an assignment first. While it is open the assignment does not change, unless it takes longer than
        `drain_timeout_ms` after another member has come or gone.

        Raises:
            SourceRebalancedError: The transaction was aborted: begin another one.
            SourceLeftError: This producer has left the group.
            KafkaError: The transaction failed.
        """
        points = await self.begin_transaction()
        work = self._joined().holding.work
        opened = work.opened
        try:
            yield points
        except BaseException:
            await work.abort(opened)
            raise
        with self._called():
            await work.commit(opened)

    async def begin_transaction(self) -> dict[int, str | None]:
        """Begins a transaction; returns the restart points.

        Raises:
            IllegalOperation: A transaction is already open.
            SourceRebalancedError: The transaction could not begin. Try again.
            SourceLeftError: This producer has left the group.
            KafkaError: The group cannot assign partitions.
        """
        holding = self._joined().holding
        with self._called():
            await holding.begin()
        return holding.points

    def restart_at(self, points: Mapping[int, str]) -> None:
        """Says how far the open transaction has come with source partitions.

        Args:
            points: A text of at most 4,000 bytes by partition. Partitions that are not named keep their points.

        Raises:
            SourceRebalancedError: The transaction was aborted: begin another one.
            IllegalOperation: None is open, or a partition is not this member's.
            ValueError: A text is too long.
            TypeError: A point is not a str.
        """
        work = self._joined().holding.work
        work.restart_at(work.opened, points)
        self.alive()

    async def commit_transaction(self, point: str | Mapping[int, str] | None = None) -> None:
        """Commits the open transaction.

        Args:
            point: The points as `restart_at` takes them. A single text, as in KIP-509, belongs to this member's only
                partition.

        Raises:
            SourceRebalancedError: The transaction was aborted: begin another one.
            IllegalOperation: None is open, or a single text is given and this member has another number of partitions.
            KafkaError: The transaction failed.
        """
        work = self._joined().holding.work
        if isinstance(point, str):
            mine = sorted(self.points)
            if len(mine) != 1:
                raise IllegalOperation(
                    f"a single restart point needs a single source partition, and this producer has {mine}: give "
                    "{partition: restart point}"
                )
            point = {mine[0]: point}
        if point:
            work.restart_at(work.opened, point)
        with self._called():
            await work.commit(work.opened)

    async def abort_transaction(self) -> None:
        """Aborts the open transaction; its restart points stay as they were."""
        work = self._joined().holding.work
        with self._called():
            await work.abort(work.opened)

    def alive(self) -> None:
        """Says that the application is alive, though its source has had nothing new."""
        self._liveness.alive(time.monotonic())

    def _started(self) -> Session:
        if self._session is None:
            raise IllegalOperation("this producer is not started: use `async with`, or `await producer.start()`")
        return self._session

    def _joined(self) -> Session:
        session = self._session
        if session is not None and session.has_joined and not self._has_left:
            return session
        self._started()
        if self._has_left:
            raise SourceLeftError(
                f"this producer has left its group, since the application did nothing for "
                f"{self._settings.session_timeout_ms} ms (session_timeout_ms): call `alive()` while the source has "
                "nothing new, and `subscribe()` to come back"
            )
        raise IllegalOperation("this producer has no source partitions yet: `await producer.subscribe()` first")

    @contextmanager
    def _called(self) -> Iterator[None]:
        """Marks that the application waits for a call."""
        self._liveness.begin()
        try:
            yield
        finally:
            self._liveness.end(time.monotonic())

    async def _watch(self, session: Session) -> None:
        """Leaves the group when the application does nothing any more; a standby has nothing to do."""
        while True:
            await asyncio.sleep(self._liveness.seconds_left(time.monotonic()))
            now = time.monotonic()
            if not session.holding.partitions:
                self._liveness.alive(now)
            elif self._liveness.is_dead(now):
                _log.error(
                    "The application has neither sent nor called alive() for %d ms (session_timeout_ms): source "
                    "partitions %s go to other members",
                    self._settings.session_timeout_ms,
                    sorted(session.holding.partitions),
                )
                self._has_left = True
                await session.leave()
                return
            elif self._liveness.is_to_be_warned(now):
                _log.warning(
                    "The application has neither sent nor called alive() for half of session_timeout_ms (%d): after "
                    "all of it this producer leaves its group",
                    self._settings.session_timeout_ms,
                )

    async def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None
