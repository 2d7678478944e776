"""The layouts of a member's topics: what this client knows of them, and whether that is enough to begin with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from kordon.client.dialect_client import DialectClient
from kordon.client.moves_events import TopicGate
from kordon.client.segments import Segments

_BELIEVED_SECONDS: Final = 5.0
"""For how long a topic counts as managed because the group's leader knew its layout, while nobody else does."""


class KnownLayouts:
    """Compares the layouts that this client knows with those by which partitions were shared out."""

    def __init__(self, client: DialectClient) -> None:
        self.segments = Segments(client)
        self._client = client

    def epoch(self, topic: str) -> int:
        """Returns the layout epoch of a topic; -1: the topic is not managed, as far as is known."""
        layout = self._client.layouts.get(topic)
        return -1 if layout is None else layout.layout_epoch

    def gates(self, topics: Collection[str]) -> dict[str, TopicGate]:
        """Returns the gates of those topics whose keys are delivered in order and whose segments are known."""
        gates: dict[str, TopicGate] = {}
        for topic in topics:
            layout, known = self._client.layouts.get(topic), self.segments.get(topic)
            if layout is not None and layout.enable_ordered_delivery and known is not None:
                gates[topic] = known.gate
        return gates

    async def learn(self, topics: Collection[str], assigned_by: Mapping[str, int], age_seconds: float) -> bool:
        """Learns what a member needs to begin with an assignment; False: try again later.

        By older segments than those that were shared out, new partitions would have nothing to wait for.

        Args:
            assigned_by: The layout epochs by which partitions were shared out, by topic.
        """
        if self._is_behind(assigned_by, age_seconds):
            await self._client.force_metadata_update()
            if self._is_behind(assigned_by, age_seconds):
                return False
        if any(self._client.cluster.partitions_for_topic(topic) is None for topic in topics):
            return False  # nobody has said whether it is managed
        return await self.segments.refresh(topics)

    def _is_behind(self, assigned_by: Mapping[str, int], age_seconds: float) -> bool:
        """Whether the group's leader knew newer layouts; of a topic without one that is not believed for long."""
        may_be_let_go = age_seconds > _BELIEVED_SECONDS
        return any(
            self.epoch(topic) < epoch and not (may_be_let_go and self._client.layouts.get(topic) is None)
            for topic, epoch in assigned_by.items()
        )
