"""The writes that have not left: how many bytes and how long they may wait, and what becomes of them then."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from kordon.codecs.error_codes import Code
from kordon.codecs.produce import WriteOutcome
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import client_id_of
from kordon.proxy.ordering.streams import shown_partition
from kordon.proxy.ordering.transactions.beliefs import Ground
from kordon.proxy.ordering.write_sequencer import Refuse
from kordon.proxy.topics.managed_topics import ManagedTopic, Why
from kordon.proxy.writes.client_writes import ClientWrite
from kordon.proxy.writes.stream_queue import StreamQueue
from kordon.proxy.writes.write_decisions import WriteDecisions
from kordon.proxy.writes.write_outcomes import ProduceCounts, refused

HOLD_SECONDS: Final = 2.5
"""How long writes wait for a fence, a lease or a leader. Every client is more patient."""
WAIT_SECONDS: Final = 15.0
"""How long writes wait for their turn."""
UNSENT_BYTES: Final = 64 * 1024 * 1024
"""How many bytes of one topic may wait while they are held; what comes above is refused."""
_UNSENT_BYTES_IN_TURN: Final = 4 * UNSENT_BYTES
"""The same, while they only wait for their turn."""


class UnsentWrites:
    """The writes of one worker that wait to be sent.

    Args:
        lease_alive: Returns whether managed topics may be served now (LIVE-LEASE).
        ground: Returns on what it rests that a transaction is open on a physical partition.
    """

    def __init__(
        self,
        lease_alive: Callable[[], bool],
        counts: ProduceCounts,
        decisions: WriteDecisions,
        ground: Callable[[ManagedTopic, int], Ground | None],
    ) -> None:
        self._ground = ground
        self._lease_alive = lease_alive
        self._counts = counts
        self._decisions = decisions
        self._bytes: Counter[str] = Counter()
        """The bytes that wait, by topic."""
        self._queues: dict[StreamQueue, None] = {}
        """The queues that have something; those that began to wait first are the first."""

    @property
    def queues(self) -> list[StreamQueue]:
        """The queues that have, or had a moment ago, something that is not sent."""
        return list(self._queues)

    def waiting_bytes(self, topic: str) -> int:
        """Returns how many bytes of a topic wait."""
        return self._bytes[topic]

    def add(self, queue: StreamQueue, write: ClientWrite) -> bool:
        """Puts a write at the end of its queue.

        Returns:
            Whether it waits now; False: it was refused.
        """
        topic = queue.topic.name
        if (queue.is_refusing or self._bytes[topic] + write.size > UNSENT_BYTES) and self._is_too_much(queue, write):
            self._refuse([write], queue)
            return False
        self._bytes[topic] += write.size
        queue.sequencer.add(write)
        self._queues[queue] = None
        return True

    def add_again(self, queue: StreamQueue, write: ClientWrite) -> None:
        """Counts a write that was sent and that its queue sends again."""
        write.is_unsent = True
        self._bytes[queue.topic.name] += write.size
        self._queues[queue] = None

    def take(
        self, queue: StreamQueue, partition: int, fits: Callable[[ClientWrite], bool]
    ) -> tuple[ClientWrite | None, bool]:
        """Takes out what is sent next to a physical partition.

        Args:
            queue: A queue that has its turn.
            partition: The physical partition that the queue got its turn for.
            fits: Returns whether a write may be sent with others.

        Returns:
            The write, if there is one, and whether the queue has more for the same partition.
        """
        home = queue.home(may_serve=self._lease_alive())
        if isinstance(home, Why) or home.partition != partition or home.end is not None:
            queue.has_turn = False
            asyncio.get_running_loop().call_soon(queue.go_on)
            return None, False
        if queue.has_transactions:
            self._drop_groundless(queue, partition)
        sequencer = queue.sequencer
        write = self.next(queue, home, fits)
        if write is not None and queue.held_since is not None:
            self.release(queue)
        queue.has_turn = sequencer.ready
        if sequencer.waits_for_answer:
            queue.go_on()
        return write, queue.has_turn

    def next(self, queue: StreamQueue, home: Stay, fits: Callable[[ClientWrite], bool]) -> ClientWrite | None:
        """Takes out what is sent next, and refuses what must not be written before it.

        Args:
            fits: Returns whether a write may be sent with others.
        """
        topic, sequencer, stream = queue.topic, queue.sequencer, queue.stream
        while True:
            step = sequencer.next(home, topic.images.get(stream, {}), fits, topic.layout.count_in_force)
            if step is None:
                return None
            if not isinstance(step, Refuse):
                self._uncount(step, topic.name)
                if step.undeleted_partition_count is not None:
                    step.sent_epoch = topic.layout.epoch
                return step
            self._uncount(step.write, topic.name)
            answer = queue.in_turn(step.write, refused(topic.layout, stream, step.why, self._counts))
            self._decisions.judged(queue, step.write, step.why, answer)
            step.write.settle(answer)

    def forsake(self, writes: Iterable[tuple[ManagedTopic, ClientWrite]]) -> None:
        """Drops what is not sent of a client that has gone (LATE-BINDING)."""
        for topic, write in writes:
            write.abandoned = True
            self._uncount(write, topic.name)

    def drop_held(self, queue: StreamQueue) -> None:
        """Refuses data of transactions instead of holding them: the hold may outlast their own transaction."""
        self._withdraw(queue, _is_transactional)

    def drop_transaction(self, queue: StreamQueue, producer_id: int) -> None:
        """Refuses what a queue has of a producer's transaction."""
        self._withdraw(queue, lambda write: write.ground is not None and client_id_of(write.producer_id) == producer_id)

    def _drop_groundless(self, queue: StreamQueue, partition: int) -> None:
        """Refuses data of transactions that nobody knows open any more where they would go to (TXN-WITNESS)."""
        ground = self._ground(queue.topic, partition)
        if ground is not None and ground == queue.ground:
            return
        queue.ground = ground
        self._withdraw(queue, lambda write: write.ground is not None and write.ground != ground)

    def _withdraw(self, queue: StreamQueue, is_out: Callable[[ClientWrite], bool]) -> None:
        writes = queue.sequencer.withdraw(is_out) if queue.sequencer.waits else []
        for write in writes:
            self._uncount(write, queue.topic.name)
        if writes:
            self._refuse(writes, queue)

    def hold(self, queue: StreamQueue, why: Why) -> None:
        """Begins the time for which a queue may be held, unless it has begun."""
        if queue.held_since is None:
            queue.held_since, queue.held_for = asyncio.get_running_loop().time(), why
            self._counts.held += 1
            self._decisions.held(queue, why)

    def release(self, queue: StreamQueue, *, given_up: bool = False) -> None:
        """Ends the hold."""
        if queue.held_since is not None:
            seconds = asyncio.get_running_loop().time() - queue.held_since
            queue.held_since = None
            self._decisions.released(queue, seconds, given_up=given_up)

    def give_up_overdue(self, now: float) -> None:
        """Refuses what has waited for too long, and what waits for a topic that is let go.

        Args:
            now: Seconds of the loop's clock.
        """
        for queue in self.queues:
            oldest = queue.sequencer.oldest
            if oldest is None:
                del self._queues[queue]
                self.release(queue)
                continue
            held = queue.held_since is not None and now - queue.held_since > HOLD_SECONDS
            if held or now - oldest > WAIT_SECONDS:
                self._give_up(queue)
            elif queue.topic.is_let_go:
                is_ordinary = not queue.topic.layout.is_managed  # its takeover was cancelled: brokers take its writes
                self._give_up(queue, Code.NOT_LEADER_OR_FOLLOWER if is_ordinary else Code.UNKNOWN_TOPIC_OR_PARTITION)

    def give_up_question(self, queue: StreamQueue) -> None:
        """Refuses writes that cannot be judged because a broker did not answer. Other producers' writes continue."""
        writes = queue.sequencer.give_up_question()
        for write in writes:
            self._uncount(write, queue.topic.name)
        self._refuse(writes, queue)

    def _is_too_much(self, queue: StreamQueue, write: ClientWrite) -> bool:
        """Whether a write is refused at once, because too much waits or what was before it is refused (SHORT-FENCE)."""
        blocked = isinstance(queue.home(may_serve=self._lease_alive()), Why)
        full = self._bytes[queue.topic.name] + write.size > (UNSENT_BYTES if blocked else _UNSENT_BYTES_IN_TURN)
        queue.is_refusing = full or (queue.is_refusing and blocked)
        return queue.is_refusing

    def _give_up(self, queue: StreamQueue, code: Code = Code.NOT_LEADER_OR_FOLLOWER) -> None:
        """Refuses all unsent writes of a stream, and later ones while it is held (SHORT-FENCE)."""
        queue.is_refusing = True
        why = queue.held_for if queue.held_since is not None else None
        self.release(queue, given_up=True)
        writes = queue.sequencer.give_up()
        for write in writes:
            self._uncount(write, queue.topic.name)
        self._refuse(writes, queue, code, why)

    def _refuse(
        self,
        writes: list[ClientWrite],
        queue: StreamQueue,
        code: Code = Code.NOT_LEADER_OR_FOLLOWER,
        why: Why | None = None,
    ) -> None:
        self._counts.given_up += len(writes)
        for write in writes:
            self._decisions.given_up(queue, write, code, why)
            write.settle(queue.in_turn(write, WriteOutcome(shown_partition(queue.stream), code)))

    def _uncount(self, write: ClientWrite, topic: str) -> None:
        if write.is_unsent:
            write.is_unsent = False
            self._bytes[topic] -= write.size


def _is_transactional(write: ClientWrite) -> bool:
    return write.ground is not None
