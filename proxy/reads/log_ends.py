"""What leaders say of where physical logs begin and end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from kordon.codecs import apis
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.leader_requests import Form, PartitionLeaderRequests, PartitionQuestion, Row
from kordon.proxy.kafka.leaders import Leader, Leaders
from kordon.proxy.ordering.lookups import LATEST

_FORM: Final = Form(apis.LIST_OFFSETS, range(4, 7), "name", "partition_index", "read ends")
_READ_COMMITTED: Final = 1


class LogEnd(NamedTuple):
    """The high watermark of a physical log."""

    offset: int
    leader_epoch: int
    """The epoch of the leader that told it; -1: the leader has not told its epoch."""


class LogEnds:
    """The ends of physical partitions, as leaders tell them."""

    def __init__(self, links: BrokerConnections, leaders: Leaders) -> None:
        self._leaders = leaders
        self._questions = PartitionLeaderRequests(links, leaders)

    async def of(self, topic: str, partitions: Collection[int], timestamp: int) -> dict[int, int]:
        """Asks leaders where physical partitions begin (-2) or end (-1); those that do not answer are missing."""
        return {q: row["offset"] for q, row in (await self._ask(topic, partitions, timestamp, 0)).items()}

    async def latest(self, topic: str, partitions: Collection[int]) -> dict[int, LogEnd]:
        """Asks leaders for high watermarks and leader epochs; those that do not answer are missing."""
        rows = await self._ask(topic, partitions, LATEST, 0)
        return {q: LogEnd(row["offset"], row.get("leader_epoch", -1)) for q, row in rows.items()}

    async def stable(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """Asks leaders for the last stable offsets of whole logs; those that do not answer are missing."""
        rows = await self._ask(topic, partitions, LATEST, _READ_COMMITTED)
        return {q: row["offset"] for q, row in rows.items()}

    def leaders(self, topic: str) -> Mapping[int, Leader] | None:
        """Returns who leads a topic's partitions, as far as it is known; the same object until it is asked again."""
        return self._leaders.known(topic)

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Returns the leader epoch of a physical partition as far as it is known without asking; -1: it is not."""
        leader = (self._leaders.known(topic) or {}).get(partition)
        return leader.epoch if leader is not None else -1

    async def _ask(
        self, topic: str, partitions: Collection[int], timestamp: int, isolation_level: int
    ) -> Mapping[int, Row]:
        fields = (("current_leader_epoch", -1), ("timestamp", timestamp))
        asked = {PartitionQuestion(topic, q, fields): q for q in partitions}
        rows = await self._questions.ask(_FORM, asked.keys(), {"replica_id": -1, "isolation_level": isolation_level})
        return {asked[each]: row for each, row in rows.items() if not row["error_code"]}
