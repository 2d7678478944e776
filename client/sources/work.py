"""The transaction that is open, with the restart points that are committed with it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from aiokafka.errors import CommitFailedError, IllegalOperation, KafkaError, ProducerFenced

from kordon.client.sources.errors import SourceRebalancedError
from kordon.client.sources.outgoing import NotCommitted, Outgoing
from kordon.client.sources.store import SourceMember
from kordon.client.sources.tenure import NotOwned, Tenure
from kordon.codecs.source_points import check_text

_log = logging.getLogger(__name__)

_CUT: Final = (
    "the transaction is over, since the group has shared the source partitions out anew: begin another one, and go on "
    "from the restart points that it gives"
)
_FENCED: Final = (CommitFailedError, ProducerFenced)
_FAILED: Final = (KafkaError, IllegalOperation)
"""What a producer raises; aiokafka's IllegalOperation is no KafkaError."""
_NONE_OPEN: Final = "no transaction is open: begin one first (`async with producer.transaction() as points`)"
_OPEN_ALREADY: Final = "a transaction is open: commit or abort it before another one begins"


class BegunTransaction:
    """One that the application has begun.

    Args:
        tenure: The assignment of the transaction.
        member: The member that commits it.
    """

    def __init__(self, tenure: Tenure, member: SourceMember) -> None:
        self.tenure = tenure
        self.member = member
        self.texts: dict[int, str] = {}
        """The restart points that are committed with it."""
        self.is_cut = False
        """Whether it was ended for the group's sake."""
        self.is_ending = False
        """Whether the application waits for its end."""
        self.ended = asyncio.Event()


