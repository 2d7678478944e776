"""ShareGroupHeartbeat: members of share groups subscribe to faces in place of managed topics (FACE-NAMES).

So the coordinator assigns virtual partitions. Where share groups are not served on managed topics
(`ordering.share_groups`), and in the dialect, a member that subscribes to one is refused.
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import ShareGroupHeartbeatRequest as Request
from kordon.codecs.bodies import ShareGroupHeartbeatResponse as Response
from kordon.proxy.handlers.refused_members import refuse_group
from kordon.proxy.handlers.replies import RepliedApi, Reply
from kordon.proxy.handlers.subscriptions import Subscriptions
from kordon.proxy.topics.managed_topics import ManagedTopics


class ShareGroupHeartbeat(RepliedApi[Request, Response]):
    """Tells coordinators what members subscribe to."""

    key = apis.SHARE_GROUP_HEARTBEAT
    is_always_wanted = True

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions

    def look(self, value: Request, topics: ManagedTopics) -> Reply[Response] | None:
        """Looks at what a member subscribes to."""
        return self._subscriptions.look(value, topics)


class RefusedShareGroupHeartbeat(RepliedApi[Request, Response]):
    """Refuses members that name managed topics."""

    key = apis.SHARE_GROUP_HEARTBEAT

    def look(self, value: Request, topics: ManagedTopics) -> Reply[Response] | None:
        """Looks at the topics that a member subscribes to."""
        return refuse_group("share", value, value.subscribed_topic_names or (), topics)
