"""AlterShareGroupOffsets: a share group without members is reset; on managed topics it begins anew in the log of locks.

The coordinator is asked first, with faces in place of topics.
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import AlterShareGroupOffsetsRequest as Request
from kordon.codecs.bodies import AlterShareGroupOffsetsResponse as Response
from kordon.proxy.handlers.share_offsets import UNAVAILABLE, ShareOffsetsApi, with_faces, with_topic
from kordon.proxy.ordering.claims import PlaceKey
from kordon.proxy.topics.managed_topics import ManagedTopics


class AlterShareGroupOffsets(ShareOffsetsApi):
    """Resets share groups on managed topics."""

    key = apis.ALTER_SHARE_GROUP_OFFSETS

    def translate(self, value: Request, topics: ManagedTopics) -> bool:
        """Names faces."""
        return with_faces(value.topics, topics)

    async def go_on(self, asked: Request, told: Response, topics: ManagedTopics) -> None:
        """Has the group begin at what was asked for, where the coordinator has accepted that."""
        wanted = {
            (row.topic_name, each.partition_index): each.start_offset for row in asked.topics for each in row.partitions
        }
        shown = [(found, row.partitions) for row in told.responses if (found := with_topic(row, topics)) is not None]
        known = await self.offsets.opened(asked.group_id) if shown else None
        for topic, partitions in shown:
            for each in partitions:
                offset = wanted.get((topic.name, each.partition_index), -1)
                if each.error_code or offset < 0:
                    continue
                place = PlaceKey(asked.group_id, topic.face_id, each.partition_index)
                code = await self.offsets.begin(known, place, offset) if known is not None else UNAVAILABLE
                each.error_code = int(code)
