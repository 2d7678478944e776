"""ShareGroupHeartbeat: a member that subscribes to a managed topic is refused; all else passes.

Share groups hand records of one partition to many consumers, which cannot be had of virtual partitions. It is the same
in both views.
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import ShareGroupHeartbeatRequest as Request
from kordon.codecs.bodies import ShareGroupHeartbeatResponse as Response
from kordon.proxy.handlers.refused_members import refuse_group
from kordon.proxy.handlers.replies import RepliedApi, Reply
from kordon.proxy.topics.managed_topics import ManagedTopics


class ShareGroupHeartbeat(RepliedApi[Request, Response]):
    """Refuses members that name managed topics."""

    key = apis.SHARE_GROUP_HEARTBEAT

    def look(self, value: Request, topics: ManagedTopics) -> Reply[Response] | None:
        """Looks at the topics that a member subscribes to."""
        return refuse_group("share", value, value.subscribed_topic_names or (), topics)
