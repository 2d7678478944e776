"""DeleteGroups: where a share group stood in managed topics is forgotten when its coordinator has deleted it."""

from __future__ import annotations

from typing import Any

from kordon.codecs import apis
from kordon.proxy.handlers.share_offsets import ShareOffsetsApi
from kordon.proxy.topics.managed_topics import ManagedTopics


class DeleteGroups(ShareOffsetsApi):
    """Forgets where groups stood."""

    key = apis.DELETE_GROUPS

    def translate(self, value: Any, topics: ManagedTopics) -> bool:
        """Changes nothing."""
        return True

    async def go_on(self, asked: Any, told: Any, topics: ManagedTopics) -> None:
        """Forgets what is deleted; a group of another kind has nothing here."""
        for row in told.results:
            row.error_code = row.error_code or int(await self.offsets.forget(row.group_id))
