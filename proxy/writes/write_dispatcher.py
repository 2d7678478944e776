"""The writes of one worker to managed topics, from a client's batch to the client's answer.

            wait in order            the leader's connection
add ──> StreamQueue ──(may it be sent?)──> BrokerWriter ──> broker
            ^                                                 │
            ├────────────(identity: once more)── WriteAnswers <┘
            │                                         └──(still in the layout?)──> client
            └── what may wait, and for how long: UnsentWrites
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from kordon.proxy.decisions.journal import NO_JOURNAL, Journal
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.beliefs import Ground
from kordon.proxy.ordering.write_sequencer import WriteSequencer
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import ManagedTopic, Why
from kordon.proxy.writes.broker_writers import BrokerWriters
from kordon.proxy.writes.client_writes import ClientWrite
from kordon.proxy.writes.leader_lookup import LeaderLookup
from kordon.proxy.writes.stall_avoidance import StallAvoidance
from kordon.proxy.writes.stream_queue import Sent, StreamQueue
from kordon.proxy.writes.unsent_writes import UnsentWrites
from kordon.proxy.writes.write_answers import WriteAnswers
from kordon.proxy.writes.write_decisions import WriteDecisions
from kordon.proxy.writes.write_outcomes import ProduceCounts
from kordon.proxy.writes.writer_questions import WriterQuestions

_LEAST_PATIENCE_MS: Final = 100
"""A broker is not asked once more about copies that are late, if their client waits no longer than that."""
_SWEEP_SECONDS: Final = 0.25


class WriteDispatcher:
    """Gives each stream's writes their turn on the connection to the stream's leader.

    Args:
        leaders: Leaders of physical partitions.
        lease_alive: Returns whether managed topics may be served now (LIVE-LEASE).
        journal: The worker's journal; None: nothing is recorded.
    """

    def __init__(
        self, links: BrokerConnections, leaders: Leaders, lease_alive: Callable[[], bool], journal: Journal = NO_JOURNAL
    ) -> None:
        self._leaders = leaders
        self.counts = ProduceCounts()
        self.decisions = WriteDecisions(journal)
        self.stall_avoidance = StallAvoidance()
        self._lease_alive = lease_alive
        self._tasks = Tasks()
        self._queues: dict[ManagedTopic, dict[Stream, StreamQueue]] = {}
        self._watches: dict[ManagedTopic, asyncio.Task[None]] = {}
        self._sweeps = False
        self._unsent = UnsentWrites(lease_alive, self.counts, self.decisions, self.ground)
        self._answers = WriteAnswers(
            leaders, self._unsent, lease_alive, self._send_again, counts=self.counts, decisions=self.decisions
        )
        self._leader_lookup = LeaderLookup(leaders, self._unsent, self._tasks)
        self._questions = WriterQuestions(links, leaders, self._unsent, self._tasks)
        self._writers = BrokerWriters(
            links, self._unsent, self._answers, self._leader_lookup, self.stall_avoidance, tasks=self._tasks
        )

    @property
    def under_way(self) -> int:
        """Writes that are sent and not answered."""
        return len(self._answers.under_way)

    def waiting_bytes(self, topic: str) -> int:
        """Returns how many bytes of clients' batches for a topic are not sent yet."""
        return self._unsent.waiting_bytes(topic)

    async def close(self) -> None:
        """Ends all tasks; what is unsent is not sent any more."""
        await self._tasks.stop()

    async def drain(self, topic: str, partitions: frozenset[int]) -> dict[int, int]:
        """Returns when all that was sent to these partitions is answered; see `WriteAnswers.drain`."""
        return await self._answers.drain(topic, partitions)

    def counted(self, topic: str, partition: int) -> AbstractContextManager[None]:
        """Lets fences wait for what others of this worker write to a physical partition while this lasts."""
        return self._answers.counted(topic, partition)

    async def expect(self, topic: str, partitions: frozenset[int]) -> None:
        """Finds the leaders of partitions that are about to be written to, and dials them, while there is time."""
        if any(each.name == topic for each in self._queues):  # else nobody writes to it here
            self._writers.dial(await self._leader_lookup.nodes_of(topic, partitions))

    def lease_renewed(self) -> None:
        """Judges the answers that were kept, and continues; the layouts have been read since (LATE-ANSWER)."""
        self._answers.lease_renewed()
        self._go_on(self._unsent.queues)

    def add(self, topic: ManagedTopic, stream: Stream, write: ClientWrite) -> None:
        """Takes in a write, and settles it when its outcome is known."""
        queues = self._queues.get(topic)
        queue = queues.get(stream) if queues is not None else None
        if queue is None:
            queue = self._new_queue(topic, stream)
        if write.ground is not None:
            queue.has_transactions = True
            if write.ground != queue.ground:
                queue.ground = None
        if self._unsent.add(queue, write):
            if not self._sweeps:
                self._sweep_later()
            if not queue.has_turn:
                self._dispatch(queue)

    def ground(self, topic: ManagedTopic, partition: int) -> Ground | None:
        """Returns on what it rests now that a transaction is open on a physical partition; None: nobody leads it."""
        leaders = self._leaders.known(topic.name)
        leader = leaders.get(partition) if leaders is not None else None
        return None if leader is None or not leader.is_elected else Ground(topic.layout.epoch, leader.epoch)

    def drop_transaction(self, producer_id: int) -> None:
        """Refuses what is not sent of a producer's transaction: it would fall into the next one."""
        for queue in self._unsent.queues:
            if queue.has_transactions:
                self._unsent.drop_transaction(queue, producer_id)

    def forsake(self, writes: Iterable[tuple[ManagedTopic, ClientWrite]]) -> None:
        """Drops what is not sent of a client that has gone (LATE-BINDING)."""
        self._unsent.forsake(writes)

    def _new_queue(self, topic: ManagedTopic, stream: Stream) -> StreamQueue:
        if topic not in self._queues:
            self._forget_unmanaged()
            self._queues[topic] = {}
            self._questions.renew_id()  # these queues know nothing of what was written under it before
            self._watches[topic] = self._tasks.keep(
                partial(self._watch, topic), name="follow a topic's changes", of=topic.name
            )
        moved = partial(self.decisions.redirected, topic, stream) if self.decisions.is_on else None
        queue = StreamQueue(topic, stream, WriteSequencer(stream, moved), self._dispatch)
        self._queues[topic][stream] = queue
        return queue

    def _forget_unmanaged(self) -> None:
        waiting = set(self._unsent.queues)
        for topic in [topic for topic in self._queues if topic.is_let_go]:
            if waiting.isdisjoint(self._queues[topic].values()):
                self._watches.pop(topic).cancel()
                del self._queues[topic]

    async def _watch(self, topic: ManagedTopic) -> None:
        while True:  # what has changed before this task ran is seen, too
            if self._lease_alive():
                self._answers.release_kept()
            self._go_on(list(self._queues.get(topic, {}).values()))
            await topic.wait_for_change()

    def _go_on(self, queues: list[StreamQueue]) -> None:
        for queue in queues:
            self._dispatch(queue)

    def _dispatch(self, queue: StreamQueue) -> None:
        """Gives a queue its turn on the connection to its leader, if it has something that may be sent now."""
        sequencer = queue.sequencer
        if queue.has_turn or not sequencer.ready:
            self._questions.ask(queue)
            return
        home = queue.home(may_serve=self._lease_alive())
        if isinstance(home, Why):
            if queue.has_transactions:
                self._unsent.drop_held(queue)
            self._unsent.hold(queue, home)
            return
        if home.end is not None:  # a retired partition, of which clients only ask what has been written (COUNT-FENCE)
            self._unsent.next(queue, home, _everything)
            return
        topic = queue.topic
        node_id = self._leader_lookup.known(topic.name, home.partition)
        if node_id is None:
            self._unsent.hold(queue, Why.LEADER)
            self._leader_lookup.look_up(topic)
            return
        place = topic.name, home.partition
        writer = self._writers.for_stream(node_id, place, queue.stream)
        if not queue.may_go_by(writer.name):
            return  # the last answer on the old connection leads here again
        queue.writer = writer.name
        if not writer.connected:
            self._unsent.hold(queue, Why.CONNECTION)
        elif queue.held_since is not None:
            self._unsent.release(queue)
        queue.has_turn = True
        writer.add(place, queue)

    def _send_again(self, sent: Sent) -> bool:
        """Sends a write with late copies again, if its client waits longer than the broker was allowed to.

        It is in the log, or it would have another error, and is not written a second time (KIP-98). It goes apart by
        now (`StallAvoidance`), so that what shared its connection is answered.
        """
        queue, write = sent
        bound, home = write.bound, queue.home(may_serve=self._lease_alive())
        assert bound is not None
        stays = isinstance(home, Stay) and (home.partition, home.move) == (bound.partition, bound.move)
        left_ms = write.timeout_ms - round((asyncio.get_running_loop().time() - write.since) * 1000)
        if not stays or write.abandoned or queue.writer is None or left_ms < _LEAST_PATIENCE_MS:
            return False
        write.patience_ms = min(2 * write.patience_ms, left_ms)
        self._writers.for_stream(queue.writer.node_id, sent.place, queue.stream).send_again(sent)
        return True

    def _sweep_later(self) -> None:
        """Sweeps soon, and then again while something is unsent, unanswered or kept: it all has been added once."""
        self._sweeps = True
        asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Gives up what has waited for too long."""
        self._sweeps = False
        now = asyncio.get_running_loop().time()
        if self._lease_alive():  # if nobody has told
            self._answers.release_kept()
            self._go_on(self._unsent.queues)
        self._go_on(self._writers.stalled(now))
        self._unsent.give_up_overdue(now)
        self._answers.lose_overdue(now)
        if not self._sweeps and (self._unsent.queues or self._answers.is_waiting):
            self._sweep_later()


def _everything(_: ClientWrite) -> bool:
    return True
