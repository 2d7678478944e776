"""AlterPartitionReassignments: refused for managed topics, done by the broker for the others.

A client that was shown virtual partitions would move others than it means; at the brokers themselves nothing stands in
the way of it. The broker is asked even where nothing of a request is left for it: whether the client may ask at all is
its to say. In the dialect it passes, as ListPartitionReassignments does in both views: what is moved is physical.
"""

from __future__ import annotations

from collections.abc import Iterable

from kordon.codecs import apis
from kordon.codecs.bodies import AlterPartitionReassignmentsRequest as Request
from kordon.codecs.bodies import AlterPartitionReassignmentsResponse as Response
from kordon.codecs.bodies import AlterPartitionReassignmentsResponsePartition as ResponsePartition
from kordon.codecs.bodies import AlterPartitionReassignmentsResponseTopic as ResponseTopic
from kordon.codecs.error_codes import Code
from kordon.codecs.row import Row
from kordon.proxy.handlers.api_handler import HeldRequest, TranslatedApi
from kordon.proxy.topics.managed_topics import ManagedTopics


class AlterPartitionReassignments(TranslatedApi[Request, Response]):
    """Refuses to move partitions of managed topics; moves the others."""

    key = apis.ALTER_PARTITION_REASSIGNMENTS

    def request(self, version: int, value: Request, topics: ManagedTopics) -> bool:
        """Asks for the others only."""
        left = [row for row in value.topics if why_not_moved(row.name, topics) is None]
        changed = len(left) < len(value.topics)
        value.topics = left
        return changed

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Says of each partition why it is not moved: for the broker's reason, where it does nothing for the client."""
        refused = (value.error_code, value.error_message) if value.error_code else None
        for topic in asked.topics:
            if (reason := why_not_moved(topic.name, topics)) is not None:
                code, message = refused or reason
                partitions = [
                    ResponsePartition(partition_index=row.partition_index, error_code=code, error_message=message)
                    for row in topic.partitions
                ]
                value.responses.append(ResponseTopic(name=topic.name, partitions=partitions))

    def record(self, held: HeldRequest, answer: Response) -> None:
        """Records what Kordon has refused."""
        record_not_moved(held, answer, ((row.name, row.partitions) for row in answer.responses))


def why_not_moved(name: str, topics: ManagedTopics) -> tuple[Code, str] | None:
    """Returns the error and its message with which a topic's partitions are not moved; None: they may be."""
    if topics.named(name) is None:
        return None
    message = f"{name} is a managed topic, its partitions are virtual: move the physical ones at the brokers themselves"
    return Code.INVALID_REQUEST, message


def record_not_moved(held: HeldRequest, answer: Row, rows: Iterable[tuple[str, Iterable[Row]]]) -> None:
    """Records which managed topics an answer refuses to move, unless the broker had a reason of its own.

    Args:
        rows: Topics with the rows of their partitions in that answer.
    """
    refused = {name for name, each in rows if any(row["error_code"] == Code.INVALID_REQUEST for row in each)}
    names = {topic.name for topic in held.topics} & refused
    if names:
        held.shared.refusals.parts(held.client, held.route.api.key, answer, names)
