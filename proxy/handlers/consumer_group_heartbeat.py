"""ConsumerGroupHeartbeat: members of KIP-848 groups subscribe to faces in place of managed topics (FACE-NAMES).

Its requests are looked at even while nothing is managed: a member names its topics once, and one of them may be managed
later. Expressions that cannot be expanded are refused (`subscriptions.py`). In the dialect members are refused that may
name a managed topic: their partitions would be assigned by the broker, which knows neither which ones are retired nor
what to wait for.
"""

from __future__ import annotations

from kordon.codecs import apis
from kordon.codecs.bodies import ConsumerGroupHeartbeatRequest as Request
from kordon.codecs.bodies import ConsumerGroupHeartbeatResponse as Response
from kordon.codecs.error_codes import Code
from kordon.proxy.handlers.refused_members import RefusedMember
from kordon.proxy.handlers.replies import RepliedApi, Reply
from kordon.proxy.handlers.subscriptions import Subscriptions
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import cut, listed


class ConsumerGroupHeartbeat(RepliedApi[Request, Response]):
    """Sends coordinators the subscriptions of members, with faces in place of managed topics."""

    key = apis.CONSUMER_GROUP_HEARTBEAT
    is_always_wanted = True

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions

    def look(self, value: Request, topics: ManagedTopics) -> Reply[Response] | None:
        """Looks at what a member subscribes to."""
        return self._subscriptions.look(value, topics)


class DialectConsumerGroupHeartbeat(ConsumerGroupHeartbeat):
    """Refuses members that may name a managed topic."""

    def look(self, value: Request, topics: ManagedTopics) -> Reply[Response] | None:
        """Looks at what a member subscribes to."""
        return _refused(value, topics) or super().look(value, topics)


def _refused(value: Request, topics: ManagedTopics) -> RefusedMember | None:
    named = sorted({name for name in value.subscribed_topic_names or () if topics.named(name) is not None})
    pattern = value.get("subscribed_topic_regex", "")
    if not named and not (pattern and len(topics)):
        return None
    what = listed(named) or f"topics that {cut(pattern)} matches"
    message = f"{what}: clients of the dialect read managed topics in classic groups (kordon-ordered)"
    return RefusedMember(value, Code.INVALID_REQUEST, message, topics=named)
