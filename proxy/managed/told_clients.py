"""What one connection was told of layouts and of producers' identities, as decisions.

A client goes where Metadata sends it, so the decision by which it goes elsewhere than before is the first answer that
tells it another layout: one REDIRECT for each topic and layout epoch, however often it asks. What a coordinator answers
to InitProducerId is no decision of Kordon's; it is noted because the auditor holds it against KIP-360.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kordon.codecs.decision import Kind
from kordon.codecs.errors import WireError
from kordon.codecs.messages import request
from kordon.proxy import apis
from kordon.proxy.ordering.takeover import may_be_shown

if TYPE_CHECKING:
    from kordon.proxy.decisions.journal import AnyJournal, Client
    from kordon.proxy.managed.topics import ManagedTopics

TELLS_LAYOUTS: Final = frozenset({apis.METADATA, apis.DESCRIBE_TOPIC_PARTITIONS})
_NOBODY: Final = -1
"""In place of a producer id or epoch that is not told."""


class ToldClient:
    """What a client was told.

    Args:
        client: Its connection.
        topics: What is managed.
        journal: Where decisions are recorded.
    """

    def __init__(self, client: Client, topics: ManagedTopics, journal: AnyJournal) -> None:
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
            if topic is None or row["error_code"] or not may_be_shown(topic.layout):
                continue
            layout = topic.layout
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

    def producer_asks(self, version: int, body: memoryview) -> Callable[[Any], None] | None:
        """Returns what is to be given the answer to an InitProducerId request; None: it names no transactional id."""
        try:
            asked, _ = request(apis.INIT_PRODUCER_ID).at(version).parse(body)
        except WireError:
            return None  # the broker says what is wrong with it
        if asked.transactional_id is None:
            return None
        given = [asked.get("producer_id", _NOBODY), asked.get("producer_epoch", _NOBODY)]
        return lambda answer: self._tell_identity(asked.transactional_id, given, answer)

    def _tell_identity(self, transactional_id: str, given: list[int], answer: Any) -> None:
        evidence = {
            "transactional_id": transactional_id,
            "given": given,
            "answered": [answer.producer_id, answer.producer_epoch],
            "error": answer.error_code,
        }
        self._journal.note(self._client.decision(Kind.ADMIT, api_key=apis.INIT_PRODUCER_ID, evidence=evidence))
