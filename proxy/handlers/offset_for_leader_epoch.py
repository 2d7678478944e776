"""OffsetForLeaderEpoch: for managed topics Kordon answers itself where a leader epoch of a partition ends.

Clients need the right to describe the topic. Leader epochs that clients are told rise with each move of a partition
(RISING-EPOCH), so the question goes to the leader of the partition's stay in that epoch. In the virtual view numbers
mean virtual partitions, in the dialect's physical ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import OffsetForLeaderEpochRequest as Request
from kordon.codecs.bodies import OffsetForLeaderEpochRequestPartition as RequestPartition
from kordon.codecs.bodies import OffsetForLeaderEpochResponse as Response
from kordon.codecs.bodies import OffsetForLeaderEpochResponsePartition as ResponsePartition
from kordon.codecs.bodies import OffsetForLeaderEpochResponseTopic as ResponseTopic
from kordon.codecs.error_codes import Code
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.settle import SettlePlan, Unsettled, find_place, found_in, settle
from kordon.proxy.handlers.topic_rows import ServedApi, TopicRows
from kordon.proxy.kafka.leader_requests import Form, PartitionLeaderRequests, PartitionQuestion, Row
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.ordering.lookups import NOTHING, FoundOffset, epoch_end, epoch_question
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.views import VIRTUAL, View

_LEADER_EPOCHS: Final = Form(apis.OFFSET_FOR_LEADER_EPOCH, range(2, 5), "topic", "partition", "queries")


class OffsetForLeaderEpoch(ServedApi[Request, Response]):
    """Answers OffsetForLeaderEpoch.

    Args:
        may_serve: Whether this worker's lease lives.
    """

    key = apis.OFFSET_FOR_LEADER_EPOCH
    right = Operation.DESCRIBE
    rows = TopicRows("topics", "topic", "topics", number="partition", answered_number="partition")

    def __init__(
        self,
        topics: ManagedTopics,
        questions: PartitionLeaderRequests,
        may_serve: Callable[[], bool] = lambda: True,
        view: View = VIRTUAL,
    ) -> None:
        self._view = view
        self._topics = topics
        self._questions = questions
        self._may_serve = may_serve

    async def serve(self, version: int, request: Request, client: Client) -> Response:
        """Answers a request that names managed topics only."""
        asked = [(topic.topic, row) for topic in request.topics for row in topic.partitions]
        plans = [partial(self._plan, name, row) for name, row in asked]
        found = iter(await settle(self._questions, _LEADER_EPOCHS, plans, {"replica_id": -1}, self._may_serve))
        topics = [
            ResponseTopic(
                topic=topic.topic, partitions=[_epoch_row(row.partition, next(found)) for row in topic.partitions]
            )
            for topic in request.topics
        ]
        return Response(topics=topics)

    def _plan(self, name: str, row: RequestPartition) -> SettlePlan:
        place = find_place(self._topics, name, row.partition, self._view)
        current = place.home_epoch(row.get("current_leader_epoch", -1))
        wanted = epoch_question(place.chain, row.leader_epoch)
        if wanted is None:
            return SettlePlan(place, {}, lambda _: NOTHING)
        q = wanted.stay.partition
        fields = (("current_leader_epoch", current if wanted.stay.end is None else -1), ("leader_epoch", wanted.epoch))

        def read(rows: Mapping[int, Row]) -> FoundOffset:
            found = epoch_end(wanted, found_in(rows[q], "end_offset"))
            limit = place.limit() if wanted.stay.end is None else None
            if limit is None or found.offset <= limit + wanted.stay.delta:
                return found
            if place.is_withheld:
                return found._replace(offset=limit + wanted.stay.delta)
            # A shorter answer would have a client that read on through another worker begin there again.
            raise Unsettled(Code.UNKNOWN_LEADER_EPOCH)

        return SettlePlan(place, {q: PartitionQuestion(name, q, fields)}, read)


def _epoch_row(partition: int, found: FoundOffset) -> ResponsePartition:
    return ResponsePartition(
        partition=partition, error_code=found.error, leader_epoch=found.epoch, end_offset=found.offset
    )
