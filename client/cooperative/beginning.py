"""A group begins where it has committed nothing: that is committed before the first record is fetched."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from aiokafka.consumer import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, NoOffsetForPartitionError
from aiokafka.structs import TopicPartition

from kordon.client.cooperative.entry import Progress
from kordon.client.cooperative.first_offsets import FirstOffsets
from kordon.client.cooperative.range_store import RangeStore
from kordon.client.cooperative.range_text import RangesOwner

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_log = logging.getLogger(__name__)

_NONE: Final = "none"


class Beginning:
    """The partitions of a member that the group has not begun.

    Args:
        consumer: The member. It resolves `auto_offset_reset` by itself as soon as it has a partition.
        store: Takes the commits.
    """

    def __init__(self, consumer: AIOKafkaConsumer, store: RangeStore) -> None:
        self._consumer = consumer
        self._store = store
        self._first: FirstOffsets[RangesOwner] = FirstOffsets()
        self._partitions: set[TopicPartition] = set()

    def expect(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes partitions without a commit, in place of those that the member had before."""
        self._partitions = set(partitions)
        self._first.keep_only({self._store.owner(tp) for tp in self._partitions})

    def resolved(self) -> dict[TopicPartition, int]:
        """Returns the partitions of which it is known where they begin, and where.

        Raises:
            NoOffsetForPartitionError: `auto_offset_reset` is `none`.
            KafkaError: The offset cannot be found, for example for lack of rights.
        """
        if not self._partitions:
            return {}
        if self._consumer._auto_offset_reset == _NONE:
            raise NoOffsetForPartitionError(sorted(self._partitions))
        coordinator: Any = self._consumer._coordinator
        coordinator.check_errors()
        positions = {tp: self._position(tp) for tp in self._partitions}
        return {tp: self._first.of(self._store.owner(tp), at) for tp, at in positions.items() if at is not None}

    async def commit(self, begins: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Commits where partitions begin.

        Args:
            begins: The offsets that `resolved` has returned.

        Returns:
            Those that may be fetched, and from where. None, if the group has moved on: it assigns them again.

        Raises:
            KafkaError: The commit may be there or not.
        """
        try:
            await self._store.write({tp: Progress(offset) for tp, offset in begins.items()})
        except CommitFailedError as error:
            _log.info("Where %s begin is not committed: %s", sorted(begins), error)
            self._partitions.difference_update(begins)
            return {}  # none may be fetched
        for tp, offset in begins.items():
            if self._position(tp) != offset:
                self._consumer.seek(tp, offset)
        self._partitions.difference_update(begins)
        return begins

    def _position(self, tp: TopicPartition) -> int | None:
        assignment: Any = self._consumer._subscription.subscription.assignment
        state: Any = assignment.state_value(tp) if assignment is not None else None
        return state.position if state is not None and state.has_valid_position else None
