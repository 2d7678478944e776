"""A transactional producer of exact words that speaks the dialect: its partitions are physical ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kordon.proxy.ordering.transactions.events import Protocol
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.exact_transactions import ExactTransactions
from kordon.testing.plain_connection import PlainConnection


class DialectTransactions(ExactTransactions):
    """One producer with a transactional id.

    Args:
        connect: Connects to an address, introduces itself, and logs in.

    Attributes:
        count: The undeleted_partition_count by which it chooses partitions.
    """

    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        protocol: Protocol = Protocol.V1,
        connect: Callable[[str], PlainConnection] = DialectConnection,
    ) -> None:
        super().__init__(bootstrap, transactional_id, protocol, connect)
        self.count = 3

    def send(self, topic: str, partition: int, batch: bytes, **fields: Any) -> Any:
        """Sends a batch once; returns its row."""
        row = {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
        counted = {**row, "undeleted_partition_count": self.count}
        return super().send(topic, partition, batch, **{"topic_data": [counted], **fields})
