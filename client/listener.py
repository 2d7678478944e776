"""What an application is called when keys move (KIP-253 "Consumer API")."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection

from aiokafka.structs import TopicPartition


class PartitionKeyRebalanceListener(ABC):
    """Called around the move of keys from one partition to another; give one to `OrderedConsumer.subscribe`.

    Both methods may be coroutines; they are awaited, one at a time, while the consumer reads on in other partitions.
    Both have a time limit (`key_callback_timeout_ms`), which ends a coroutine; a plain method cannot be ended. What
    fails or takes too long is logged, counted, and called again at the next heartbeat.

    They come beside those of ConsumerRebalanceListener: when *partitions* go to another member, that one is called.
    """

    @abstractmethod
    def on_partition_key_maybe_revoked(self, revoked: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Flush the state of the keys that were received from these partitions.

        Another member may load it, and receive records of these keys, as soon as this has returned. Until it has
        returned without an error nobody does: their partitions wait. It covers all records before the one that the
        application is working on; it is called before partitions are given up, too.

        Args:
            revoked: The partitions; the member still owns them.
        """

    @abstractmethod
    def on_partition_key_assigned(self, assigned: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Load the state of keys that may be received from these partitions.

        Whoever had them has returned from `on_partition_key_maybe_revoked`. No record that has such a key is delivered
        before this has returned without an error. What is loaded may be there already.
        """
