"""The opening of one partition of the log of share groups: it is read, awaited, and written if it is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Final
from uuid import uuid4

import structlog

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.ordering.share.lock_records import OPENING, dump_opening, load_opening
from kordon.proxy.ordering.share.opening import Opening, Openings

_RETRY_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class LogOpening:
    """Knows which share groups are older than a partition of the log (OLD-GROUP).

    Args:
        older: Returns the share groups that there are, of those whose records are in the partition.
    """

    def __init__(self, older: Callable[[], Awaitable[Collection[str]]]) -> None:
        self._older = older
        self._openings = Openings()
        self._is_known = asyncio.Event()
        """Set when groups may begin."""

    def take_in(self, record: Record) -> None:
        """Takes in a record that is an opening; raises ValueError if it cannot be read."""
        opening = None if record.fault or record.value is None else load_opening(record.value)
        if opening is not None:
            self._openings.apply(opening)
            self._is_known.set()

    def forget(self) -> None:
        """Forgets all: the log is another one."""
        self._openings = Openings()
        self._is_known.clear()

    @property
    def is_known(self) -> bool:
        """Whether groups may begin."""
        return self._is_known.is_set()

    def begins_at_earliest(self, group_id: str) -> bool:
        """Whether a group of which the log says nothing may have read before the log was made."""
        return self._openings.begins_at_earliest(group_id)

    async def known(self, timeout: float) -> None:
        """Returns when groups may begin.

        Args:
            timeout: The time limit in seconds.

        Raises:
            UpstreamUnavailable: The groups may not begin in time.
        """
        with suppress(TimeoutError):
            if not self.is_known:
                await asyncio.wait_for(self._is_known.wait(), timeout)
        if not self.is_known:
            raise UpstreamUnavailable("it is not known which share groups are older than their log")

    async def write(self, write: Callable[[list[NewRecord]], Awaitable[None]]) -> None:
        """Writes which groups there are, until some worker has.

        Args:
            write: Writes records and reads them back; raises UpstreamUnavailable.
        """
        while not self.is_known:
            try:
                opening = Opening(frozenset(await self._older()))
                await write([NewRecord(f"{OPENING}/{uuid4().hex}", dump_opening(opening))])
            except (UpstreamUnavailable, ValueError) as error:
                log.warning(
                    "share_groups_not_opened",
                    error=str(error),
                    cure="check the brokers; until they list their groups, no share group begins",
                    retry_seconds=_RETRY_SECONDS,
                )
                await asyncio.sleep(_RETRY_SECONDS)
