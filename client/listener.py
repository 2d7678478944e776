"""The callbacks of an application whose keys move (KIP-253 "Consumer API")."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection

from aiokafka.structs import TopicPartition


class PartitionKeyRebalanceListener(ABC):
    """Is called around the move of keys from one partition to another; give one to `OrderedConsumer.subscribe`.

    Both methods may be coroutines; they are awaited, one at a time, while the consumer reads on in other partitions.
    Both have a time limit (`key_callback_timeout_ms`), which ends a coroutine; a plain method cannot be ended. A call
    that fails or takes too long is logged, counted, and repeated at the next heartbeat.

    They do not replace ConsumerRebalanceListener, which is called when *partitions* go to another member.
    """

    @abstractmethod
    def on_partition_key_maybe_revoked(self, revoked: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Flush the state of the keys that were received from these partitions.

        Another member may load it, and receive records of these keys, as soon as this method has returned. Until it
        returns without an error, the partitions of these keys wait. It covers all records before the one that the
        application is working on. It is also called before partitions are given up.

        Args:
            revoked: The partitions; the member still owns them.
        """

    @abstractmethod
    def on_partition_key_assigned(self, assigned: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Load the state of keys that may be received from these partitions.

        The member that had them has returned from `on_partition_key_maybe_revoked`. No record with such a key is
        delivered before this method has returned without an error. The application may have the state already.
        """
