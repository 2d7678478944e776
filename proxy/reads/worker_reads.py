"""What all reads of one worker share: logs, what leaders say of their ends, and what may be shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.journal import NO_JOURNAL, Journal
from kordon.proxy.kafka.batched_fetcher import BatchedFetcher
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.kafka.opening import Opener
from kordon.proxy.kafka.transaction_coordinators import TransactionCoordinators
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.reads.absence_questions import AbsenceQuestions
from kordon.proxy.reads.log_ends import LogEnds
from kordon.proxy.reads.log_store import CACHE_BYTES, LogStore
from kordon.proxy.reads.read_decisions import ReadDecisions
from kordon.proxy.reads.read_tally import ReadTally
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics


class ReadLimits:
    """What may be shown to readers, by this worker's lease and the layouts that it has read.

    Args:
        may_serve: Whether the lease lives and the layouts are known; nothing is shown otherwise, because what stands
            after a cut that this worker has not heard of is nobody's to see (LIVE-LEASE, READ-BEFORE-SERVE).
        read_layouts_to_end: Returns when all layouts that were durable at the call are adopted; called before a client
            is told that its offset is out of range (NO-FALSE-END). Raises UpstreamUnavailable.
    """

    def __init__(
        self, may_serve: Callable[[], bool], read_layouts_to_end: Callable[[], Awaitable[object]] | None
    ) -> None:
        self.may_serve = may_serve
        self._read_layouts_to_end = read_layouts_to_end

    def of(self, topic: ManagedTopic, partition: int) -> int | None:
        """Returns the offset from which on nothing of a physical partition is shown now; None: there is none."""
        return topic.limit(partition, may_serve=self.may_serve())

    def in_stay(self, topic: ManagedTopic, stay: Stay) -> int | None:
        """Returns the same of a stay: one that is over is shown up to its end, whatever its partition is."""
        return self.of(topic, stay.partition) if stay.end is None else stay.kept_end

    async def judge_beyond(self, topic: ManagedTopic, layout: Layout) -> Code:
        """Judges an offset that lies beyond all there is, by all layouts there are (NO-FALSE-END).

        Returns:
            OFFSET_OUT_OF_RANGE, or UNKNOWN_LEADER_EPOCH where the layouts cannot be had now. NONE where another one
            is in force, or the topic was let go.
        """
        if not await self.settle_layouts():
            return Code.UNKNOWN_LEADER_EPOCH
        return Code.OFFSET_OUT_OF_RANGE if topic.layout is layout and not topic.is_let_go else Code.NONE

    async def settle_layouts(self) -> bool:
        """Takes in all layouts there are (NO-FALSE-END); False: they cannot be had now."""
        if self._read_layouts_to_end is None:
            return True
        try:
            await self._read_layouts_to_end()
        except (UpstreamUnavailable, TimeoutError):
            return False
        return True


class WorkerReads:
    """What Fetch requests, groups' lags and control read managed topics by.

    Args:
        cache_bytes: The most bytes of records that are kept for other readers.
        opener: The part that opens batches whose records go to several owners.
        read_layouts_to_end: The same as for `ReadLimits`.
        may_serve: The same as for `ReadLimits`.
        journal: The journal in which decisions are noted; None: they are not noted.
    """

    def __init__(
        self,
        topics: ManagedTopics,
        links: BrokerConnections,
        leaders: Leaders,
        *,
        cache_bytes: int = CACHE_BYTES,
        opener: Opener | None = None,
        read_layouts_to_end: Callable[[], Awaitable[object]] | None = None,
        may_serve: Callable[[], bool] = lambda: True,
        journal: Journal = NO_JOURNAL,
    ) -> None:
        self.topics = topics
        self.tasks = Tasks()
        self.tally = ReadTally()
        self.opener = opener or Opener()
        self.fetcher = BatchedFetcher(links, leaders)
        self.logs = LogStore(
            topics,
            leaders,
            self.fetcher.fetch,
            opener=self.opener,
            tally=self.tally,
            tasks=self.tasks,
            cache_bytes=cache_bytes,
        )
        self.ends = LogEnds(links, leaders)
        self.absences = AbsenceQuestions(self.ends, TransactionCoordinators(Brokers(links)), self.tasks)
        self.limits = ReadLimits(may_serve, read_layouts_to_end)
        self.decisions = ReadDecisions(journal)

    async def close(self) -> None:
        """Ends what is under way."""
        await self.tasks.stop()
        await self.fetcher.close()
