"""The physical logs that a worker has read, by topic, under the layouts in force (SHARED-READ)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Final

from kordon.codecs.fetched import Fetched
from kordon.proxy.kafka.batched_fetcher import Want
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.kafka.opening import Opener
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.physical_reading import AnyTenancy, tenancy_of
from kordon.proxy.ordering.reading import Tenancy, tenancies
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.reads.homes import TopicHomes
from kordon.proxy.reads.indexing import Indexer
from kordon.proxy.reads.log_transactions import LogTransactions
from kordon.proxy.reads.logs import PartitionLog
from kordon.proxy.reads.read_tally import ReadTally
from kordon.proxy.reads.transactional_indexing import TransactionalIndexer
from kordon.proxy.reads.view_cache import ViewCache
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics

CACHE_BYTES: Final = 128 * 1024 * 1024
"""Of one worker; what clients are being sent comes on top."""


class _TopicLogs:
    """The logs of one topic under one layout."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.logs: dict[int, PartitionLog] = {}
        """The logs by `log_read_by`."""
        self.homes: TopicHomes | None = None
        """The homes of its streams in these logs; None: nobody has asked, or the logs have changed since."""
        self._tenancies: Mapping[int, Tenancy] = tenancies(layout)

    def tenancy(self, log: int) -> AnyTenancy:
        """Returns who has what in a log."""
        return tenancy_of(self.layout, self._tenancies, log)

    def of(self, partition: int) -> list[PartitionLog]:
        """Returns the logs that there are of a physical partition."""
        logs = (self.logs.get(log) for log in (partition, physical_stream(partition)))
        return [log for log in logs if log is not None]

    def keep(self, former: _TopicLogs) -> None:
        """Takes over the logs of an earlier layout, but those of partitions on which it has changed anything."""
        is_same_topic = (former.layout.topic_id, former.layout.has_transactions) == (
            self.layout.topic_id,
            self.layout.has_transactions,
        )
        for log, each in former.logs.items():
            if is_same_topic and former.tenancy(log) == self.tenancy(log):
                self.logs[log] = each
            else:
                each.close()


class LogStore:
    """Keeps one log for all readers of a physical partition, while nothing changes of who lives and has lived there.

    Args:
        leaders: The leaders, whose elections end what was read under former leaders.
        opener: The part that opens batches whose records go to several owners.
        tally: The tally, which counts what is read, kept and given.
        cache_bytes: The most bytes of records that are kept for other readers.
    """

    def __init__(
        self,
        topics: ManagedTopics,
        leaders: Leaders,
        fetch: Callable[[Want], Awaitable[Fetched]],
        *,
        opener: Opener,
        tally: ReadTally,
        tasks: Tasks,
        cache_bytes: int,
    ) -> None:
        self._topics = topics
        self._leaders = leaders
        leaders.tell_elections(self._on_elected)
        self._fetch = fetch
        self._opener = opener
        self._tally = tally
        self._tasks = tasks
        self._cache = ViewCache(cache_bytes, tally)
        self._logs: dict[str, _TopicLogs] = {}

    def of(self, topic: ManagedTopic, log: int) -> PartitionLog:
        """Returns the log of a physical partition under the layout in force; `log` is by `log_read_by`."""
        return self._log_of(self._logs_of(topic), log)

    def homes(self, topic: ManagedTopic) -> TopicHomes:
        """Returns where a topic's streams are read under the layout in force, until that or a leader changes."""
        known = self._logs_of(topic)
        if known.homes is None:
            known.homes = TopicHomes(known.layout, partial(self._log_of, known))
        return known.homes

    def _log_of(self, known: _TopicLogs, log: int) -> PartitionLog:
        found = known.logs.get(log)
        if found is None:
            found = known.logs[log] = self._new_log(known, log)
        return found

    @property
    def undecided_seconds(self) -> float:
        """How long the reader has waited that waits longest for the outcome of a transaction; 0: none waits."""
        known = (log.transactions for topic in self._logs.values() for log in topic.logs.values())
        since = [each.undecided_since for each in known if each is not None]
        first = min((each for each in since if each is not None), default=None)
        return 0.0 if first is None else time.monotonic() - first

    def shown(self, topic: ManagedTopic, partitions: Collection[int]) -> dict[int, int]:
        """Returns up to which offsets readers may have been told of physical partitions under their present leaders."""
        logs = self._logs_of(topic)
        shown = {q: [mark for log in logs.of(q) if (mark := log.shown) is not None] for q in partitions}
        return {q: max(each) for q, each in shown.items() if each}

    def told(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """Returns up to which offsets readers may have been told of partitions, under former leaders as well."""
        known = self._logs.get(topic)
        logs = {q: known.of(q) for q in partitions} if known is not None else {}
        return {q: max(log.told for log in each) for q, each in logs.items() if each}

    def invalidate(self, topic: str) -> None:
        """Drops what was read where the layout has changed; requests that wait continue under the present one."""
        managed = self._topics.served(topic)
        if managed is None:
            self._let_go(topic)
        elif topic in self._logs:
            self._logs_of(managed)

    def prune(self) -> None:
        """Drops what has been sent to all readers, a moment after that."""
        self._cache.prune()

    def _new_log(self, known: _TopicLogs, log: int, told: int = 0) -> PartitionLog:
        topic, v_count = known.layout.topic, known.layout.v_count
        has_transactions = known.layout.has_transactions
        kind = TransactionalIndexer if has_transactions else Indexer
        indexer = kind(topic, known.tenancy(log), v_count, self._tally, self._opener)
        leader_epoch = partial(self._leader_epoch, topic, indexer.partition)
        transactions = LogTransactions(leader_epoch) if has_transactions else None
        return PartitionLog(
            topic,
            indexer,
            self._cache,
            self._tally,
            fetch=self._fetch,
            tasks=self._tasks,
            told=told,
            transactions=transactions,
        )

    def _leader_epoch(self, topic: str, partition: int) -> int:
        leader = (self._leaders.known(topic) or {}).get(partition)
        return leader.epoch if leader is not None else -1

    def _on_elected(self, topic: str, partition: int) -> None:
        """Reads a partition again, because its new leader may lack what the former one had."""
        known = self._logs.get(topic)
        if known is None:
            return
        for log in (partition, physical_stream(partition)):
            former = known.logs.get(log)
            if former is not None:
                known.logs[log] = self._new_log(known, log, former.told)
                known.homes = None
                former.close()

    def _logs_of(self, topic: ManagedTopic) -> _TopicLogs:
        known = self._logs.get(topic.name)
        if known is None or known.layout is not topic.layout:
            before, known = known, _TopicLogs(topic.layout)
            self._logs[topic.name] = known
            if before is not None:
                known.keep(before)
        return known

    def _let_go(self, topic: str) -> None:
        former = self._logs.pop(topic, None)
        for each in former.logs.values() if former is not None else ():
            each.close()
