"""Writes the witnesses of transactions of the first protocol, over connections of Kordon's own.

Brokers verify a witness: they ask the transaction's coordinator whether it has taken the partition. They do so up to
version 11 of Produce. From version 12 on they would add the partition, and a witness that comes late would open a
transaction that nobody ends.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kordon.codecs import apis
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import produce
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import BatchIdentity
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.producer import produce_request
from kordon.proxy.kafka.witness_batch import build_witness
from kordon.proxy.ordering.transactions.beliefs import Claim
from kordon.proxy.ordering.transactions.events import Protocol

_VERSIONS: Final = range(3, 12)
"""From the first with batches of magic 2 to the last that verifies and does not add."""
_CONNECTIONS: Final = 8
"""To one broker: it works on one request of a connection at a time, and a witness may wait for a coordinator."""


class WitnessWriter:
    """Writes for one worker.

    Attributes:
        outcomes: How many witnesses of both protocols came to each end, `written` or the name of an error code.
    """

    def __init__(self, links: BrokerConnections) -> None:
        self.outcomes: Counter[str] = Counter()
        self._links = links

    async def write(self, topic: str, partition: int, node_id: int, claim: Claim, sequence: int) -> int:
        """Writes a witness with acks=all.

        Args:
            node_id: Of the partition's leader.
            sequence: What follows the producer's last one there (`open_answers.witness_sequence`).

        Returns:
            The broker's error code; NOT_LEADER_OR_FOLLOWER if it does not answer, and the witness may be written.
        """
        batch = build_witness(BatchIdentity(claim.producer_id, claim.epoch, sequence), Protocol.V1)
        asked = produce_request(topic, partition, batch, claim.transactional_id)
        purpose = f"witnesses {claim.producer_id % _CONNECTIONS}"
        try:
            client = await self._links.to(node_id, purpose)
            answer = await client.send(produce.API, client.version(apis.PRODUCE, _VERSIONS), asked)
        except UpstreamUnavailable:
            code: int = Code.NOT_LEADER_OR_FOLLOWER
        else:
            ((row,),) = (each.partition_responses for each in answer.responses)
            code = row.error_code
        self.count(code)
        return code

    def count(self, code: int) -> None:
        """Counts what became of a witness, also of one that was written on a client's own connection."""
        self.outcomes["written" if code == Code.NONE else name_of(code)] += 1
