"""Partitions that rest: most of those that a reader names in each of its requests, since nothing is left for it there.

A partition *rests* if nothing is left for its reader in its log, as far as that has been read, be it that the reader
stands at the end or that only batches of others follow. What rests goes on resting from one request of a reader to the
next, as long as the reader names it in the same words: then nothing is done for it at all. The log is waited for once
for all that rest there, and what they are told is built once.

Whoever rests before the log's end has a filler coming when the answer is late (STEP-OVER). Then it is carried on like
the others: it rests no more. Nobody rests under another layout, under a fence or without a lease, and nobody rests on
who has led a log before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from operator import ne
from typing import NamedTuple, TypeVar
from uuid import UUID

from kordon.codecs.fetch_requests import FetchPartition
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.streams import Stream, physical_stream
from kordon.proxy.reads.fetch_rows import AskedTopic, found_topic, nothing_new
from kordon.proxy.reads.gated_fetching import RequestGate
from kordon.proxy.reads.homes import StreamHome
from kordon.proxy.reads.log_rest import LogRest, Resting, Stirred
from kordon.proxy.reads.logs import PartitionLog
from kordon.proxy.reads.looks_behind import is_stable
from kordon.proxy.reads.partition_fetch import epoch_error
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import ManagedTopic

_T = TypeVar("_T")


class RestingTopic:
    """A topic as a reader names it, with those of its partitions that rest.

    Attributes:
        name: The topic's name; empty: the reader names the topic by its id.
        managed: The managed topic; None: it is no longer known.
        at_rest: The row by which the reader has named each partition that rests.
        told: The row of the response for each partition that rests, as the response's version writes it.
        rows: The rows by which its partitions were named last; None: they were named in several parts.
    """

    __slots__ = (
        "_layout",
        "_leaders",
        "_where",
        "at_rest",
        "key",
        "managed",
        "name",
        "rests",
        "rows",
        "told",
        "topic_id",
    )

    def __init__(self, name: str, topic_id: UUID) -> None:
        self.key: str | UUID = name or topic_id
        self.name = name
        self.topic_id = topic_id
        self.managed: ManagedTopic | None = None
        self.at_rest: dict[int, FetchPartition] = {}
        self.told: dict[int, bytes] = {}
        self.rows: Mapping[int, FetchPartition] | None = None
        self.rests: dict[PartitionLog, LogRest] = {}
        self._where: dict[int, LogRest] = {}
        self._layout: Layout | None = None
        self._leaders: Mapping[int, object] | None = None

    def look_at(self, managed: ManagedTopic | None, leaders: Mapping[int, object] | None) -> None:
        """Has nobody rest who came to rest under another layout, or when others led its partitions."""
        layout = managed.layout if managed is not None else None
        is_elected = leaders is not None and leaders is not self._leaders
        if managed is not self.managed or layout is not self._layout or is_elected:
            self.rise_all()
            self.managed, self._layout, self._leaders = managed, layout, leaders

    @property
    def is_over(self) -> bool:
        """Whether nobody rests here any more, whatever the logs have."""
        return self.managed is None or self.managed.layout is not self._layout or self.managed.fence is not None

    def awake(self, asked: AskedTopic) -> list[FetchPartition] | None:
        """Returns the rows of those that do not rest, where a request says what has changed; None: it does not."""
        rows, changed = asked.rows, asked.changed
        if changed is None or rows is not self.rows:
            return None
        at_rest = self.at_rest
        awake = [row for row in changed if at_rest.get(row[0]) != row]
        self.rise([row[0] for row in awake if row[0] in at_rest])
        if len(awake) + len(at_rest) == len(rows):
            return awake
        return [row for row in turned([*rows.values()], asked.begin) if row[0] not in at_rest]

    def settle(self, rest: LogRest, row: FetchPartition, home: StreamHome, position: int) -> None:
        """Has a partition rest."""
        partition = row[0]
        rest.least = min(rest.least, position)
        rest.resting[partition] = Resting(row, home)
        self.at_rest[partition] = row
        self._where[partition] = rest

    def resting(self, partition: int) -> Resting | None:
        """Returns how a partition rests; None: it does not."""
        rest = self._where.get(partition)
        return rest.resting[partition] if rest is not None else None

    def rise(self, partitions: Iterable[int]) -> None:
        """Has partitions rest no more."""
        for each in partitions:
            rest = self._where.pop(each)
            del rest.resting[each], self.at_rest[each]
            self.told.pop(each, None)
            if not rest.resting:
                del self.rests[rest.log]

    def rise_all(self) -> None:
        """Has nobody rest any more."""
        for each in (self.at_rest, self.told, self.rests, self._where):
            each.clear()


def turned(rows: list[_T], begin: int) -> list[_T]:
    """Returns the rows in the order of a request that begins with one of them."""
    return rows[begin:] + rows[:begin] if begin else rows


class NamedTopic(NamedTuple):
    """A topic of a request."""

    topic: RestingTopic
    rows: Mapping[int, FetchPartition]
    """All that the request names, by partition."""
    awake: list[FetchPartition]
    """Those of them that do not rest yet."""
    begin: int = 0
    """The place among the rows with which the request began."""

    @property
    def partitions(self) -> list[int]:
        """Returns what the request names, in its order."""
        return turned([*self.rows], self.begin)


class Awake(NamedTuple):
    """A partition that has rested, and rests no more."""

    topic: RestingTopic
    row: FetchPartition
    empty_until: int = 0
    """Where in its log nothing is left for its reader before; 0: that is not known."""


class ToldAtRest(NamedTuple):
    """The answer that a partition that rests gets from now on."""

    topic: RestingTopic
    partition: int
    end: int
    start: int


class Rests:
    """The partitions of one reader that rest.

    Args:
        version: The version of the reader's requests.
        is_committed: Whether the reader gets committed records only.
        gate: The gate of requests that mean physical partitions; None: the requests mean virtual partitions.
    """

    def __init__(
        self, reads: WorkerReads, version: int, *, is_committed: bool = False, gate: RequestGate | None = None
    ) -> None:
        self.version = version
        self.is_committed = is_committed
        self._reads = reads
        self._gate = gate
        self._topics: dict[str | UUID, RestingTopic] = {}
        self.stirred = Stirred()
        self._untold: list[tuple[RestingTopic, int]] = []
        """Who has come to rest, and is to be told for the first time."""
        self._starts = -1
        """How often a log's start had changed when the others were told."""

    @property
    def count(self) -> int:
        """The number of partitions that rest."""
        return sum(len(each.at_rest) for each in self._topics.values())

    def name(self, asked: Sequence[AskedTopic]) -> list[NamedTopic]:
        """Takes in what a request names: what it names otherwise than the one before, or not at all, rests no more."""
        named: list[NamedTopic] = []
        rows_of: dict[RestingTopic, Mapping[int, FetchPartition]] = {}
        rests = 0
        for each in asked:
            topic = self._topic(each)
            rows: Mapping[int, FetchPartition] = each.rows
            if (before := rows_of.get(topic)) is not None:  # who begins amid a topic has the rest of it at the end
                rows = {partition: row for partition, row in rows.items() if partition not in before}
                awake = None
            else:
                awake = topic.awake(each)
            rows_of[topic] = {**before, **rows} if before is not None else rows
            if awake is None:
                # Looks at each partition that a reader names: hence no loop of Python's.
                differs = map(ne, rows.values(), map(topic.at_rest.get, rows))
                awake = [*compress(rows.values(), differs)]
            topic.rows = rows if before is None else None
            rests += len(rows) - len(awake)
            named.append(NamedTopic(topic, rows, awake, each.begin if before is None else 0))
        if rests != self.count:
            for topic, rows in rows_of.items():
                topic.rise([each for each, row in topic.at_rest.items() if rows.get(each) != row])
        if len(rows_of) != len(self._topics):
            self._topics = {key: topic for key, topic in self._topics.items() if topic in rows_of}
        return named

    def lay(self, named: NamedTopic) -> list[FetchPartition]:
        """Lets those of a topic's partitions rest for whose readers nothing is left; returns the others."""
        topic, rows = named.topic, named.awake
        managed = topic.managed
        if not rows or managed is None or not self._may_rest(managed):
            return rows
        # Taken for every partition that a reader names anew: hence local names.
        homes, rests, untold = self._reads.logs.homes(managed), topic.rests, self._untold
        means_virtual, is_uncommitted = self._gate is None, not self.is_committed
        right: set[tuple[int, int, int]] = set()
        others: list[FetchPartition] = []
        for row in rows:
            partition, believed, offset, _ = row
            stream = partition if means_virtual else physical_stream(partition)
            home = homes.get(stream) or homes.find(stream) if partition >= 0 else None
            if home is None or offset < home.least:
                others.append(row)
                continue
            log, position = home.log, offset - home.delta
            has_all = position == log.high_watermark and is_uncommitted
            if not (has_all or self._has_nothing_for(home, position)):
                others.append(row)
                continue
            epochs = home.stay.partition, home.stay.move, believed
            if believed >= 0 and epochs not in right:
                if epoch_error(self._reads, managed, home.stay, believed):
                    others.append(row)
                    continue
                right.add(epochs)
            rest = rests.get(log)
            if rest is None:
                rest = rests[log] = LogRest(topic.key, log, position, self.stirred)
            topic.settle(rest, row, home, position)
            untold.append((topic, partition))
        return others

    def wake(self, *, is_late: bool) -> list[Awake]:
        """Ends and returns the rests for which something may be left or a filler is due."""
        awake: list[Awake] = []
        stirred = set(self.stirred.take())
        for topic in self._topics.values():
            if topic.rests and topic.is_over:
                awake += [Awake(topic, row) for row in topic.at_rest.values()]
                topic.rise_all()
            elif is_late:
                stirred.update(rest for rest in topic.rests.values() if rest.is_behind)
        for rest in stirred:
            found = self._topics.get(rest.key)
            if found is None or found.rests.get(rest.log) is not rest:
                continue  # nobody rests here any more
            up, empty_until = rest.wake(self._has_nothing_for, is_late=is_late)
            awake += [Awake(found, found.at_rest[each], empty_until) for each in up]
            found.rise(up)
        return awake

    def tell(self) -> list[ToldAtRest]:
        """Builds the answers for partitions that rest, where they are not built, and returns them."""
        untold, self._untold = self._untold, []
        if self._starts != (starts := self._reads.tally.starts):
            self._starts = starts
            untold = [(topic, each) for topic in self._topics.values() for each in topic.at_rest]
        told: list[ToldAtRest] = []
        for topic, partition in untold:
            resting = topic.resting(partition)
            if resting is None or topic.managed is None:
                continue  # it woke again
            home, offset = resting.home, resting.row[2]
            start = home.start if home.is_first else self._reads.logs.homes(topic.managed).start_of(home.stream)
            topic.told[partition] = nothing_new(self.version, partition, offset, start)
            told.append(ToldAtRest(topic, partition, offset, start))
        return told

    def _topic(self, asked: AskedTopic) -> RestingTopic:
        """Returns a topic with those that rest there, if they may go on with that."""
        key = asked.name or asked.topic_id
        topic = self._topics.get(key)
        if topic is None:
            topic = self._topics[key] = RestingTopic(asked.name, asked.topic_id)
        managed = found_topic(self._reads.topics, asked)
        topic.look_at(managed, self._reads.ends.leaders(managed.name) if managed is not None else None)
        if managed is not None and topic.at_rest:
            is_undecided = self.is_committed and managed.layout.has_transactions
            if is_undecided or not self._may_rest(managed):
                topic.rise_all()
        return topic

    def _may_rest(self, topic: ManagedTopic) -> bool:
        """Whether partitions of a topic may rest: this worker knows which records are to be seen of all there are."""
        if not self._reads.limits.may_serve() or topic.fence is not None:
            return False
        return self._gate is None or self._gate.count(topic) == topic.layout.count_in_force

    def _has_nothing_for(self, home: StreamHome, position: int) -> bool:
        """Whether nothing is left for a reader from its position on, as far as the log has been read.

        A gate that is shut changes nothing for who stands at the end. Who stands before it has to be told the true end.
        """
        log = home.log
        mark = log.high_watermark
        if mark is None or position > mark:
            return False
        if position < mark and (self._gate is not None or log.views.skip(home.stream, position) < mark):
            return False
        return not self.is_committed or is_stable(log, home.stream)

    def stream(self, partition: int) -> Stream:
        """Returns what the reader means by a number."""
        return partition if self._gate is None else physical_stream(partition)
