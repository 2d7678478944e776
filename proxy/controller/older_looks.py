"""Looks for the transactions that a change waits for (OLDER-FIRST): at leaders first, then at coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from kordon.codecs.shown_text import cut
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.kafka.transaction_coordinators import OpenTransaction
from kordon.proxy.ordering.announcing import OLDER_CURE
from kordon.proxy.ordering.changes import AskEnds, AskOpen, Change, OlderOpen
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.transactions.older_transactions import OpenAt, is_older

log = structlog.get_logger(__name__)

MOST_NAMED: Final = 5
"""Transactional ids that a line names; of more, how many there are."""
_LOOK_SECONDS: Final = 10.0


class OlderLooks:
    """Asks who is open, and tells what is waited for."""

    def __init__(self, admin: TopicsAdmin) -> None:
        self._admin = admin
        self._told: dict[str, frozenset[str]] = {}
        self._told_hanging: dict[str, frozenset[tuple[int, int]]] = {}
        self._unread: set[str] = set()
        """Topics of which somebody did not tell at the last look."""

    async def ends(self, command: AskEnds) -> Mapping[int, int] | None:
        """Returns log ends by partition; None if a leader does not tell."""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                found = await self._admin.ends.ends_of(command.topic, command.partitions)
        except (TimeoutError, UpstreamUnavailable) as error:
            self._tell_unread(command.topic, error)
            return None
        self._unread.discard(command.topic)
        return {q: each.log_end_offset for q, each in found.items()}

    async def open(self, command: AskOpen) -> tuple[list[OpenAt], list[OlderOpen]] | None:
        """Returns what leaders and then coordinators say; None if somebody does not tell.

        Coordinators are asked only of producers that may be older, which are none if nothing was open.
        """
        topic, ends = command.topic, command.ends
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                at_leaders = await self._at_leaders(topic, ends)
                older = {each.producer_id for each in at_leaders if is_older(each, ends)} | command.producer_ids
                found = await self._admin.transactions.open(older) if older else []
        except (TimeoutError, UpstreamUnavailable) as error:
            self._tell_unread(topic, error)
            return None
        self._unread.discard(topic)
        return at_leaders, list(older_of(topic, found))

    def tell(self, controller: Controller, topic: str) -> None:
        """Logs once which transactions a change waits for, and which ones hang and are not waited for."""
        change = controller.changes.get(topic)
        waited = frozenset(each.transactional_id for each in change.waited) if change is not None else frozenset[str]()
        if change is not None and waited - self._told.get(topic, frozenset()):
            seconds = max(each.ends_ms for each in change.waited) / 1000
            log.info(
                "change_waits_for_transactions",
                topic=topic,
                transactional_ids=[cut(each) for each in sorted(waited)[:MOST_NAMED]],
                count=len(change.waited),
                until=round(seconds),
                cure=OLDER_CURE,
            )
        self._told[topic] = waited
        if change is not None:
            self._tell_hanging(change)

    def forget(self, topic: str) -> None:
        """Forgets a topic whose change is over."""
        self._told.pop(topic, None)
        self._told_hanging.pop(topic, None)
        self._unread.discard(topic)

    def _tell_unread(self, topic: str, error: Exception) -> None:
        """Logs the first of several looks that fail one after the other."""
        if topic not in self._unread:
            log.warning("older_transactions_unread", topic=topic, error=str(error) or "no answer in time")
        self._unread.add(topic)

    def _tell_hanging(self, change: Change) -> None:
        hanging = frozenset(change.doubted) - change.left
        for q, producer_id in sorted(hanging - self._told_hanging.get(change.topic, frozenset()))[:MOST_NAMED]:
            log.warning(
                "transaction_hangs",
                topic=change.topic,
                partition=q,
                producer_id=producer_id,
                detail="no coordinator knows it, so the change does not wait for it",
                cure="kafka-transactions.sh find-hanging, then abort, at the brokers",
            )
        self._told_hanging[change.topic] = hanging

    async def _at_leaders(self, topic: str, ends: Mapping[int, int]) -> list[OpenAt]:
        found: list[OpenAt] = []
        for q, snapshot in (await self._admin.ends.snapshots(topic, ends)).items():
            for run in snapshot.producers.runs():
                found += [OpenAt(q, row.producer_id, row.current_txn_start_offset) for row in run if row.in_transaction]
                await asyncio.sleep(0)
        return found


def older_of(topic: str, found: Iterable[OpenTransaction]) -> Iterable[OlderOpen]:
    """Returns the transactions that name partitions of a topic."""
    for each in found:
        if partitions := each.partitions.get(topic):
            ends_ms = each.started_ms + each.timeout_ms
            yield OlderOpen(each.transactional_id, each.producer_id, partitions, each.state, ends_ms)
