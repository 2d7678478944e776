"""Asks coordinators whether markers are still to come that readers wait for (PROVEN-ABSENCE).

All that waits goes into one round of questions, and there is one round at a time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from typing import Final, NamedTuple

import structlog

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.kafka.transaction_coordinators import TransactionCoordinators
from kordon.proxy.ordering.transactions.absences import Absence
from kordon.proxy.reads.log_ends import LogEnd, LogEnds
from kordon.proxy.reads.logs import PartitionLog
from kordon.proxy.runtime.tasks import Tasks

log = structlog.get_logger(__name__)

_MOST: Final = 1_000
"""Questions of one round, and as many that wait for the next; what has no room is asked for again."""
_PAUSE_SECONDS: Final = 0.5
"""Between two rounds."""
_CURE: Final = "read_committed readers wait until it can be asked: see docs/runbook.md#kordontransactionundecided"


class _Question(NamedTuple):
    topic: str
    log: PartitionLog
    producer_id: int


class AbsenceQuestions:
    """The questions of one worker."""

    def __init__(self, ends: LogEnds, coordinators: TransactionCoordinators, tasks: Tasks) -> None:
        self._ends = ends
        self._coordinators = coordinators
        self._tasks = tasks
        self._waiting: dict[_Question, None] = {}
        self._asking: asyncio.Task[None] | None = None
        self._fails = False

    def doubt(self, topic: str, physical: PartitionLog, producer_id: int) -> None:
        """Notes that a reader waits for a producer that a physical log has no more records of.

        After a moment, and now and then from then on, coordinators are asked whether its transaction is open there. The
        answer goes to the log's `transactions`.
        """
        if physical.transactions is not None and physical.transactions.doubt(producer_id):
            self._ask_for(topic, physical, producer_id)

    def _ask_for(self, topic: str, physical: PartitionLog, producer_id: int) -> None:
        if len(self._waiting) < _MOST:
            self._waiting[_Question(topic, physical, producer_id)] = None
        if self._waiting and (self._asking is None or self._asking.done()):
            self._asking = self._tasks.start(self._ask_all(), name="ask coordinators of transactions")

    async def _ask_all(self) -> None:
        while self._waiting:
            questions, self._waiting = list(self._waiting), {}
            try:
                await self._ask(questions)
            except (UpstreamUnavailable, TopicsRefused) as error:
                if not self._fails:
                    log.warning("transactions_unknown", error=str(error), cure=_CURE)
                self._fails = True
            else:
                self._fails = False
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _ask(self, questions: Collection[_Question]) -> None:
        """Asks one round of questions.

        Raises:
            TopicsRefused: Kordon may not see all transactions.
            UpstreamUnavailable: A broker or coordinator does not answer.
        """
        before = await self._log_ends(questions)
        found = await self._coordinators.open({each.producer_id for each in questions})
        after = await self._log_ends(questions)
        is_open = {(topic, q, each.producer_id) for each in found for topic, qs in each.partitions.items() for q in qs}
        for each in questions:
            q, place = each.log.partition, (each.topic, each.log.partition)
            transactions = each.log.transactions
            if (each.topic, q, each.producer_id) in is_open or transactions is None:
                continue
            if place in before and place in after and before[place].leader_epoch == after[place].leader_epoch:
                absence = Absence(before[place].offset, after[place].offset, after[place].leader_epoch)
                transactions.prove(each.producer_id, absence)

    async def _log_ends(self, questions: Collection[_Question]) -> dict[tuple[str, int], LogEnd]:
        by_topic: defaultdict[str, set[int]] = defaultdict(set)
        for each in questions:
            by_topic[each.topic].add(each.log.partition)
        topics = list(by_topic)
        found = await asyncio.gather(*(self._ends.latest(topic, by_topic[topic]) for topic in topics))
        return {(topic, q): end for topic, ends in zip(topics, found, strict=True) for q, end in ends.items()}
