"""The log of lent epochs, as one worker reads and writes it (`ordering/lent_epochs.py`).

Records count by their order, so whoever has written one reads it back before it believes that.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from random import uniform
from typing import Final

import structlog

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.ordering.lent_epoch_records import dump, load, transactional_id_of
from kordon.proxy.ordering.lent_epochs import Lent
from kordon.proxy.ordering.lent_table import LentTable
from kordon.proxy.own_topics.compacted_topic import PRODUCERS
from kordon.proxy.own_topics.followed_log import FollowedLog
from kordon.proxy.runtime.clock import now_ms
from kordon.proxy.runtime.tasks import Tasks

log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 5.0
"""Between two looks at what somebody left spoilt, and at what may be forgotten."""
_FORGOTTEN_AT_ONCE: Final = 100
_FIRST_MENDING_SECONDS: Final = 0.02
_LAST_MENDING_SECONDS: Final = 2.0


class LentEpochsLog:
    """Reads the log, writes to it, and keeps it such that compaction leaves what counts.

    Args:
        topic: The name of the log.
    """

    def __init__(self, brokers: Brokers, topic: str = PRODUCERS.name) -> None:
        self.table = LentTable()
        """As far as has been read."""
        self.late = 0
        """Records that were read and did not count."""
        self.log = FollowedLog(brokers, replace(PRODUCERS, name=topic), self)
        self._tasks = Tasks()
        self._own: dict[str, int] = {}
        """By key, how many writes of this worker wait to be read back."""
        self._mending: set[str] = set()
        self._counted: dict[int, bool] = {}
        """By offset, whether a record counts, of those keys."""

    @property
    def problem(self) -> str | None:
        """Why the topic cannot be had, as far as is known; None: it can, or nobody has tried."""
        return self.log.problem

    async def close(self) -> None:
        """Ends reading and writing."""
        await self._tasks.stop()
        await self.log.close()

    async def read_to_end(self) -> None:
        """Returns when all that stood in the log at the time of the call has been read.

        Raises:
            UpstreamUnavailable: The log could not be read to its end in time.
        """
        await self.log.read_to_end()

    async def write(self, key: str, lent: Lent) -> bool:
        """Writes a record, and has mended what it spoils if it does not count; returns whether it does.

        Raises:
            UpstreamUnavailable: The record may or may not be written.
        """
        counts = await self._write(key, dump(lent))
        if not counts:
            self._mend_soon(key)
        return counts

    def _mend_soon(self, key: str) -> None:
        if key not in self._mending:
            self._mending.add(key)
            self._tasks.start(self._mend(key), name="mend lent epochs")

    async def _mend(self, key: str) -> None:
        """Writes a record that counts after one that does not.

        Other proxies may do so at the same time, and spoil the key again. So each waits for a time of its own before it
        looks again.
        """
        pause = _FIRST_MENDING_SECONDS
        try:
            while True:
                await asyncio.sleep(uniform(0, pause))  # noqa: S311 - nobody gains by knowing it
                mended = self.table.mended(key)
                if mended is None:
                    return
                await self._write(key, dump(mended))
                pause = min(2 * pause, _LAST_MENDING_SECONDS)
        except UpstreamUnavailable as error:
            log.warning("lent_epoch_not_mended", error=str(error), means="it is tried again by whoever follows the log")
        finally:
            self._mending.discard(key)

    async def _write(self, key: str, value: bytes | None) -> bool:
        self._own[key] = self._own.get(key, 0) + 1
        try:
            offset = await self.log.write([NewRecord(key, value)])
        finally:
            self._own[key] -= 1
            if not self._own[key]:
                del self._own[key]
            if not self._own:
                counted, self._counted = self._counted, {}
            else:
                counted = self._counted
        return counted.pop(offset, False)

    async def _tidy(self) -> None:
        """Mends what others left spoilt, and forgets ids that nobody has used for long."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for key in self.table.left_spoilt(time.monotonic()):
                self._mend_soon(key)
            with suppress(UpstreamUnavailable):  # it is tried again
                silent = self.table.silent(now_ms())
                for key in list(islice(silent, _FORGOTTEN_AT_ONCE)):
                    await self._write(key, None)

    def take_in(self, record: Record) -> None:
        """Takes in a record of the log.

        Raises:
            ValueError: The record cannot be read.
        """
        now = time.monotonic()
        try:
            if record.fault:
                raise ValueError(record.fault)
            if transactional_id_of(record.key) is None:
                return  # of a later version of Kordon
            lent = None if record.value is None else load(record.value)
        except ValueError:
            self.table.spoil(record.key, now)
            raise
        if record.value is None:
            counts = self.table.forget(record.key, record.timestamp_ms, now)
        else:
            counts = self.table.take_in(record.key, lent, record.timestamp_ms, now)
            self.late += not counts
        if record.key in self._own:
            self._counted[record.offset] = counts

    def forget(self) -> None:
        """Forgets what is lent: brokers say what epochs there are."""
        self.table = LentTable()
        self._counted.clear()

    def caught_up(self, work: Tasks) -> None:
        """Begins to mend and to forget what the log tells."""
        work.keep(self._tidy, name="tidy lent epochs")
