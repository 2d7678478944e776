"""Reports of positions without brokers: a log in memory, and members whose coordinator answers at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.consumer_group_position import ServedReport
from kordon.proxy.handlers.position_reports import MemberReports, Reported
from kordon.proxy.ordering.position_records import MemberKey, dump, key_of, load, place_of
from kordon.proxy.ordering.positions import MemberReport, Positions
from kordon.testing.messages.as_read import as_read


class ReportsInMemory:
    """Keeps reports as their log does: each is written, read back and taken in."""

    def __init__(self) -> None:
        self.positions = Positions()
        self.is_current = True
        self.fails = False
        """Whether the log cannot be read or written."""
        self.written: list[tuple[str, bytes | None]] = []
        """Keys and values, in their order."""

    async def ready(self, timeout: float) -> None:
        if self.fails:
            raise UpstreamUnavailable("the log is not read to its end")
        self.is_current = True

    async def say(self, reports: Mapping[MemberKey, MemberReport | None]) -> None:
        if self.fails:
            raise UpstreamUnavailable("the log cannot be written")
        for place, report in reports.items():
            key, value = key_of(place), dump(report) if report is not None else None
            self.written.append((key, value))
            read = place_of(key)
            assert read is not None
            self.positions.apply(*read, load(value) if value is not None else None)


def report_fields(
    place: MemberKey, owned: Mapping[int, int], wanted: Collection[int] = (), *, topic: str = "orders", **fields: Any
) -> dict[str, Any]:
    """Returns the fields of a ConsumerGroupPosition request.

    Args:
        owned: Positions by partition; -1: not said yet.
        wanted: Partitions whose position of the group is asked for.
    """
    rows = [{"partition": q, "need_position": q in wanted, "position": owned.get(q, -1)} for q in {*owned, *wanted}]
    named = {"group_id": place.group_id, "member_id": place.member_id, "generation_id": 1}
    return {**named, "topics": [{"topic": topic, "partitions": rows}], **fields}


def asked(reports: MemberReports, fields: Mapping[str, Any]) -> Reported:
    """Has a request decided on, as it comes from the wire."""
    return reports.decide(as_read(request(apis.CONSUMER_GROUP_POSITION), 0, fields))


def answer(questions: Reported | ServedReport, members: Sequence[str] = (), code: int = Code.NONE) -> None:
    """Has the coordinator answer what Kordon asks it."""
    rows = [{"member_id": member, "client_id": "", "client_host": ""} for member in members]
    group = {"error_code": code, "group_id": "", "group_state": "", "protocol_type": "", "protocol_data": ""}
    described = {"groups": [{**group, "members": [{**row, **_NOTHING} for row in rows]}]}
    for question in questions.questions:
        key, version = question.route.api.key, question.route.version
        fields = {"error_code": code, "throttle_time_ms": 0} if key == apis.HEARTBEAT else described
        question.told(as_read(response(key), version, fields))


_NOTHING = {"member_metadata": b"", "member_assignment": b""}


async def served(reports: MemberReports, decision: Reported, client: Client | None = None) -> Any:
    """Returns the response to a client, as it goes over the wire."""
    return as_read(response(apis.CONSUMER_GROUP_POSITION), 0, await reports.serve(decision, client or Client(1)))
