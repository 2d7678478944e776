"""DeleteShareGroupOffsets: it is forgotten where a share group without members stands in a managed topic.

The coordinator is asked first, with faces in place of topics.
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import DeleteShareGroupOffsetsRequest as Request
from kordon.codecs.bodies import DeleteShareGroupOffsetsResponse as Response
from kordon.proxy.handlers.share_offsets import ShareOffsetsApi, with_faces, with_topic
from kordon.proxy.topics.managed_topics import ManagedTopics


class DeleteShareGroupOffsets(ShareOffsetsApi):
    """Forgets where share groups stand."""

    key = apis.DELETE_SHARE_GROUP_OFFSETS

    def translate(self, value: Request, topics: ManagedTopics) -> bool:
        """Names faces."""
        return with_faces(value.topics, topics)

    async def go_on(self, asked: Request, told: Response, topics: ManagedTopics) -> None:
        """Forgets what the coordinator has forgotten."""
        for row in told.responses:
            topic = with_topic(row, topics)
            if topic is not None:
                row.error_code = row.error_code or int(await self.offsets.forget(asked.group_id, topic.face_id))
