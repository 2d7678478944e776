"""ShareAcknowledge: members of share groups say what they made of records of managed topics (KIP-932, KIP-1222).

Clients need the right to read the topic, and the group as their broker says. A request that ends its session gives
back what its member still has in hand.

Source: ShareAcknowledgeRequest.json, KafkaApis.handleShareAcknowledgeRequest (Kafka 4.3).
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeResponseCurrentLeader,
    ShareAcknowledgeResponsePartition,
    ShareAcknowledgeResponseTopic,
)
from kordon.proxy.handlers.api_handler import HeldRequest
from kordon.proxy.handlers.share_requests import ManagedPart, ServedShare, ShareApi, by_topic
from kordon.proxy.handlers.share_sessions import ShareSession, VirtualPartition


class ShareAcknowledge(ShareApi):
    """Takes what members make of records."""

    key = apis.SHARE_ACKNOWLEDGE
    begins_sessions = False

    def served(
        self, held: HeldRequest, value: ShareAcknowledgeRequest, part: ManagedPart, session: ShareSession
    ) -> ServedShare:
        """Returns the request that is to be served."""
        return _ServedAcknowledge(self, held, value, part, session)


class _ServedAcknowledge(ServedShare):
    """A ShareAcknowledge about managed topics."""

    async def serve(self, told: ShareAcknowledgeResponse) -> None:
        """Answers when what it says stands in the log."""
        rows = {which: _row(which, code) for which, code in (await self.acknowledged()).items()}
        topics = by_topic(rows).items()
        told.responses += [ShareAcknowledgeResponseTopic(topic_id=each, partitions=these) for each, these in topics]


def _row(which: VirtualPartition, code: int) -> ShareAcknowledgeResponsePartition:
    return ShareAcknowledgeResponsePartition(
        partition_index=which.number,
        error_code=int(code),
        error_message=None,
        current_leader=ShareAcknowledgeResponseCurrentLeader(leader_id=-1, leader_epoch=-1),
    )