class Work:
    """What the application writes, one transaction after the other.

    Args:
        outgoing: Writes the records.
        lose_track: Is called where nobody here knows whether something is committed.
    """

    def __init__(self, outgoing: Outgoing, lose_track: Callable[[], None]) -> None:
        self._outgoing = outgoing
        self._lose_track = lose_track
        self._open: BegunTransaction | None = None

    @property
    def opened(self) -> BegunTransaction | None:
        """The transaction that the application has begun and not ended."""
        return self._open

    async def begin(self, tenure: Tenure, member: SourceMember) -> BegunTransaction:
        """Begins a transaction.

        Raises:
            IllegalOperation: A transaction is already open.
            SourceRebalancedError: Nothing can be begun before partitions are assigned again.
        """
        if self._open is not None and not self._open.is_cut:
            raise IllegalOperation(_OPEN_ALREADY)
        self._open = begun = BegunTransaction(tenure, member)
        try:
            await self._outgoing.begin()
        except BaseException as error:
            self._end(begun)
            self._lose_track()
            if isinstance(error, _FAILED):
                raise SourceRebalancedError(_CUT) from error
            raise
        return begun

    def require(self, begun: BegunTransaction | None) -> BegunTransaction:
        """Checks that something may be written.

        Raises:
            SourceRebalancedError: The transaction was aborted.
            IllegalOperation: No transaction is open.
        """
        if begun is None:
            raise IllegalOperation(_NONE_OPEN)
        if begun.is_cut:
            self._end(begun)
            raise SourceRebalancedError(_CUT)
        if begun.ended.is_set():
            raise IllegalOperation(_NONE_OPEN)
        return begun

    def writing(self) -> BegunTransaction:
        """Returns the transaction in which something is written; is called for each record.

        Raises:
            SourceRebalancedError: The transaction is over.
            IllegalOperation: No transaction is open.
        """
        opened = self._open
        return opened if opened is not None and not opened.is_cut else self.require(opened)

    def judge(self, opened: BegunTransaction, error: Exception) -> Exception:
        """Returns the error for an application that could not write: that its transaction is over, or the cause."""
        if opened.is_cut:
            self._end(opened)
        elif isinstance(error, _FENCED) or isinstance(error.__cause__, _FENCED):
            self._lose_track()
            self._end(opened)
        else:
            return error
        return SourceRebalancedError(_CUT)

    def restart_at(self, begun: BegunTransaction | None, points: Mapping[int, str]) -> None:
        """Keeps restart points until the transaction is committed.

        Raises:
            SourceRebalancedError: The transaction was aborted.
            IllegalOperation: None is open, or a partition is not this member's.
            ValueError: A point is too long.
            TypeError: A point is no text.
        """
        opened = self.require(begun)
        for partition, text in points.items():
            check_text(text)
            if partition not in opened.tenure.partitions:
                raise _not_owned(partition, opened.tenure)
        opened.texts.update(points)

    async def commit(self, begun: BegunTransaction | None) -> None:
        """Commits the transaction with its restart points.

        Raises:
            SourceRebalancedError: The group has moved on; nothing of it is committed.
            IllegalOperation: No transaction is open.
            KafkaError: Why it failed. Begin another one: the restart points that it gives say what is committed.
        """
        opened = self.require(begun)
        opened.is_ending = True
        try:
            await self._put(opened)
            await self._committed(opened)
        finally:
            self._end(opened)

    async def abort(self, begun: BegunTransaction | None) -> None:
        """Aborts the transaction; does nothing where that has been done."""
        if begun is None or begun.ended.is_set():
            return
        if not begun.is_cut:
            begun.is_ending = True
            await self._dropped(begun)
        self._end(begun)

    async def cut(self, seconds: float) -> None:
        """Waits for the open transaction, and aborts it then (ENDED-FIRST).

        Args:
            seconds: How long it may continue.
        """
        opened = self._open
        if opened is None or opened.is_cut:
            return
        try:
            async with asyncio.timeout(seconds):
                await opened.ended.wait()
        except TimeoutError:
            opened.is_cut = True
            if opened.is_ending:
                self._lose_track()  # it may be committed, or not
                return
            _log.warning("A transaction was open for longer than drain_timeout_ms when partitions were given up")
            await self._dropped(opened)

    async def _put(self, opened: BegunTransaction) -> None:
        """Adds the restart points; on an error nothing is committed."""
        try:
            points = opened.tenure.next_points(opened.texts, time.time_ns() // 1_000_000)
            await self._outgoing.put(points, opened.member)
        except NotOwned as error:
            await self._dropped(opened)
            raise _not_owned(error.args[0], opened.tenure) from error
        except _FENCED as error:
            await self._dropped(opened)
            self._lose_track()
            raise SourceRebalancedError(_CUT) from error
        except asyncio.CancelledError:
            self._lose_track()
            raise
        except Exception:
            await self._dropped(opened)
            raise

    async def _committed(self, opened: BegunTransaction) -> None:
        """Commits; whatever goes wrong now, the record alone knows whether it is committed (ID-ONCE)."""
        try:
            await self._outgoing.commit()
        except NotCommitted as error:
            await self._dropped(opened)
            raise error.__cause__ or error from None
        except BaseException as error:
            self._lose_track()
            if isinstance(error, _FENCED):
                raise SourceRebalancedError(_CUT) from error
            raise
        opened.tenure.ended(committed=True)

    async def _dropped(self, opened: BegunTransaction) -> None:
        """Aborts; a transaction that cannot be aborted is left to whoever fences it."""
        try:
            await self._outgoing.abort()
        except _FAILED as error:
            _log.warning("A transaction could not be aborted, so another transactional id is taken: %r", error)
            self._lose_track()
        except BaseException:
            self._lose_track()
            raise
        else:
            opened.tenure.ended(committed=False)

    def _end(self, begun: BegunTransaction) -> None:
        begun.ended.set()
        if self._open is begun:
            self._open = None


def _not_owned(partition: int, tenure: Tenure) -> IllegalOperation:
    return IllegalOperation(
        f"source partition {partition} is not this producer's, which has {sorted(tenure.partitions)}: name only those "
        "that the transaction has given"
    )
