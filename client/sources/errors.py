"""What a SourceProducer raises beyond aiokafka's errors and OrderedProducer's."""

from __future__ import annotations

from aiokafka.errors import CommitFailedError, IllegalOperation, KafkaError


class SourceRebalancedError(CommitFailedError):
    """The transaction is over, since the group has shared the source partitions out again.

    Begin another one, and go on from the restart points that it gives: they say what is committed, and others may have
    gone on with the partitions.
    """


class SourceLeftError(IllegalOperation):
    """This producer has left its group, since the application did nothing for a session: subscribe again."""


class SourceCountError(ValueError):
    """The source has another number of partitions than this producer was told, or more than a source may have.

    Args:
        topic: The source topic.
        told: The producer's source_partition_count.
        found: How many partitions the topic has.
    """

    def __init__(self, topic: str, told: int | None, found: int) -> None:
        grow = f"kordon sources alter {topic} --partitions {told}"
        cure = f"set source_partition_count={found} in all members" + (f", or: {grow}" if (told or 0) > found else "")
        has = f"the source topic {topic!r} has {found} partitions"
        super().__init__(
            f"{has}, and a source has at most 10,000: use one group for each part of it"
            if told is None
            else f"source_partition_count is {told}, and {has}. All members of a group need the same number: {cure}"
        )
        self.topic = topic
        self.told = told
        self.found = found

    def __reduce__(self) -> tuple[type[SourceCountError], tuple[str, int | None, int]]:
        """Copies it: each call of the application gets one of its own."""
        return type(self), (self.topic, self.told, self.found)


class SourcePointError(KafkaError):
    """What is committed for a source partition is no restart point, so nobody knows where to continue."""

    def __init__(self, topic: str, group_id: str, partition: int, why: str) -> None:
        super().__init__(
            f"the commit of group {group_id!r} for {topic}-{partition} cannot be read: {why}. Did another consumer "
            "commit in this group (enable.auto.commit)? Stop the group, find out where the last committed data ends, "
            f"and set it: kordon sources alter {topic} --group {group_id} --partition {partition} --restart-at POINT"
        )
        self.partition = partition
        self._made_of = (topic, group_id, partition, why)

    def __reduce__(self) -> tuple[type[SourcePointError], tuple[str, str, int, str]]:
        """Copies it: each call of the application gets one of its own."""
        return type(self), self._made_of
