"""What brokers answer to writes: whether it is believed now, and what clients are told (LATE-ANSWER)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from math import inf
from typing import Final

from kordon.codecs.error_codes import Code
from kordon.codecs.produce import WriteOutcome
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.ordering.under_way import Fate, KeptAnswers, UnderWay
from kordon.proxy.ordering.write_result import Result
from kordon.proxy.writes.stream_queue import Sent
from kordon.proxy.writes.unsent_writes import WAIT_SECONDS, UnsentWrites
from kordon.proxy.writes.write_decisions import WriteDecisions
from kordon.proxy.writes.write_outcomes import LEADER_ERRORS, ProduceCounts, result_of, told

_MOST_KEPT: Final = 10_000
"""Answers that wait for the lease."""


class WriteAnswers:
    """The writes of one worker that are sent and not answered, and their answers.

    Args:
        leaders: Forget who leads a topic whose partition is refused.
        unsent: Takes in writes that are sent again.
        lease_alive: Returns whether managed topics may be served now (LIVE-LEASE).
        send_again: Called with a write whose copies are late; returns whether it is sent once more, as it was sent.
    """

    def __init__(
        self,
        leaders: Leaders,
        unsent: UnsentWrites,
        lease_alive: Callable[[], bool],
        send_again: Callable[[Sent], bool],
        *,
        counts: ProduceCounts,
        decisions: WriteDecisions,
    ) -> None:
        self.under_way = UnderWay()
        self._leaders = leaders
        self._unsent = unsent
        self._lease_alive = lease_alive
        self._send_again = send_again
        self._counts = counts
        self._decisions = decisions
        self._answered = asyncio.Event()
        self._read_at = -inf
        """When the layouts had been read last since this worker joined, in seconds of the loop's clock."""
        self._kept = KeptAnswers[tuple[Sent, WriteOutcome | None]](_MOST_KEPT, WAIT_SECONDS)

    @property
    def is_waiting(self) -> bool:
        """Whether something is unanswered, or its answer is kept."""
        return bool(self.under_way or self._kept)

    async def drain(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Returns when nothing that was sent to these physical partitions is unanswered.

        What is sent meanwhile counts, so the fence must stand before. Every request has a time limit, so this ends.

        Returns:
            By partition, the offset behind what was acknowledged meanwhile; 0 where nothing was.
        """
        drain = self.under_way.drain((topic, partition) for partition in partitions)
        try:
            while not drain.is_over:
                await self._answered.wait()
        finally:
            self.under_way.end(drain)
        return {partition: offset for (_, partition), offset in drain.landed.items()}

    @contextmanager
    def counted(self, topic: str, partition: int) -> Generator[None]:
        """Lets fences wait for what others of this worker write to a physical partition while this lasts."""
        self.under_way.sent((topic, partition))
        try:
            yield
        finally:
            self.under_way.answered((topic, partition))
            self._wake_drains()

    def take_in(self, answers: list[tuple[Sent, WriteOutcome | None]]) -> None:
        """Takes in what brokers answered; None: there will be no answer."""
        alive, now = self._lease_alive(), asyncio.get_running_loop().time()
        for sent, outcome in answers:
            if outcome is not None and outcome.error_code == Code.REQUEST_TIMED_OUT and self._send_again(sent):
                continue
            result = result_of(outcome)
            is_written = result is Result.WRITTEN
            written_to = outcome.base_offset + sent.write.records if outcome is not None and is_written else 0
            self.under_way.answered(sent.place, written_to)
            is_judged = alive and not self._is_older_than_fence(sent)
            match self._kept.take((sent, outcome), is_written=is_written, may_serve=is_judged, now=now):
                case Fate.TELL:
                    self._tell(sent, outcome, result)
                case Fate.LOSE:
                    self._tell(sent, None, Result.LOST)
                case Fate.KEEP:
                    self._counts.kept += 1
        if self.under_way.is_waited_for:
            self._wake_drains()

    def lease_renewed(self) -> None:
        """Judges the answers that came without a lease: it lives now, and the layouts have been read since."""
        self._read_at = asyncio.get_running_loop().time()
        self.release_kept()

    def release_kept(self) -> None:
        """Judges the answers that were kept, but for those that wait for a fence; the lease lives."""
        for sent, outcome in self._kept.release(lambda kept: self._is_older_than_fence(kept[0])):
            self._tell(sent, outcome, result_of(outcome))

    def _is_older_than_fence(self, sent: Sent) -> bool:
        """Whether a fence stands that does not wait for a write: it may have been raised while this worker was away.

        The cut may have been read then before the write landed, and the layout behind it is not there yet.
        """
        return sent.write.since <= self._read_at and sent.queue.topic.is_sealed(sent.place[1])

    def lose_overdue(self, now: float) -> None:
        """Tells clients that no answer came, for answers that were kept too long.

        Args:
            now: Seconds of the loop's clock.
        """
        for sent, _ in self._kept.overdue(now):
            self._tell(sent, None, Result.LOST)

    def _tell(self, sent: Sent, outcome: WriteOutcome | None, result: Result) -> None:
        queue, write = sent
        if outcome is not None and outcome.error_code in LEADER_ERRORS:
            self._leaders.forget(queue.topic.name)
        if queue.sequencer.answered(write, result):
            answer = queue.in_turn(write, told(queue.topic.layout, queue.stream, write, outcome, self._counts))
            if self._decisions.is_on:
                self._decisions.answered(queue, write, outcome, answer)
            write.settle(answer)
        else:
            self._unsent.add_again(queue, write)
        if queue.sequencer.waits:
            queue.go_on()

    def _wake_drains(self) -> None:
        self._answered.set()
        self._answered = asyncio.Event()
