"""ConsumerGroupPosition: members of a dialect group tell where they stand, and hear where the group stands (KIP-253 7).

Only the dialect has it, and Kordon answers all of it (`position_reports.py`). Clients need the right to read each topic
that they report on; one that is missing refuses the whole report.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

from kordon.codecs import apis
from kordon.codecs.messages import consumer_group_position
from kordon.proxy.core.waiting import Answer
from kordon.proxy.handlers.api_handler import ApiHandler, BrokerPart, Handled, HeldRequest, ServedRequest
from kordon.proxy.handlers.position_reports import MemberReports, Reported
from kordon.proxy.kafka.operations import Operation


class ConsumerGroupPosition(ApiHandler):
    """Answers ConsumerGroupPosition."""

    key = apis.CONSUMER_GROUP_POSITION
    right: ClassVar[Operation] = Operation.READ
    is_always_wanted = True

    def __init__(self, reports: MemberReports) -> None:
        self._reports = reports

    def decide(self, held: HeldRequest) -> Handled:
        """Has the group's coordinator asked, and serves the report."""
        return ServedReport(self._reports, held, self._reports.decide(held.read()))


class ServedReport(ServedRequest):
    """A report of positions."""

    right = ConsumerGroupPosition.right

    def __init__(self, reports: MemberReports, held: HeldRequest, reported: Reported) -> None:
        self.questions = reported.questions
        self._reports = reports
        self._held = held
        self._reported = reported

    def names(self) -> Collection[str]:
        """Returns the names of the topics that are reported on."""
        return self._reported.names

    def refuse(self, codes: Mapping[str, int]) -> ServedReport:
        """Refuses the report with one of the codes: its answer has room for one."""
        return ServedReport(self._reports, self._held, replace(self._reported, error_code=min(codes.values())))

    async def answer(self, part: BrokerPart) -> Answer:
        """Answers once the coordinator has."""
        answer = await self._reports.serve(self._reported, self._held.client)
        await self._held.record_errors(answer)
        return partial(consumer_group_position.RESPONSE.build_pieces, self._held.version, answer)
