"""Fetch of managed topics: what a client asks of virtual partitions, read from the physical ones.

A request is answered as a broker answers it: at once if there is enough, else when `max_wait_ms` has passed. Each of
its partitions is carried on (`fetching.py`) through what the worker has read already (`logs.py`); what is missing is
waited for, and many readers wait for one read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.journal import Journal, NoJournal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.kafka.links import Links
from kordon.proxy.kafka.opening import Opener
from kordon.proxy.kafka.pulls import Pulls
from kordon.proxy.kafka.questions import Form, PartitionQuestion, Questions
from kordon.proxy.ordering.layout import NO_COUNT, Layout
from kordon.proxy.ordering.physical_reading import AnyTenancy, PhysicalTenancy
from kordon.proxy.ordering.reading import Tenancy, reading_place, tenancies
from kordon.proxy.ordering.streams import is_physical, physical_stream, shown_partition
from kordon.proxy.reads.chunks import Cache, ReadTally
from kordon.proxy.reads.fetching import Fetching
from kordon.proxy.reads.logs import PartitionLog
from kordon.proxy.reads.portions import LATEST, refuse_fetch
from kordon.proxy.reads.read_decisions import ReadDecisions
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics

CACHE_BYTES: Final = 128 * 1024 * 1024
"""Of one worker; what clients are being sent comes on top."""
_FORM: Final = Form(apis.LIST_OFFSETS, range(4, 7), "name", "partition_index", "read ends")
_NOTHING_SECONDS: Final = 2.0


class _TopicLogs:
    """The logs of one topic under one layout."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.logs: dict[int, PartitionLog] = {}
        """By `log_read_by`."""
        self._tenancies: Mapping[int, Tenancy] = tenancies(layout)

    def tenancy(self, log: int) -> AnyTenancy:
        """Returns who has what in a log."""
        partition = shown_partition(log)
        shared = self._tenancies.get(partition) or Tenancy(partition)
        return PhysicalTenancy(partition, shared, self.layout.chain(log)) if is_physical(log) else shared

    def of(self, partition: int) -> list[PartitionLog]:
        """Returns the logs that there are of a physical partition."""
        logs = (self.logs.get(log) for log in (partition, physical_stream(partition)))
        return [log for log in logs if log is not None]

    def keep(self, former: _TopicLogs) -> None:
        """Takes over the logs of an earlier layout, but those of partitions on which it has changed anything."""
        is_same_topic = former.layout.topic_id == self.layout.topic_id
        for log, each in former.logs.items():
            if is_same_topic and former.tenancy(log) == self.tenancy(log):
                self.logs[log] = each
            else:
                each.close()


