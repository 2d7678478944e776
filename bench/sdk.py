"""The SDK's clients beside those of aiokafka, on which they stand; and what their groups cost a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kordon.bench import gate_cost, loads, positions, results
from kordon.bench.contenders import Contender, watched
from kordon.bench.plan import Sdk

if TYPE_CHECKING:
    from kordon.bench.topics import Topics

_CHANGES: Final = (0, 10, 100)
_MEMBERS: Final = (10, 1_000)
_HEARTBEAT_SECONDS: Final = 3.0
"""heartbeat.interval.ms of most clients."""
_ANSWERED: Final = "kordon_responses_total"
_FETCHES: Final = 'api="Fetch"'


def _gate_case(changes: int) -> str:
    return f"gate of a Fetch of {gate_cost.PARTITIONS} partitions, {changes} changes before"


def _heartbeat_case(members: int) -> str:
    return f"heartbeat in a group of {members:,}"


WORKER_CASES: Final = (*map(_gate_case, _CHANGES), *map(_heartbeat_case, _MEMBERS))


@dataclass(frozen=True)
class Way:
    """One kind of clients, on its way to the broker.

    Attributes:
        client: "aiokafka" or "sdk".
        partitions: Of the topic, as clients without the SDK see it.
    """

    name: str
    client: str
    contender: Contender
    topics: Topics
    partitions: int


def measure_way(case: Sdk, way: Way, topic: str) -> dict[str, float]:
    """Sends all records of a case to a new topic and reads them back; raises ToolError."""
    way.topics.create([topic], way.partitions)
    try:
        figures = {}
        for direction, megabytes, proxy_cpu, client_cpu in (
            ("produce", results.PRODUCE_MB, results.PRODUCE_CPU, results.PRODUCE_CLIENT_CPU),
            ("consume", results.CONSUME_MB, results.CONSUME_CPU, results.CONSUME_CLIENT_CPU),
        ):
            fetches = way.contender.counted(_ANSWERED, _FETCHES)
            with watched(way.contender) as usage:
                done = loads.load(direction, way.client, case, way.contender.bootstrap, [topic])
            fetches = way.contender.counted(_ANSWERED, _FETCHES) - fetches
            figures[megabytes] = case.payload_bytes / 1e6 / done["seconds"]
            figures[client_cpu] = done["cpu_seconds"] / (case.payload_bytes / 1e9)
            if way.contender.pid is not None:
                figures[proxy_cpu] = usage.cpu_seconds / (case.payload_bytes / 1e9)
            if fetches:
                figures[results.FETCH_US] = usage.cpu_seconds / fetches * 1e6
        return figures
    finally:
        way.topics.delete([topic])


def measure_worker() -> Iterator[tuple[str, dict[str, float]]]:
    """Measures gate and heartbeats without a broker; yields cases and their figures."""
    for changes, seconds in zip(_CHANGES, gate_cost.measure(_CHANGES), strict=True):
        yield _gate_case(changes), {results.GATE_US: seconds * 1e6}
    for each in asyncio.run(positions.measure(_MEMBERS)):
        yield (
            _heartbeat_case(each.members),
            {
                results.HEARTBEAT_US: each.unchanged * 1e6,
                results.HEARTBEAT_MOVED_US: each.moved * 1e6,
                results.HEARTBEATS_CORES: each.moved * each.members / _HEARTBEAT_SECONDS,
            },
        )
