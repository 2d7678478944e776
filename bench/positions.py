"""What a worker spends on the heartbeats of a large dialect group.

Brokers and the log are simulated: a member's request is read from bytes, its coordinator answers at once, and a report
that says something new is written, read back and taken in. What is measured is the CPU time of one of Kordon's workers,
without sockets; groups of both sizes take turns, so that a busy machine is as busy for the one as for the other.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import cast

from kordon.codecs import apis
from kordon.codecs.messages import request, response
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.position_reports import MemberReports
from kordon.proxy.ordering.position_records import MemberKey
from kordon.proxy.own_topics.group_positions import GroupPositions
from kordon.testing.positions_in_memory import ReportsInMemory, answer, report_fields

GROUP = "readers"
_REQUEST = request(apis.CONSUMER_GROUP_POSITION)
_RESPONSE = response(apis.CONSUMER_GROUP_POSITION)
WANTED = 10
"""Predecessors that each member asks for: log2 of 1,000 partitions."""
ROUNDS = 5


@dataclass(frozen=True)
class Costs:
    """CPU seconds of one heartbeat, medians over rounds."""

    members: int
    unchanged: float
    """Of one that says what the last one said."""
    moved: float
    """Of one that says another position, which is written to the log and read back."""


class Group:
    """A group of members with a partition each."""

    def __init__(self, members: int) -> None:
        self.members = [f"consumer-{number}-8f0e4a7c-4d1c-4e0a-9b62-2f8c1b7b{number:04}" for number in range(members)]
        self._reports = MemberReports(cast(GroupPositions, ReportsInMemory()))
        self._position = 0

    async def beat(self, *, moved: bool) -> float:
        """Has each member report once; returns the CPU seconds of one of them."""
        self._position += moved
        requests = [self._request(number, member) for number, member in enumerate(self.members)]
        began = time.process_time()
        decisions = [self._reports.decide(_REQUEST.parse(0, sent)) for sent in requests]
        decided = time.process_time()
        for decision in decisions:
            answer(decision, self.members)
        answered = time.process_time()
        client = Client(1)
        for decision in decisions:
            _RESPONSE.build(0, await self._reports.serve(decision, client))
        return (time.process_time() - answered + decided - began) / len(self.members)

    def _request(self, number: int, member: str) -> bytes:
        wanted = {(number - each) % len(self.members) for each in range(1, WANTED + 1)} - {number}
        fields = report_fields(
            MemberKey(GROUP, member), {number: self._position}, wanted, report_sequence=self._position
        )
        return _REQUEST.build(0, fields)


async def measure(sizes: tuple[int, ...]) -> list[Costs]:
    """Measures groups of several sizes in turn."""
    groups = [Group(size) for size in sizes]
    for group in groups:
        await group.beat(moved=True)  # those who join
    rounds = [
        [(await group.beat(moved=False), await group.beat(moved=True)) for group in groups] for _ in range(ROUNDS)
    ]
    return [
        Costs(size, *(median(each[place][kind] for each in rounds) for kind in (0, 1)))
        for place, size in enumerate(sizes)
    ]
