"""Writes the witnesses of transactions of the first protocol, over connections of Kordon's own.

Brokers verify a witness: they ask the transaction's coordinator whether it has taken the partition. They do so up to
version 11 of Produce. From version 12 on they would add the partition, and a witness that comes late would open a
transaction that nobody ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kordon.codecs.error_codes import Code, name_of
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import BatchIdentity
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.producer import send_witnesses
from kordon.proxy.kafka.witness_batch import build_witness
from kordon.proxy.ordering.transactions.beliefs import ProducerClaim
from kordon.proxy.ordering.transactions.events import Protocol

_CONNECTIONS: Final = 8
"""To one broker: it works on one request of a connection at a time, and a witness may wait for a coordinator."""


_Place: TypeAlias = tuple[str, int]
"""A topic and a physical partition."""


@dataclass(slots=True, eq=False)
class _Request:
    """Witnesses that go together."""

    batches: dict[_Place, bytes] = field(default_factory=dict[_Place, bytes])
    codes: dict[_Place, int] = field(default_factory=dict[_Place, int])
    """What the broker said; a place that is missing has no answer."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Is set when there will be no more codes."""


class WitnessWriter:
    """Writes for one worker. The witnesses of a transaction that are asked for at once go in one request to a broker.

    Attributes:
        outcomes: How many witnesses of both protocols came to each end, `written` or the name of an error code.
    """

    def __init__(self, links: BrokerConnections) -> None:
        self.outcomes: Counter[str] = Counter()
        self._links = links
        self._open: dict[tuple[int, ProducerClaim], _Request] = {}
        """By broker and transaction, what is about to be sent."""

    async def write(self, topic: str, partition: int, node_id: int, claim: ProducerClaim, sequence: int) -> int:
        """Writes a witness with acks=all.

        Args:
            node_id: The node id of the partition's leader.
            sequence: The sequence after the producer's last one there (`open_answers.witness_sequence`).

        Returns:
            The broker's error code; NOT_LEADER_OR_FOLLOWER if it does not answer, and the witness may be written.
        """
        place, key = (topic, partition), (node_id, claim)
        request = self._open.get(key)
        # A broker takes one batch of each partition in a request.
        is_first = request is None or place in request.batches
        if request is None or is_first:
            request = self._open[key] = _Request()
        request.batches[place] = build_witness(BatchIdentity(claim.producer_id, claim.epoch, sequence), Protocol.V1)
        if is_first:
            await self._send(node_id, claim, request)
        else:
            await request.over.wait()
        code = request.codes.get(place, Code.NOT_LEADER_OR_FOLLOWER)
        self.count(code)
        return code

    def count(self, code: int) -> None:
        """Counts what became of a witness, also of one that was written on a client's own connection."""
        self.outcomes["written" if code == Code.NONE else name_of(code)] += 1

    async def _send(self, node_id: int, claim: ProducerClaim, request: _Request) -> None:
        """Sends what joins a request within this turn of the loop."""
        try:
            await asyncio.sleep(0)
            self._close(node_id, claim, request)
            client = await self._links.to(node_id, f"witnesses {claim.producer_id % _CONNECTIONS}")
            request.codes |= await send_witnesses(client, request.batches, claim.transactional_id)
        except UpstreamUnavailable:
            pass
        finally:
            self._close(node_id, claim, request)
            request.over.set()

    def _close(self, node_id: int, claim: ProducerClaim, request: _Request) -> None:
        if self._open.get((node_id, claim)) is request:
            del self._open[node_id, claim]
