"""Wishes that a topic be a source topic, or none any more; all others are the controller's.

No layout rests on them, so the worker that gets one writes it down by itself (`own_topics/sources_log.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias
from uuid import UUID

from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.handlers.topic_wishes import AnyWish
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.source_records import SourceTopic, SourceWish
from kordon.proxy.ordering.wishes import Manage, Wish
from kordon.proxy.own_topics.sources_log import SourcesLog
from kordon.proxy.runtime.clock import now_ms
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.source_topics import MOST_TOPICS

_Others: TypeAlias = Callable[[Wish], Awaitable[OutcomeRecord]]
_DONE: Final = OutcomeRecord(Code.NONE, "")


class SourceWishes:
    """Fulfils wishes for source topics.

    Args:
        topics: The managed topics and the source topics.
        others: Has a wish for a managed topic come true.
        check_others: Tells what would come of one.
    """

    def __init__(
        self, topics: ManagedTopics, log: SourcesLog, admin: TopicsAdmin, others: _Others, check_others: _Others
    ) -> None:
        self._topics = topics
        self._log = log
        self._admin = admin
        self._others = others
        self._check_others = check_others

    async def fulfil(self, wish: AnyWish) -> OutcomeRecord:
        """Has a wish come true, and returns what came of it.

        Raises:
            UpstreamUnavailable: The outcome is unknown.
        """
        if (refusal := self._refusal(wish)) is not None:
            return refusal
        if not isinstance(wish, SourceWish):
            return await self._others(wish)
        if not wish.on:
            if wish.topic in self._topics.sources:
                await self._log.revoke(wish.topic)
            return _DONE
        topic_id = await self._empty_topic(wish.topic)
        if isinstance(topic_id, OutcomeRecord):
            return topic_id
        await self._log.declare(wish.topic, SourceTopic(topic_id, now_ms()))
        return _DONE

    async def check(self, wish: AnyWish) -> OutcomeRecord:
        """Returns what would come of a wish now, and changes nothing."""
        if (refusal := self._refusal(wish)) is not None:
            return refusal
        return _DONE if isinstance(wish, SourceWish) else await self._check_others(wish)

    def _refusal(self, wish: AnyWish) -> OutcomeRecord | None:
        sources, name = self._topics.sources, wish.topic
        if isinstance(wish, Manage) and name in sources:
            return OutcomeRecord(
                Code.INVALID_CONFIG, f"{name} is a source topic, which has no records: delete its config kordon.source"
            )
        if not isinstance(wish, SourceWish) or not wish.on:
            return None
        if self._topics.is_held(name):
            return OutcomeRecord(
                Code.INVALID_CONFIG, f"{name} is managed, so it has records: take another topic for the source"
            )
        if name not in sources and len(sources) >= MOST_TOPICS:
            return OutcomeRecord(
                Code.POLICY_VIOLATION,
                f"there are {len(sources)} source topics, and at most {MOST_TOPICS}: delete some that nobody needs",
            )
        return None

    async def _empty_topic(self, name: str) -> UUID | OutcomeRecord:
        """Returns the id of a topic without records, or why it cannot be a source topic."""
        try:
            leaders = await self._admin.wait_for_leaders(name, partitions=1)
            topic_id = await self._admin.topic_id(name)
        except UpstreamUnavailable as error:
            return OutcomeRecord(Code.INVALID_CONFIG, f"{name} cannot be a source topic now: {error}")
        starts = await self._admin.ends.log_starts(name, leaders)
        ends = await self._admin.ends.ends_of(name, leaders)
        if any(end.log_end_offset > starts[each] for each, end in ends.items()):
            return OutcomeRecord(
                Code.INVALID_CONFIG, f"{name} has records, and a source topic has none: take another topic"
            )
        return topic_id
