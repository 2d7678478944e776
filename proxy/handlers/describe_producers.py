"""DescribeProducers: tells of those who wrote to a virtual partition in its present home, as they know themselves.

They know themselves by their own producer ids and sequences, and by the transaction that they have open there. In the
dialect it passes.
"""

from __future__ import annotations

from collections.abc import Sequence

from kordon.codecs import apis
from kordon.codecs.bodies import DescribeProducersRequest as Request
from kordon.codecs.bodies import DescribeProducersResponse as Response
from kordon.codecs.bodies import DescribeProducersResponseActiveProducer as ActiveProducer
from kordon.proxy.handlers.api_handler import TranslatedApi
from kordon.proxy.handlers.homes import at_home, spread
from kordon.proxy.ordering.identity import MOVES, untag
from kordon.proxy.ordering.images import Written, sequence_of_client
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics


class DescribeProducers(TranslatedApi[Request, Response]):
    """Describes the producers of virtual partitions."""

    key = apis.DESCRIBE_PRODUCERS

    def request(self, version: int, value: Request, topics: ManagedTopics) -> bool:
        """Names the homes of virtual partitions, each once."""
        changed = False
        for row in value.topics:
            before, row.partition_indexes = row.partition_indexes, at_home(row.name, row.partition_indexes, topics)
            changed |= row.partition_indexes != before
        return changed

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Gives each virtual partition its own producers."""
        wanted = {row.name: row.partition_indexes for row in asked.topics}
        for row in value.topics:
            topic = topics.named(row.name)
            if topic is not None:
                row.partitions = spread(row.partitions, "partition_index", wanted[row.name], topic)
                for each in row.partitions:
                    each.active_producers = _of(each.active_producers, each.partition_index, topic)


def _of(producers: Sequence[ActiveProducer], v: int, topic: ManagedTopic) -> list[ActiveProducer]:
    """Returns those who wrote to a virtual partition since its last move, as they know themselves.

    A producer has a row in the log for what it writes in transactions of each protocol and outside of them. The one
    that it has used last is told. Where its transaction began, its own row says (`ordering/transactions/events.py`).
    """
    home = topic.layout.chains[v].home if 0 <= v < topic.layout.v_count else None
    if home is None:
        return []
    opened = {each.producer_id: each for each in producers if each.current_txn_start_offset >= 0}
    found: dict[int, ActiveProducer] = {}
    for producer in sorted(producers, key=_last_used):
        identity = untag(producer.producer_id)
        if identity is None or (identity.v, identity.move) != (v, home.move % MOVES):
            continue
        written: Written | None = topic.images.get(v, {}).get(identity.writer)
        own = producer.copy()
        own.producer_id = identity.client_id
        own.last_sequence = sequence_of_client(written, producer.producer_epoch, producer.last_sequence)
        txn = opened.get(identity.client_id)
        if txn is not None:
            own.current_txn_start_offset = max(txn.current_txn_start_offset, home.start) + home.delta
            own.coordinator_epoch = txn.coordinator_epoch
        found[identity.client_id] = own
    return list(found.values())


def _last_used(producer: ActiveProducer) -> tuple[int, int]:
    return producer.producer_epoch, producer.last_timestamp
