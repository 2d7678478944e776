"""Which transactions are open, as their coordinators tell it (KIP-664).

All brokers are asked, since each knows those alone that it coordinates. The answer is believed only if every partition
of `__transaction_state` has the same leader before and afterwards, and that one was asked. Otherwise a transaction that
moves from one coordinator to another just then could be missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kordon.codecs.bodies import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponseTransactionState,
    ListTransactionsRequest,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import describe_transactions, list_transactions
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.ends import TopicsRefused, refuse
from kordon.proxy.kafka.upstream import UpstreamClient

OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""In which a coordinator names partitions whose markers are still to come."""
MOST_TRANSACTIONS: Final = 20_000
"""Open at a time; more are not looked at."""
STATE_TOPIC: Final = "__transaction_state"
RIGHT: Final = "Kordon needs the right Describe on all transactional ids: docs/rights.md#what-kordon-needs"
_PROBE: Final = "3f9c51d2-right-to-describe"
"""A transactional id that nobody has. It does not begin as Kordon's own names, to which Kordon may have more rights."""
_AT_ONCE: Final = 500
_VERSIONS: Final = range(1)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction whose markers are not all written.

    Attributes:
        partitions: The partitions that have no marker yet, by topic.
        started_ms: When it began, in milliseconds since 1970, by its coordinator's clock.
        timeout_ms: Behind that, when its coordinator ends it.
    """

    transactional_id: str
    producer_id: int
    state: str
    started_ms: int
    timeout_ms: int
    partitions: Mapping[str, frozenset[int]]


class TransactionCoordinators:
    """Asks the coordinators of transactions."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def open(self, producer_ids: Collection[int] = ()) -> list[OpenTransaction]:
        """Returns the transactions that are open.

        Args:
            producer_ids: The ids of the producers to ask about. Empty: all producers.

        Raises:
            TopicsRefused: Kordon may not know.
            UpstreamUnavailable: A coordinator does not answer, is not there, or changes just now; or there are more
                than `MOST_TRANSACTIONS`.
        """
        before, nodes = await self._leaders()
        if not before:
            return []
        answers = await asyncio.gather(*(self._ask(node, producer_ids) for node in nodes))
        after, _ = await self._leaders()
        if before != after or any(leader not in nodes for leader, _ in before.values()):
            raise UpstreamUnavailable(f"{STATE_TOPIC}: coordinators of transactions are moving")
        return [each for answer in answers for each in answer]

    async def refuse_lacking(self) -> None:
        """Makes sure that Kordon may see transactions; those that it may not see are missing in answers.

        Raises:
            TopicsRefused: Kordon lacks a right.
            UpstreamUnavailable: No broker answers.
        """
        _, nodes = await self._leaders()
        client = await self._brokers.to(min(nodes))
        await _describe(client, [_PROBE])

    async def _leaders(self) -> tuple[Mapping[int, tuple[int, int]], frozenset[int]]:
        """Returns leader and leader epoch of each partition that has transactions, and all brokers."""
        answer = await self._brokers.metadata([STATE_TOPIC])
        (topic,) = answer.topics
        nodes = frozenset(each.node_id for each in answer.brokers)
        if topic.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            return {}, nodes  # nobody has begun a transaction yet
        refuse(f"partitions of {STATE_TOPIC}", topic)
        return {each.partition_index: (each.leader_id, each.leader_epoch) for each in topic.partitions}, nodes

    async def _ask(self, node: int, producer_ids: Collection[int]) -> list[OpenTransaction]:
        client = await self._brokers.to(node)
        asked = ListTransactionsRequest(state_filters=list(OPEN_STATES), producer_id_filters=sorted(producer_ids))
        version = client.version(list_transactions.API.key, _VERSIONS)
        listed = await client.ask(list_transactions.API, version, asked)
        refuse(f"transactions at broker {node}", listed)
        ids = sorted({each.transactional_id for each in listed.transaction_states})
        if len(ids) > MOST_TRANSACTIONS:
            raise UpstreamUnavailable(f"{len(ids)} transactions are open at broker {node}: that is too many to look at")
        found: list[OpenTransaction] = []
        # Also with none, since what Kordon may not see is not listed.
        for begin in range(0, max(len(ids), 1), _AT_ONCE):
            found += await _describe(client, ids[begin : begin + _AT_ONCE])
        return found


async def _describe(client: UpstreamClient, ids: list[str]) -> list[OpenTransaction]:
    """Asks a coordinator for some of its transactions; those that are over are left out."""
    version = client.version(describe_transactions.API.key, _VERSIONS)
    asked = DescribeTransactionsRequest(transactional_ids=[*ids, _PROBE])
    answer = await client.ask(describe_transactions.API, version, asked)
    return list(_open_ones(answer.transaction_states))


def _open_ones(rows: Iterable[DescribeTransactionsResponseTransactionState]) -> Iterable[OpenTransaction]:
    for row in rows:
        if row.error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise TopicsRefused("transactions", row.error_code, RIGHT)
        if row.transactional_id == _PROBE or row.error_code == Code.TRANSACTIONAL_ID_NOT_FOUND:
            continue
        refuse(f"transaction of {row.transactional_id}", row)
        if row.transaction_state in OPEN_STATES:
            yield OpenTransaction(
                row.transactional_id,
                row.producer_id,
                row.transaction_state,
                row.transaction_start_time_ms,
                row.transaction_timeout_ms,
                {each.topic: frozenset(each.partitions) for each in row.topics},
            )
