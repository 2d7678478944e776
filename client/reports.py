"""ConsumerGroupPosition: a member tells its group where it stands, and asks where others do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from aiokafka.client import ConnectionGroup
from aiokafka.errors import GroupCoordinatorNotAvailableError, for_code
from aiokafka.structs import TopicPartition

from kordon.client.dialect_client import DialectClient
from kordon.client.moves_events import SendReport
from kordon.client.requests import WireRequest
from kordon.codecs.bodies import ConsumerGroupPositionResponse
from kordon.codecs.dialect import CONSUMER_GROUP_POSITION

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_REBALANCE_IN_PROGRESS: Final = 27
_NO_MEMBER: Final = (22, 25)
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID."""


class ReportingGroup(Protocol):
    """The group, as far as reports go: aiokafka's GroupCoordinator."""

    group_id: str
    generation: int
    member_id: str
    coordinator_id: int | None
    _group_instance_id: str | None

    def request_rejoin(self) -> None:
        """Asks the group to share out its partitions again."""

    def reset_generation(self) -> None:
        """Notes that the coordinator does not know this member."""


@dataclass(frozen=True, slots=True)
class ReportingMember:
    """The member in one generation of its group."""

    group_id: str
    generation_id: int
    member_id: str


class Heard(NamedTuple):
    """What the group knows."""

    positions: dict[TopicPartition, int]
    """The positions of partitions that the member asks for, or owns and others ask for; -1: not known."""
    needed: frozenset[TopicPartition]
    """Partitions of the member that others ask for."""


async def tell(client: DialectClient, report: SendReport, group: ReportingGroup, member: ReportingMember) -> Heard:
    """Sends a report to the group's coordinator.

    Args:
        group: Hears of it where the coordinator does not know the member, or has the group share out again.
        member: The member, with the generation to which the report belongs.

    Raises:
        KafkaError: The report was refused, or its outcome is unknown.
    """
    if group.coordinator_id is None:
        raise GroupCoordinatorNotAvailableError
    request = WireRequest(CONSUMER_GROUP_POSITION, range(1), _body(report, group, member))
    answer = await client.send(group.coordinator_id, request, group=ConnectionGroup.COORDINATION)
    if answer.error_code:
        _refused(answer.error_code, group, member)
        raise for_code(answer.error_code)()
    return _heard(answer)


def _body(report: SendReport, group: ReportingGroup, member: ReportingMember) -> dict[str, object]:
    topics: dict[str, list[dict[str, int]]] = {}
    for row in report.rows:
        told = {"partition": row.partition.partition, "need_position": row.needed, "position": row.position}
        topics.setdefault(row.partition.topic, []).append(told)
    return {
        "group_id": member.group_id,
        "generation_id": member.generation_id,
        "member_id": member.member_id,
        "topics": [{"topic": topic, "partitions": rows} for topic, rows in topics.items()],
        "group_instance_id": group._group_instance_id,
        "report_sequence": report.sequence,
    }


def _heard(answer: ConsumerGroupPositionResponse) -> Heard:
    rows = {TopicPartition(topic.topic, row.partition): row for topic in answer.topics for row in topic.partitions}
    positions = {tp: row.position for tp, row in rows.items()}
    return Heard(positions, frozenset(tp for tp, row in rows.items() if row.need_position))


def _refused(code: int, group: ReportingGroup, member: ReportingMember) -> None:
    """Does what a Heartbeat with this answer would lead to, if it is still about this generation."""
    if (group.generation, group.member_id) != (member.generation_id, member.member_id):
        return
    if code == _REBALANCE_IN_PROGRESS:
        group.request_rejoin()
    elif code in _NO_MEMBER:
        group.reset_generation()
