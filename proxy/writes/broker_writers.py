"""A worker's connections that carry writes, a few to each broker."""

from __future__ import annotations

from collections.abc import Iterable

from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.under_way import Partition
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.writes.broker_writer import BrokerWriter
from kordon.proxy.writes.leader_lookup import LeaderLookup
from kordon.proxy.writes.stall_avoidance import WRITERS_PER_BROKER, StallAvoidance
from kordon.proxy.writes.stream_queue import StreamQueue, WriterId
from kordon.proxy.writes.unsent_writes import UnsentWrites
from kordon.proxy.writes.write_answers import WriteAnswers


class BrokerWriters:
    """Makes the connections when they are needed, and says which of them carries a stream.

    Args:
        leader_lookup: Finds another way where a broker cannot be reached.
    """

    def __init__(
        self,
        links: BrokerConnections,
        unsent: UnsentWrites,
        answers: WriteAnswers,
        leader_lookup: LeaderLookup,
        stall_avoidance: StallAvoidance,
        *,
        tasks: Tasks,
    ) -> None:
        self._links = links
        self._unsent = unsent
        self._answers = answers
        self._leader_lookup = leader_lookup
        self._stall_avoidance = stall_avoidance
        self._tasks = tasks
        self._writers: dict[tuple[int, int], BrokerWriter] = {}

    def for_stream(self, node_id: int, partition: Partition, stream: Stream) -> BrokerWriter:
        """Returns the first connection that does not wait for a partition which does not answer (SHARED-LANES).

        Args:
            node_id: The broker that leads the partition.
            partition: The physical partition that the stream is written to.
        """
        avoidance = self._stall_avoidance
        if avoidance.is_quiet:
            number = stream % WRITERS_PER_BROKER
            return self._writers.get((node_id, number)) or self._new(node_id, number)
        numbers = avoidance.numbers(partition, stream)
        writers = (self._writer(node_id, number) for number in numbers)
        return next((each for each in writers if avoidance.is_free(each)), self._writer(node_id, numbers[0]))

    def dial(self, node_ids: Iterable[int]) -> None:
        """Connects to brokers that are about to be written to, while there is time."""
        for node_id in node_ids:
            for number in range(WRITERS_PER_BROKER):
                self._writer(node_id, number).dial()

    def stalled(self, now: float) -> list[StreamQueue]:
        """Returns the queues that wait behind an unresponsive partition and could use another connection.

        Args:
            now: Seconds of the loop's clock.
        """
        found = self._stall_avoidance.look(self._writers.values(), now)
        return [queue for writer in found for queue in writer.hand_back()]

    def _writer(self, node_id: int, number: int) -> BrokerWriter:
        return self._writers.get((node_id, number)) or self._new(node_id, number)

    def _new(self, node_id: int, number: int) -> BrokerWriter:
        name = WriterId(node_id, number)
        writer = BrokerWriter(self._links, name, self._unsent, self._answers, self._leader_lookup, tasks=self._tasks)
        self._writers[name] = writer
        return writer
