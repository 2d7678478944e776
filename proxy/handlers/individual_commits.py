"""What OffsetCommit and OffsetFetch have in common where a group says what is done offset by offset.

`offset_commit.py` and `offset_fetch.py` have what Kordon does with all other requests of these api keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from kordon.codecs import apis
from kordon.codecs.bodies import HeartbeatRequest, HeartbeatResponse, MetadataResponse
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import heartbeat, metadata
from kordon.codecs.ranges import Ranges
from kordon.codecs.row import Row
from kordon.proxy.core import verdicts
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.core.interception import Ask
from kordon.proxy.core.verdicts import Route
from kordon.proxy.handlers.commit_decisions import managed_topic
from kordon.proxy.kafka.leaders import topics_asked
from kordon.proxy.own_topics.claims_log import ClaimsLog
from kordon.proxy.own_topics.compacted_topic import OwnTopicUnfit
from kordon.proxy.own_topics.individual_commits import IndividualCommits
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import NO_ID
from kordon.proxy.topics.views import View

log = client_log(__name__)

FIRST_VERSION: Final = 8
"""Of both api keys, that has the fields."""
_LARGE: Final = 200
"""Ranges with which reckoning takes some 0.1 ms: others have their turn after it."""


def route(api_key: int, version: int) -> Route:
    """Returns the row of what Kordon asks."""
    found = verdicts.route(api_key, version)
    assert found is not None, "Kordon speaks it"
    return found


_HEARTBEAT: Final = route(apis.HEARTBEAT, 4)
_METADATA: Final = route(apis.METADATA, 10)
"""With topic ids; brokers without them have no individual commits."""


async def opened(logs: IndividualCommits, group_id: str) -> ClaimsLog | Code:
    """Returns the log of a group's claims, or with what its partitions are refused."""
    try:
        return await logs.of_group(group_id)
    except OwnTopicUnfit as error:
        log.warning("individual_commits_not_allowed", group=group_id, problem=str(error))
        return Code.INDIVIDUAL_COMMIT_NOT_ALLOWED
    except UpstreamUnavailable:
        return Code.COORDINATOR_LOAD_IN_PROGRESS


async def may_read_group(group_id: str, ask: Ask) -> bool:
    """Whether the client may Read a group: brokers judge that before they look for the member.

    They close the connection of who has not logged in.
    """
    nobody = HeartbeatRequest(group_id=group_id, generation_id=-1, member_id="", group_instance_id=None)
    answer: HeartbeatResponse = await ask(_HEARTBEAT, heartbeat.REQUEST.build(_HEARTBEAT.version, nobody))
    return answer.error_code != Code.GROUP_AUTHORIZATION_FAILED


async def give_turn(ranges: Ranges) -> None:
    """Lets others have their turn after some reckoning with a large set."""
    if len(ranges) > _LARGE:
        await asyncio.sleep(0)


class TopicIds:
    """The ids by which coordinators know the topics of a request: the face's, where clients see virtual partitions."""

    def __init__(self, topics: ManagedTopics, view: View) -> None:
        self._topics = topics
        self._view = view
        self._told: dict[str, UUID] = {}
        self._refused: dict[str, int] = {}

    async def ask(self, rows: Iterable[Row], ask: Ask) -> None:
        """Asks the client's broker for topics that are not managed; a topic may have been made again since."""
        names = {row.get("name", "") for row in rows if managed_topic(row, self._topics) is None} - {""}
        if not names:
            return
        body = metadata.REQUEST.build(_METADATA.version, topics_asked(sorted(names)))
        answer: MetadataResponse = await ask(_METADATA, body)
        self._told = {row.name: row.topic_id for row in answer.topics if row.name and not row.error_code}
        self._refused = {row.name: row.error_code for row in answer.topics if row.name and row.error_code}

    def of(self, row: Row) -> UUID:
        """Returns a topic's id; `NO_ID`: nobody knows it.

        Args:
            row: The row of a request or response, as the client has it.
        """
        topic = managed_topic(row, self._topics)
        if topic is not None:
            return topic.layout.topic_id if self._view.is_physical else topic.face_id
        return row.get("topic_id", self._told.get(row.get("name", ""), NO_ID))

    def refusal(self, row: Row) -> int:
        """Returns with which error a topic without an id is refused: that with which its broker has told none."""
        return self._refused.get(row.get("name", ""), Code.UNKNOWN_TOPIC_OR_PARTITION)
