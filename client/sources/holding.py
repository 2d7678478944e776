"""The partitions that a member holds, and how it comes to them and gives them up.

They are taken in four steps, each of which is over before the next begins: ids that nobody has taken off the record are
fenced, the settled points are read, the own id is put on record, the application is told. They are given up in the
opposite order: the application is told, its transaction ends, the own id is taken off the record.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeVar

from aiokafka.errors import CommitFailedError, KafkaError
from aiokafka.util import create_task

from kordon.client.sources.listener import SourceRebalanceListener
from kordon.client.sources.outgoing import Outgoing
from kordon.client.sources.settings import SourceSettings
from kordon.client.sources.store import PointStore, SourceMember
from kordon.client.sources.tenure import Tenure
from kordon.client.sources.work import BegunTransaction, Work
from kordon.codecs.source_points import Point

_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.05
_RELEASE_SECONDS: Final = 5.0


class Holding:
    """The source partitions of one SourceProducer.

    Args:
        settings: The group's settings.
        store: Where restart points are.
        outgoing: Writes the records.
        rejoin: Has the group share the partitions out again.
    """

    def __init__(
        self, settings: SourceSettings, store: PointStore, outgoing: Outgoing, rejoin: Callable[[], None]
    ) -> None:
        self.listener: SourceRebalanceListener | None = None
        self.work = Work(outgoing, self._lose_track)
        self._settings = settings
        self._store = store
        self._outgoing = outgoing
        self._rejoin = rejoin
        self._tenure: Tenure | None = None
        self._member = SourceMember("", -1)
        self._taking: asyncio.Task[None] | None = None
        self._is_told = False
        self._needs_id = False
        self._failure: BaseException | None = None
        self._ready = asyncio.Event()
        """Set while transactions may begin, and while something is wrong."""
        self._giving = asyncio.Lock()

    async def ready(self) -> None:
        """Waits until partitions are assigned, and all is known of them.

        Raises:
            KafkaError: The group cannot assign partitions.
        """
        while not self._ready.is_set():
            await self._ready.wait()
        if self._failure is not None:
            raise copy.copy(self._failure)

    async def begin(self) -> BegunTransaction:
        """Begins a transaction; the assignment does not change before it ends.

        Raises:
            IllegalOperation: A transaction is already open.
            KafkaError: The group cannot assign partitions.
        """
        await self.ready()
        assert self._tenure is not None, "whoever is ready has one"
        return await self.work.begin(self._tenure, self._member)

    @property
    def points(self) -> dict[int, str | None]:
        """The restart points of the partitions that are this member's now."""
        return {} if self._tenure is None else self._tenure.points

    @property
    def partitions(self) -> frozenset[int]:
        """This member's."""
        return frozenset() if self._tenure is None else self._tenure.partitions

    def take(self, member: SourceMember, partitions: Collection[int]) -> None:
        """Begins with partitions."""
        self._failure = None
        self._taking = create_task(self._take(member, partitions))

    def fail(self, error: BaseException) -> None:
        """Raises an error in the task that begins a transaction."""
        self._failure = error
        self._ready.set()

    async def give_up(self, *, is_member: bool) -> None:
        """Ends what is open, and takes the own id off the record; nothing is written when this returns.

        Args:
            is_member: Whether the group has not thrown this member out.
        """
        async with self._giving:
            self._ready.clear()
            if self._taking is not None:
                self._taking.cancel()
                await asyncio.gather(self._taking, return_exceptions=True)
                self._taking = None
            if self._tenure is not None:
                if not is_member:
                    self._tenure.lose_track()
                await self._end(self._tenure, self._settings.drain_timeout_ms / 1000 if is_member else 0.0)
                self._tenure = None

    async def _end(self, tenure: Tenure, seconds: float) -> None:
        if self._is_told and self.listener is not None:
            self._is_told = False
            await _told(self.listener.on_source_partitions_revoked, sorted(tenure.partitions), seconds or None)
        await self.work.cut(seconds)
        points = tenure.release()
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._store.write(points, self._member)
        except (KafkaError, TimeoutError) as error:
            _log.warning("The group was not told that nothing is open, so another transactional id is taken: %r", error)
            tenure.lose_track()
        self._needs_id = self._needs_id or not tenure.keeps_id

    def _lose_track(self) -> None:
        """Has the points be read again, under another id."""
        self._ready.clear()
        self._needs_id = True
        if self._tenure is not None:
            self._tenure.lose_track()
        self._rejoin()

    async def _take(self, member: SourceMember, partitions: Collection[int]) -> None:
        try:
            if self._needs_id:
                await self._outgoing.renew()
                self._needs_id = False
            self._tenure = tenure = Tenure(self._outgoing.owner, partitions)
            self._member = member
            claims = tenure.begin(await self._settled(tenure, member) if partitions else {})
            await _repeated(lambda: self._store.write(claims, member))
            tenure.claimed()
        except CommitFailedError as error:
            _log.info("The partitions went to other members before this one had begun: %s", error)
            self._rejoin()
        except KafkaError as error:
            _log.error("Source partitions %s cannot be begun with: %s", sorted(partitions), error)
            self.fail(error)
        except Exception as error:
            _log.exception("Source partitions %s cannot be begun with", sorted(partitions))
            self.fail(error)
        else:
            self._is_told = True
            if self.listener is not None:
                await _told(self.listener.on_source_partitions_assigned, tenure.points, None)
            self._ready.set()

    async def _settled(self, tenure: Tenure, member: SourceMember) -> Mapping[int, Point]:
        """Returns the points when no transaction can change them any more (SETTLED-POINT)."""
        fenced: set[str] = set()
        while True:
            records = await _repeated(lambda: self._store.read(tenure.partitions, settled=False))
            if strangers := tenure.to_fence(records or {}) - fenced:
                # a member that has slept may have read the ids of those who own its partitions by now
                await _repeated(lambda: self._store.confirm(member))
                await self._store.fence(strangers, self._settings.session_timeout_ms / 1000)
                fenced |= strangers
            settled = await _repeated(lambda: self._store.read(tenure.partitions, settled=True))
            if settled is not None:
                return settled
            await asyncio.sleep(_RETRY_SECONDS)


_Told = TypeVar("_Told")


async def _told(call: Callable[[_Told], Awaitable[None] | None], what: _Told, seconds: float | None) -> None:
    """Calls the application; what goes wrong there is logged."""
    try:
        async with asyncio.timeout(seconds):
            called = call(what)
            if inspect.isawaitable(called):
                await called
    except TimeoutError:
        _log.warning("%s took longer than drain_timeout_ms", call.__name__)
    except Exception:
        _log.exception("%s has failed", call.__name__)


async def _repeated(ask: Callable[[], Awaitable[_Result]]) -> _Result:
    """Asks until there is an answer, or an error that will not pass."""
    while True:
        try:
            return await ask()
        except KafkaError as error:
            if not error.retriable:
                raise
        await asyncio.sleep(_RETRY_SECONDS)
