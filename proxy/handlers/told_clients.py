"""What one connection was told of layouts, as decisions.

A client goes where Metadata sends it, so the decision by which it goes elsewhere than before is the first answer that
tells it another layout: one REDIRECT for each topic and layout epoch, however often it asks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kordon.codecs.decision import Decision, Kind
from kordon.codecs.error_codes import Code
from kordon.proxy.decisions.events import OwnError, topic_fields
from kordon.proxy.handlers.share_sessions import ShareSessions
from kordon.proxy.ordering.takeover import may_be_shown
from kordon.proxy.reads.fetch_sessions import KeptFetches

if TYPE_CHECKING:
    from kordon.codecs.bodies import DescribeTopicPartitionsResponse, MetadataResponse
    from kordon.proxy.decisions.journal import Journal
    from kordon.proxy.decisions.runs import Client
    from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics


class ToldClient:
    """What a client was told.

    Attributes:
        fetches: What is kept of the client's Fetch requests.
        shares: The client's share sessions.
        unqueued: The client's Produce requests for managed topics whose batches are not queued yet, in their order,
            each with what is set when it is the first; None: it does not wait for that.
    """

    def __init__(self, client: Client, topics: ManagedTopics, journal: Journal) -> None:
        self.client = client
        self._topics = topics
        self._journal = journal
        self.fetches = KeptFetches()
        self.shares = ShareSessions()
        self.unqueued: dict[object, asyncio.Event | None] = {}
        self._epochs: dict[str, int] = {}
        """By topic, the layout epoch that it was told last."""

    def tell_layouts(self, api_key: int, answer: MetadataResponse | DescribeTopicPartitionsResponse) -> None:
        """Records the layouts that an answer tells the client of; it is as the client gets it."""
        for row in answer.topics:
            topic = self._topics.served(row.name or "")
            if topic is None:
                continue
            layout = topic.layout
            if row.error_code or not may_be_shown(layout):
                if row.error_code == Code.LEADER_NOT_AVAILABLE and not may_be_shown(layout):
                    self._refuse(api_key, topic)
                continue
            known = self._epochs.get(topic.name)
            if known == layout.epoch:
                continue
            self._epochs[topic.name] = layout.epoch
            evidence = {"known_epoch": known, "undeleted_partition_count": layout.u, "told": len(row.partitions)}
            self._journal.note(
                Decision(
                    kind=Kind.REDIRECT,
                    **self.client.fields(),
                    api_key=api_key,
                    **topic_fields(topic),
                    reason="metadata",
                    evidence=evidence,
                )
            )

    def _refuse(self, api_key: int, topic: ManagedTopic) -> None:
        """Notes that a topic is not shown while it is taken over (TAKEOVER-WAITS), or its broker has no leader."""
        error = OwnError.about(topic, api_key, Code.LEADER_NOT_AVAILABLE, rule="TAKEOVER-WAITS")
        self._journal.refused(self.client, error)