class Readers:
    """Answers Fetch for one worker.

    Args:
        topics: What is managed.
        links: The connections to brokers.
        leaders: Who leads.
        cache_bytes: Most bytes of records that are kept for other readers.
        read_layouts_to_end: Returns when all layouts that were durable at the call are adopted; called before a client
            is told that its offset is out of range (NO-FALSE-END). Raises UpstreamUnavailable.
        may_serve: Whether the lease lives and the layouts are known; nothing is shown otherwise, because what stands
            behind a cut that this worker has not heard of is nobody's to see (LIVE-LEASE, READ-BEFORE-SERVE).
        journal: Of the worker.
        opener: Of the worker.
    """

    def __init__(
        self,
        topics: ManagedTopics,
        links: Links,
        leaders: Leaders,
        *,
        cache_bytes: int = CACHE_BYTES,
        opener: Opener | None = None,
        read_layouts_to_end: Callable[[], Awaitable[object]] | None = None,
        may_serve: Callable[[], bool] = lambda: True,
        journal: Journal | None = None,
    ) -> None:
        self.tally = ReadTally()
        self.decisions = ReadDecisions(journal or NoJournal())
        self.read_layouts_to_end = read_layouts_to_end
        self.may_serve = may_serve
        self._topics = topics
        self._leaders = leaders
        leaders.on_elected = self._on_elected
        self.pulls = Pulls(links, leaders)
        self._questions = Questions(links, leaders)
        self.opener = opener or Opener()
        self._cache = Cache(cache_bytes, self.tally)
        self._logs: dict[str, _TopicLogs] = {}
        self._tasks = Tasks()

    async def serve(self, version: int, request: Any, client: Client) -> dict[str, Any]:
        """Answers a request that names managed topics only; returns the response's fields."""
        self._cache.prune()
        if any(row.get("undeleted_partition_count", NO_COUNT) != NO_COUNT for row in request["topics"]):
            return self._refuse_counts(request, client)
        return await Fetching(self, version, request, client).run()

    def _refuse_counts(self, request: Any, client: Client) -> dict[str, Any]:
        """Refuses a client that counts, as it means physical partitions, on a connection where there are none."""
        for row in request["topics"]:
            topic = self.find(row)
            for each in row["partitions"]:
                stream = physical_stream(each.partition)
                self.decisions.refused(client, topic, stream, each.fetch_offset, Code.INVALID_REQUEST)
        return refuse_fetch(request, Code.INVALID_REQUEST)

    async def ready(self, topic: str) -> None:
        """Connects with the leaders whom `freeze` will ask, as far as it can."""
        managed = self._topics.named(topic)
        if managed is not None:
            await self.ends_of(topic, managed.layout.open_segments.keys(), LATEST)

    async def freeze(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """Shows nothing more of sealed partitions than readers have seen, and asks how far that may be (FROZEN-READS).

        Args:
            topic: Its fence has been raised; when that ends, so does this.
            partitions: Sealed.

        Returns:
            The high watermarks, for `Fence.frozen`; one that cannot be had now is missing.
        """
        managed = self._topics.served(topic)
        if managed is None or managed.fence is None:
            return {}
        logs = self._logs_of(managed)
        shown = {q: [mark for log in logs.of(q) if (mark := log.shown) is not None] for q in partitions}
        fence = managed.fence = managed.fence.freezing({q: max(each) for q, each in shown.items() if each})
        ends = await self.ends_of(topic, partitions, LATEST)
        if managed.fence is fence:
            managed.fence = fence.freezing(ends)
        return ends

    def invalidate(self, topic: str) -> None:
        """Lets go what was read where the layout has changed; whoever waits for it goes on under the present one."""
        managed = self._topics.served(topic)
        if managed is None:
            self._let_go(topic)
        elif topic in self._logs:
            self._logs_of(managed)

    async def close(self) -> None:
        """Ends what is under way."""
        await self._tasks.stop()
        await self.pulls.close()

    def log_of(self, topic: ManagedTopic, log: int) -> PartitionLog:
        """Returns what is kept of a physical partition under the layout in force.

        Args:
            topic: The topic.
            log: By `log_read_by`.
        """
        known = self._logs_of(topic)
        found = known.logs.get(log)
        if found is None:
            found = known.logs[log] = self._new_log(known, log)
        return found

    def _new_log(self, known: _TopicLogs, log: int, told: int = 0) -> PartitionLog:
        return PartitionLog(
            topic=known.layout.topic,
            v_count=known.layout.v_count,
            tenancy=known.tenancy(log),
            cache=self._cache,
            tally=self.tally,
            pull=self.pulls.pull,
            tasks=self._tasks,
            opener=self.opener,
            told=told,
        )

    def _on_elected(self, topic: str, partition: int) -> None:
        """Reads a partition anew: its new leader may not have all that the former one had."""
        known = self._logs.get(topic)
        if known is None:
            return
        for log in (partition, physical_stream(partition)):
            former = known.logs.get(log)
            if former is not None:
                known.logs[log] = self._new_log(known, log, former.told)
                former.close()

    def told(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """Returns up to which offsets readers may have been told of physical partitions, by what is known here."""
        known = self._logs.get(topic)
        logs = {q: known.of(q) for q in partitions} if known is not None else {}
        return {q: max(log.told for log in each) for q, each in logs.items() if each}

    def limit_of(self, topic: ManagedTopic, partition: int) -> int | None:
        """Returns the offset from which on nothing of a physical partition is shown now; None: there is none."""
        return topic.limit(partition, may_serve=self.may_serve())

    async def ends_of(self, topic: str, partitions: Collection[int], timestamp: int) -> dict[int, int]:
        """Asks leaders where physical partitions begin (-2) or end (-1); those that do not answer are missing."""
        fields = (("current_leader_epoch", -1), ("timestamp", timestamp))
        asked = {PartitionQuestion(topic, q, fields): q for q in partitions}
        rows = await self._questions.ask(_FORM, asked.keys(), {"replica_id": -1, "isolation_level": 0})
        return {asked[each]: row["offset"] for each, row in rows.items() if not row["error_code"]}

    async def nothing_between(self, topic: str, v: int, offset: int, until: int) -> bool:
        """Whether no record of a virtual partition stands in [offset, until), as far as can be known in a moment.

        What stands there may all be its co-residents', so that many consumers do not commit behind it (OWN-END).
        """
        managed = self._topics.named(topic)
        if managed is None:
            return False
        try:
            async with asyncio.timeout(_NOTHING_SECONDS):
                return await self._pass_over(managed, v, offset, until)
        except TimeoutError:
            return False

    async def _pass_over(self, topic: ManagedTopic, v: int, offset: int, until: int) -> bool:
        layout = topic.layout
        while offset < until:
            place = reading_place(layout.chains[v], offset, 0)
            if place is None or topic.layout is not layout:
                return False
            stay = place.stay
            stop = until - stay.delta if stay.end is None else min(until - stay.delta, stay.end)
            log = self.log_of(topic, stay.partition)
            kept = stop if stay.kept_end is None else min(stop, stay.kept_end)
            empty = log.empty_until(v, place.position, kept)
            if empty is None:
                return False
            if empty >= kept:
                empty = stop
            else:
                reading = log.coming(empty)
                await asyncio.wait({reading})
                if reading.cancelled() or reading.result() != Code.NONE:
                    return False
            offset = empty + stay.delta
        return True

    def start(self, work: Any, name: str) -> asyncio.Task[Any]:
        """Runs something that a portion waits for."""
        return self._tasks.start(work, name=name)

    def epoch_known(self, topic: str, partition: int) -> int:
        """Returns the leader epoch of a physical partition as far as it is known without asking; -1: it is not."""
        leader = (self._leaders.known(topic) or {}).get(partition)
        return leader.epoch if leader is not None else -1

    async def settle_layouts(self) -> bool:
        """Takes in all layouts there are (NO-FALSE-END); False: they cannot be had now."""
        if self.read_layouts_to_end is None:
            return True
        try:
            await self.read_layouts_to_end()
        except (UpstreamUnavailable, TimeoutError):
            return False
        return True

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

    def find(self, row: Any) -> ManagedTopic | None:
        """Finds the topic of a request's row."""
        name = row.get("topic")
        return self._topics.served(name) if name else self._topics.served_by_id(row["topic_id"])
