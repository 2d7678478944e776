"""StreamsGroupHeartbeat: a member whose topology reads a managed topic is refused; all else passes.

Streams groups have the broker reckon with physical partitions, which do not hold what virtual ones do. It is the same
in both views.
"""

from __future__ import annotations

from collections.abc import Iterable

from kordon.codecs import apis
from kordon.codecs.bodies import StreamsGroupHeartbeatRequest as Request
from kordon.codecs.bodies import StreamsGroupHeartbeatRequestSubtopology as Subtopology
from kordon.codecs.bodies import StreamsGroupHeartbeatResponse as Response
from kordon.proxy.handlers.refused_members import refuse_group
from kordon.proxy.handlers.replies import RepliedApi, Reply
from kordon.proxy.topics.managed_topics import ManagedTopics


class StreamsGroupHeartbeat(RepliedApi[Request, Response]):
    """Refuses members that name managed topics as sources."""

    key = apis.STREAMS_GROUP_HEARTBEAT

    def look(self, value: Request, topics: ManagedTopics) -> Reply[Response] | None:
        """Looks at the topology that a member joins with."""
        parts = value.topology.subtopologies if value.topology is not None else ()
        return refuse_group("streams", value, (name for part in parts for name in _sources(part)), topics)


def _sources(part: Subtopology) -> Iterable[str]:
    yield from part.source_topics
    yield from (row.name for row in part.repartition_source_topics)
