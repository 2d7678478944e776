"""DeleteRecords: for managed topics Kordon raises floors (OWN-FLOOR); the client's broker deletes in the others.

Clients need the right to delete from the topic. The floor of a virtual partition rises, durably, with the layout.
Its records share a physical partition with others', so a broker is told to delete only what none of them needs.

Clients of the dialect do not get it from Kordon: their brokers delete in physical partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from kordon.codecs import apis
from kordon.codecs.bodies import DeleteRecordsRequest as Request
from kordon.codecs.bodies import DeleteRecordsResponse as Response
from kordon.codecs.bodies import DeleteRecordsResponsePartition as ResponsePartition
from kordon.codecs.bodies import DeleteRecordsResponseTopic as ResponseTopic
from kordon.codecs.error_codes import Code, name_of
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.list_offsets import ListOffsets, OffsetWish
from kordon.proxy.handlers.topic_rows import ServedApi, TopicRows
from kordon.proxy.kafka.leader_requests import Form, PartitionLeaderRequests, PartitionQuestion
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.ordering.floors import needed_from, wanted_floor, with_floors
from kordon.proxy.ordering.lookups import EARLIEST, LATEST, FoundOffset
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics

log = client_log(__name__)

RaiseFloors: TypeAlias = Callable[[str, Mapping[int, int]], Awaitable[None]]
"""Called with a topic and virtual offsets by virtual partition; returns when they are durable as its floors.

Raises:
    UpstreamUnavailable: They cannot be raised now.
"""

_DELETE_RECORDS: Final = Form(apis.DELETE_RECORDS, range(3), "name", "partition_index", "deletes")
_CHANGES_NOTHING: Final = 0


class DeleteRecords(ServedApi[Request, Response]):
    """Answers DeleteRecords.

    Args:
        offsets: Says where virtual partitions begin and end.
        raise_floors: Has a layout with other floors committed.
    """

    key = apis.DELETE_RECORDS
    right = Operation.DELETE
    rows = TopicRows("topics", "name", "topics", error={"low_watermark": -1})

    def __init__(
        self, topics: ManagedTopics, questions: PartitionLeaderRequests, offsets: ListOffsets, raise_floors: RaiseFloors
    ) -> None:
        self._topics = topics
        self._questions = questions
        self._offsets = offsets
        self._raise_floors = raise_floors

    async def serve(self, version: int, request: Request, client: Client) -> Response:
        """Answers a request that names managed topics only."""
        topics: list[ResponseTopic] = []
        for topic in request.topics:
            wanted = {row.partition_index: row.offset for row in topic.partitions}
            found = await self._delete(topic.name, wanted, request.timeout_ms)
            rows = [
                ResponsePartition(partition_index=v, low_watermark=each.offset, error_code=each.error)
                for v, each in found.items()
            ]
            topics.append(ResponseTopic(name=topic.name, partitions=rows))
        return Response(topics=topics)

    async def _delete(self, name: str, wanted: Mapping[int, int], timeout_ms: int) -> dict[int, FoundOffset]:
        found, raised = await self._judge(name, wanted)
        floors = {v: each.offset for v, each in found.items() if not each.error}
        topic = self._topics.named(name)
        if not floors or topic is None:
            return found
        try:
            if raised:  # or else clients that ask for nothing would fill the layouts
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._raise_floors(name, raised)
        except (UpstreamUnavailable, TimeoutError) as error:
            log.warning("floors_not_raised", topic=name, error=str(error) or "no answer in time")
            return found | dict.fromkeys(floors, FoundOffset(error=Code.REQUEST_TIMED_OUT))
        await self._delete_unneeded(topic, floors, timeout_ms)
        return found

    async def _judge(self, name: str, wanted: Mapping[int, int]) -> tuple[dict[int, FoundOffset], dict[int, int]]:
        """Returns the floor of each virtual partition, or why it does not get one; then those that are to rise."""
        wishes = [OffsetWish(name, v, timestamp) for v in wanted for timestamp in (EARLIEST, LATEST)]
        found, allowed = await asyncio.gather(self._offsets.find(wishes), self._allowed(name, wanted))
        verdicts: dict[int, FoundOffset] = {}
        raised: dict[int, int] = {}
        for (v, offset), start, end in zip(wanted.items(), found[::2], found[1::2], strict=True):
            floor = wanted_floor(offset, start.offset, end.offset)
            error = start.error or end.error or allowed.get(v) or (Code.OFFSET_OUT_OF_RANGE if floor is None else 0)
            verdicts[v] = FoundOffset(error=error) if error or floor is None else FoundOffset(floor)
            if not error and floor is not None and floor > start.offset:
                raised[v] = floor
        return verdicts, raised

    async def _allowed(self, name: str, wanted: Mapping[int, int]) -> dict[int, int]:
        """Has the homes' brokers say whether records of the topic may be deleted at all (cleanup.policy, rights)."""
        topic = self._topics.named(name)
        homes = {v: topic.layout.homes[v] for v in wanted if v in range(topic.layout.v_count)} if topic else {}
        asked = {v: _question(name, q, _CHANGES_NOTHING) for v, q in homes.items() if q is not None}
        rows = await self._questions.ask(_DELETE_RECORDS, asked.values(), {"timeout_ms": 5_000})
        return {v: rows[question]["error_code"] for v, question in asked.items()}

    async def _delete_unneeded(self, topic: ManagedTopic, floors: Mapping[int, int], timeout_ms: int) -> None:
        """Lets brokers delete; what they do not, nobody reads, and the next one that is raised takes it along."""
        layout = with_floors(topic.layout, floors)
        touched = {stay.partition for v in floors for stay in layout.chains[v].stays}
        asked = [_question(topic.name, q, needed_from(layout, q)) for q in sorted(touched)]
        rows = await self._questions.ask(_DELETE_RECORDS, asked, {"timeout_ms": timeout_ms})
        for question, row in rows.items():
            if row["error_code"]:
                error = name_of(row["error_code"])
                log.warning("records_not_deleted", topic=topic.name, partition=question.partition, error=error)


def _question(topic: str, partition: int, offset: int) -> PartitionQuestion:
    return PartitionQuestion(topic, partition, (("offset", offset),))
