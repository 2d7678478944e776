"""DescribeShareGroupOffsets: coordinators say which partitions a share group has, and Kordon where it stands.

Lag counts offsets that are not done. Offsets that no record has count as well, up to where the group has looked.
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import DescribeShareGroupOffsetsRequest as Request
from kordon.codecs.bodies import DescribeShareGroupOffsetsResponse as Response
from kordon.proxy.handlers.share_offsets import UNAVAILABLE, ShareOffsetsApi, with_faces, with_topic
from kordon.proxy.topics.managed_topics import ManagedTopics


class DescribeShareGroupOffsets(ShareOffsetsApi):
    """Describes the offsets of share groups."""

    key = apis.DESCRIBE_SHARE_GROUP_OFFSETS

    def translate(self, value: Request, topics: ManagedTopics) -> bool:
        """Names faces; a request that names no topics asks for all of them."""
        changed = [with_faces(group.topics or (), topics) for group in value.groups]
        return any(changed) or any(group.topics is None for group in value.groups)

    async def go_on(self, asked: Request, told: Response, topics: ManagedTopics) -> None:
        """Says where each group stands in managed topics."""
        for group in told.groups:
            shown = [(found, row.partitions) for row in group.topics if (found := with_topic(row, topics)) is not None]
            known = await self.offsets.opened(group.group_id) if shown else None
            for topic, partitions in shown:
                if known is None:
                    for each in partitions:
                        each.error_code = each.error_code or int(UNAVAILABLE)
                else:
                    await self.offsets.tell(known, group.group_id, topic, partitions)
