"""Compares a backup of the layouts with a cluster: are these the layouts by which its topics were written last?

A layout that is older than the data puts keys out of order: it sends them to partitions that they have left, and hides
what was written since. Each batch in a log names the virtual partition and its move (ORIGIN-TAG). So one batch of a
writer whom a layout does not know shows that there was a later one. A later layout by which nothing was written leaves
no batch, and does no harm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kordon.codecs.errors import WireError
from kordon.codecs.split import CONTROL, LogBatch, split
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.ends import PartitionEnds, TopicsRefused
from kordon.proxy.ordering.identity import untag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.reading import Tenancy, tenancies
from kordon.proxy.ordering.records import TopicRecord
from kordon.proxy.own_topics.layouts_backup import Backup
from kordon.proxy.topics.managed_topics import face_of

_EMPTY_ANSWERS: Final = 5
"""In a row, after which nothing stands below the end: compaction has taken it."""


@dataclass
class BackupComparison:
    """What differs between a backup and a cluster, in words.

    Attributes:
        problems: The reason why the backup's layout of a topic cannot be used, by topic.
        notes: Other remarks for an operator, by topic.
        same: Topics whose layout in the backup is in force.
    """

    problems: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    notes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    same: set[str] = field(default_factory=set[str])

    @property
    def is_sound(self) -> bool:
        """Whether nothing speaks against going by the backup."""
        return not any(self.problems.values())


class LayoutsCheck:
    """Compares topic by topic.

    Args:
        in_force: The layouts that the cluster goes by now; none where `__kordon.layouts` is lost.
    """

    def __init__(self, brokers: Brokers, backup: Backup, in_force: Mapping[str, TopicRecord]) -> None:
        self._brokers = brokers
        self._ends = PartitionEnds(brokers)
        self._backup = backup
        self._in_force = in_force
        self.found = BackupComparison()

    async def run(self) -> BackupComparison:
        """Looks at every topic of the backup, and at those that it lacks.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        cluster_id = (await self._brokers.metadata([])).cluster_id
        if cluster_id != self._backup.cluster_id:
            other = f"the backup is of cluster {self._backup.cluster_id}, and this is cluster {cluster_id}"
            self.found.problems["__kordon.layouts"] = [other]
            return self.found
        for record in self._backup.topics.values():
            await self._look_at(record)
        for topic in sorted(self._in_force.keys() - self._backup.topics.keys()):
            self._object(topic, "it is managed, and the backup does not have it: it was managed later")
        return self.found

    def _object(self, topic: str, problem: str) -> None:
        self.found.problems.setdefault(topic, []).append(problem)

    def _note(self, topic: str, note: str) -> None:
        self.found.notes.setdefault(topic, []).append(note)

    async def _look_at(self, record: TopicRecord) -> None:
        layout, in_force = record.layout, self._in_force.get(record.layout.topic)
        topic = layout.topic
        try:
            await self._look_at_topics(record)
            if self.found.problems.get(topic):
                return
            if in_force is not None and in_force.layout.epoch >= layout.epoch:
                self._compare(record, in_force)
            else:
                await self._look_at_logs(layout)
        except TopicsRefused as refusal:
            self._object(topic, f"it cannot be looked at: {refusal}")

    async def _look_at_topics(self, record: TopicRecord) -> None:
        """Compares what brokers say of the topic and of its face."""
        topic, layout = record.layout.topic, record.layout
        rows = {row.name: row for row in (await self._brokers.metadata([topic, face_of(topic)])).topics}
        expected = ((topic, layout.topic_id, "it"), (face_of(topic), record.face_id, "its face"))
        for name, topic_id, what in expected:
            row = rows[name]
            if row.error_code:
                self._object(topic, f"{what} is not there: it was deleted, or let go")
            elif row.topic_id != topic_id:
                self._object(topic, f"{what} has id {row.topic_id}, and {topic_id} in the backup: it was made again")
        if self.found.problems.get(topic):
            return
        there = {each.partition_index for each in rows[topic].partitions}
        if missing := {each.id.partition for each in layout.segments} - there:
            self._object(topic, f"the brokers have {len(there)} partitions, and the layout needs {max(missing) + 1}")
        if len(rows[face_of(topic)].partitions) != layout.v_count:
            seen = len(rows[face_of(topic)].partitions)
            self._object(topic, f"its face has {seen} partitions, and the layout {layout.v_count}")

    def _compare(self, record: TopicRecord, in_force: TopicRecord) -> None:
        """Compares with the layout in force, by which the cluster has gone all along."""
        topic, layout, now = record.layout.topic, record.layout, in_force.layout
        if now.epoch > layout.epoch:
            change = f"layout epoch {layout.epoch} with {layout.u} partitions, and epoch {now.epoch} with {now.u}"
            self._object(topic, f"the backup is older: it has {change} is in force")
        elif (now.epochs, now.segments, now.v_count) != (layout.epochs, layout.segments, layout.v_count):
            self._object(topic, f"another layout of epoch {now.epoch} is in force")
        else:
            self.found.same.add(topic)
            if in_force != record:
                self._note(topic, "its settings, its deleted records or its takeover have changed since the backup")

    async def _look_at_logs(self, layout: Layout) -> None:
        """Looks for batches of a later layout; the logs are all that can tell of it."""
        topic, living = layout.topic, tenancies(layout)
        partitions = sorted((await self._ends.leaders(topic)).keys())
        ends = {q: each.log_end_offset for q, each in (await self._ends.ends_of(topic, partitions)).items()}
        self._look_at_ends(layout, ends)
        if self.found.problems.get(topic):
            return
        starts = await self._ends.log_starts(topic, partitions)
        told = self._backup.log_ends.get(topic, {})
        for q in sorted(living.keys() & ends.keys()):
            begin = told.get(q, 0)
            if told and starts[q] > begin:
                self._note(topic, f"partition {q}: retention has taken offsets {begin} to {starts[q]} since the backup")
            if not await self._is_known(layout, living[q], range(max(begin, starts[q]), ends[q])):
                return

    def _look_at_ends(self, layout: Layout, ends: Mapping[int, int]) -> None:
        """Compares where logs end with what the layout knows of them."""
        topic, bounds = layout.topic, layout.last_bounds
        living = {each.id.partition for each in layout.segments}
        told = self._backup.log_ends.get(topic, {})
        for q in sorted(ends):
            if q not in living and ends[q]:
                self._object(topic, f"partition {q} has had {ends[q]} records, and the layout does not know it")
            elif q not in living:
                self._note(topic, f"partition {q} is empty, and the layout does not know it: a growth was abandoned")
            elif (bound := bounds.get(q)) is not None and ends[q] < bound.offset:
                lost = f"the log of partition {q} ends at {ends[q]}, below the cut at {bound.offset}"
                self._note(topic, f"{lost}: an unclean election removed records, and Kordon mends that when it starts")
            elif ends[q] < told.get(q, 0):
                self._note(
                    topic, f"the log of partition {q} ends at {ends[q]}, and ended at {told[q]} before the backup"
                )

    async def _is_known(self, layout: Layout, tenancy: Tenancy, offsets: range) -> bool:
        """Whether all batches at some offsets of a partition are of writers whom the layout knows."""
        async for batch in self._batches(layout.topic, tenancy.partition, offsets):
            if not batch.attributes & CONTROL and not tenancy.knows(batch.producer_id, batch.base_offset):
                place = f"partition {tenancy.partition} has a record at offset {batch.base_offset}"
                self._object(layout.topic, f"{place} {_written(batch.producer_id, layout)}")
                return False
        return True

    async def _batches(self, topic: str, partition: int, offsets: range) -> AsyncIterator[LogBatch]:
        position, empty = offsets.start, 0
        while position < offsets.stop and empty < _EMPTY_ANSWERS:
            _, records = (await self._ends.read_behind(topic, {partition: position}))[partition]
            try:
                found: Iterable[LogBatch] = [each for each in split(records) if each.next_offset > position]
            except WireError as error:
                raise UpstreamUnavailable(f"reading {topic}-{partition} at {position}: {error}") from error
            empty = 0 if found else empty + 1
            for batch in found:
                yield batch
                position = batch.next_offset


def _written(producer_id: int, layout: Layout) -> str:
    """Returns the writer of a batch that a layout does not know."""
    identity = untag(producer_id)
    assert identity is not None, "whoever went round Kordon is known"
    who = f"of layout epoch {identity.move}" if identity.is_physical else f"of virtual partition {identity.v}"
    after = "" if identity.is_physical else f" after its move {identity.move}"
    return f"{who}{after}, which layout epoch {layout.epoch} does not know: the backup is older than the data"
