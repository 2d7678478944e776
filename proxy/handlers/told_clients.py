"""What one connection was told of layouts, as decisions.

A client goes where Metadata sends it, so the decision by which it goes elsewhere than before is the first answer that
tells it another layout: one REDIRECT for each topic and layout epoch, however often it asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kordon.codecs import apis
from kordon.codecs.decision import Kind
from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.takeover import may_be_shown

if TYPE_CHECKING:
    from kordon.proxy.decisions.journal import Journal
    from kordon.proxy.decisions.runs import Client
    from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics

TELLS_LAYOUTS: Final = frozenset({apis.METADATA, apis.DESCRIBE_TOPIC_PARTITIONS})


class ToldClient:
    """What a client was told.

    Args:
        client: Its connection.
        topics: What is managed.
        journal: Where decisions are recorded.
    """

    def __init__(self, client: Client, topics: ManagedTopics, journal: Journal) -> None:
        self._client = client
        self._topics = topics
        self._journal = journal
        self._epochs: dict[str, int] = {}
        """By topic, the layout epoch that it was told last."""

    def looks_at(self, api_key: int) -> Callable[[Any], None]:
        """Returns what is to be given the translated answers of an api of `TELLS_LAYOUTS`."""
        return lambda answer: self._tell_layouts(api_key, answer)

    def _tell_layouts(self, api_key: int, answer: Any) -> None:
        for row in answer["topics"]:
            topic = self._topics.served(row.get("name") or "")
            if topic is None:
                continue
            layout = topic.layout
            if row["error_code"] or not may_be_shown(layout):
                if row["error_code"] == Code.LEADER_NOT_AVAILABLE and not may_be_shown(layout):
                    self._refuse(api_key, topic)
                continue
            if self._epochs.get(topic.name) == layout.epoch:
                continue
            known = self._epochs.get(topic.name)
            self._epochs[topic.name] = layout.epoch
            evidence = {"known_epoch": known, "undeleted_partition_count": layout.u, "told": len(row["partitions"])}
            self._journal.note(
                self._client.decision(
                    Kind.REDIRECT,
                    api_key=api_key,
                    topic=topic.name,
                    layout_epoch=layout.epoch,
                    layouts_offset=topic.layouts_offset,
                    reason="metadata",
                    evidence=evidence,
                )
            )

    def _refuse(self, api_key: int, topic: ManagedTopic) -> None:
        """Notes that a topic is not shown while it is taken over (TAKEOVER-WAITS), or its broker has no leader."""
        self._journal.refused(
            self._client,
            api_key=api_key,
            reason=Code.LEADER_NOT_AVAILABLE.name,
            topic=topic.name,
            rule="TAKEOVER-WAITS",
            layout_epoch=topic.layout.epoch,
            layouts_offset=topic.layouts_offset,
        )
