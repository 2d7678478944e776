"""Copies a topic to another one, partition by partition, and continues where it was after whatever ends it.

Two things make that exact (docs/why/copies.md). Before a batch is sent, the copy commits for the target, as a group of
its own, which records of the source it is made of. And the batch's sequence is its offset in the target, under one
producer id for good: brokers append it there, or recognise it, or refuse it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kordon.codecs.bodies import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
)
from kordon.codecs.counted import counted, size
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import offset_commit, offset_fetch
from kordon.proxy.commands.copied_partition import CopiedPartition, CopyPlace, CopyStopped, SourceRecord
from kordon.proxy.commands.topic_reader import TopicReader
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import build_copies
from kordon.proxy.kafka.brokers import Brokers, CoordinatorKind
from kordon.proxy.kafka.ends import PartitionEnds, TopicsRefused, refuse
from kordon.proxy.kafka.producer import BatchRefused, Producer, new_identity

_PURPOSE: Final = "copy writes"
_GROUP_PURPOSE: Final = "copy places"
_COMMIT_VERSIONS: Final = range(2, 10)
_FETCH_VERSIONS: Final = range(8, 10)
_WAIT_MS: Final = 500
_AT_ONCE: Final = 1000
"""Partitions of a commit, which the coordinator writes as one batch, or of a Fetch."""
_MOST_BATCH_BYTES: Final = 1024 * 1024
_HEADROOM: Final = 16
"""Of a batch this part is left for its header, and for what does not get smaller by compression."""
_PATIENCE_SECONDS: Final = 60.0
"""For so long a cluster that does not answer is asked again."""
_MOMENT_SECONDS: Final = 5.0
"""Who has all that there was so long ago has caught up."""
_SPEECHLESS_SECONDS: Final = 3.0
"""What lasts shorter is not worth a line."""
_PAUSE_SECONDS: Final = 0.5
_LOOKS: Final = 5
"""For what stands still when a copy begins."""
_CURES: Final[Mapping[Code, str]] = {
    Code.TOPIC_AUTHORIZATION_FAILED: "whoever copies needs READ and DESCRIBE on {source}, and READ, WRITE and DESCRIBE "
    "on {target}",
    Code.GROUP_AUTHORIZATION_FAILED: "whoever copies needs READ on the group {group}, where the copy keeps its place",
    Code.CLUSTER_AUTHORIZATION_FAILED: "whoever copies needs READ, WRITE and DESCRIBE on {target}",
    Code.MESSAGE_TOO_LARGE: "set max.message.bytes of {target} to at least that of {source}, and run this again",
    Code.INVALID_TIMESTAMP: "{target} takes no times as old or new as these: take message.timestamp.before.max.ms, "
    "message.timestamp.after.max.ms and message.timestamp.difference.max.ms away from it, and run this again",
    Code.INVALID_RECORD: "if {target} is compacted, each record needs a key: take compact out of its cleanup.policy, "
    "and run this again",
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER: "another copy to {target} is running: end it, and run this again",
    Code.INVALID_PRODUCER_EPOCH: "another copy to {target} is running: end it, and run this again",
}

NEW_TARGET: Final = "Copy it to another target."
"""What helps where a copy has read what is gone."""


class CopyProgress(NamedTuple):
    """How far a copy is."""

    copied: int
    """Records in the target."""
    to_go: int
    """There are no more records than that."""


class TopicCopy:
    """One copy, from the place where the last one to this target was.

    Args:
        partitions: The partitions of both topics.
        most_bytes: max.message.bytes of the target.
        tell: Called with what holds the copy up.
    """

    def __init__(
        self,
        brokers: Brokers,
        source: str,
        target: str,
        partitions: int,
        *,
        most_bytes: int,
        tell: Callable[[str], None],
    ) -> None:
        self.group = group_of(target)
        self.reader = TopicReader(brokers, source, NEW_TARGET)
        self.partitions: dict[int, CopiedPartition] = {}
        self._brokers = brokers
        self._target_ends = PartitionEnds(brokers)
        self._source = source
        self._target = target
        self._numbers = range(partitions)
        self._batch_bytes = min(most_bytes, _MOST_BATCH_BYTES) * (_HEADROOM - 1) // _HEADROOM
        self._tell = tell
        self._is_begun = False

    @property
    def progress(self) -> CopyProgress:
        """How far it is."""
        parts = self.partitions.values()
        return CopyProgress(sum(part.place.written for part in parts), sum(part.to_go for part in parts))

    async def catch_up(self, on_progress: Callable[[CopyProgress], None]) -> None:
        """Copies until everything is copied that was there a moment ago; outlasts brokers that are away for a while.

        Raises:
            CopyStopped: The copy cannot continue by itself.
            UpstreamUnavailable: Nobody has answered for a minute.
        """
        moved = asked = time.monotonic()
        goals: dict[int, int] = {}
        while True:
            try:
                self.partitions = self.partitions or await self._resumed()
                if not goals:
                    goals, asked = await self.reader.ends(self._numbers), time.monotonic()
                await self._step()
            except UpstreamUnavailable as error:
                self.partitions = {}  # what is on its way may be written or not
                self._brokers.leaders.forget(self._source)
                self._brokers.leaders.forget(self._target)
                self._stop_if_final(error)
                waits = time.monotonic() - moved
                if waits > _PATIENCE_SECONDS:
                    raise
                if waits > _SPEECHLESS_SECONDS:
                    self._tell(f"waits, and asks again: {error}")
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            moved = time.monotonic()
            on_progress(self.progress)
            if all(self.partitions[number].copied_to >= goal for number, goal in goals.items()):
                if moved - asked < _MOMENT_SECONDS:
                    return
                goals = {}

    async def check_ends(self) -> None:
        """Makes sure that the target has what was copied and nothing else, and that nothing has come since.

        Raises:
            CopyStopped: The target has something else, or new records have come.
            UpstreamUnavailable: A broker does not answer.
        """
        ends = await self.reader.ends(self._numbers)
        if any(end > self.partitions[number].copied_to for number, end in ends.items()):
            raise CopyStopped(f"somebody writes to {self._source}: stop its producers, and run this again")
        for partition, end in (await self._ends()).items():
            if end != self.partitions[partition].place.written:
                raise self._foreign(f"{self._target}-{partition} ends at {end}")

    async def _step(self) -> None:
        """Writes what has been read, and reads on meanwhile."""
        batches = {number: part.take(self._batch_bytes) for number, part in self.partitions.items()}
        batches = {number: records for number, records in batches.items() if records}
        await _all(self._write(batches), self._read(0 if batches else _WAIT_MS))

    async def _read(self, wait_ms: int) -> None:
        hungry = [number for number, part in self.partitions.items() if part.waiting_bytes < self._batch_bytes]
        positions = {number: self.partitions[number].read_to for number in hungry[:_AT_ONCE]}
        for number, found in (await self.reader.read(positions, wait_ms) if positions else {}).items():
            part = self.partitions.pop(number)
            part.add(*found)
            self.partitions[number] = part  # behind the others, whose turn it is: answers are of limited size

    async def _write(self, batches: Mapping[int, Sequence[SourceRecord]]) -> None:
        if not batches:
            return
        places = {number: self.partitions[number].place.sending(records) for number, records in batches.items()}
        await self._commit(places)
        for number, place in places.items():
            self.partitions[number].place = place
        await _all(*(self._send(number, records) for number, records in batches.items()))

    async def _send(self, number: int, records: Sequence[SourceRecord]) -> None:
        part = self.partitions[number]
        producer = Producer(part.place.identity)
        batch = build_copies([record.copy for record in records], producer.identity, codec=records[0].codec)
        try:
            client = await self._brokers.leaders.connection(self._target, number, _PURPOSE)
            await client.room()
            offset = await producer.write(client, self._target, number, batch, len(records))
        except BatchRefused as refused:
            self._brokers.leaders.forget(self._target)
            what = f"writing {counted(len(records), 'record')} in {size(len(batch))} to {self._target}-{number}"
            raise TopicsRefused(what, refused.code) from refused
        if offset != part.place.written:
            raise self._foreign(f"{self._target}-{number} has something else at offset {part.place.written}")
        part.place = part.place.sent()

    async def _resumed(self) -> dict[int, CopiedPartition]:
        """Finds out how far the copy is, by what was committed and by where the target ends."""
        if self._is_begun and not await self._target_ends.leaders(self._target):
            raise CopyStopped(f"{self._target} is gone: run this again, and the copy starts over")
        known, ends = await self._still()
        topic_id = await self._brokers.leaders.topic_id(self._source)
        if topic_id is None:
            raise UpstreamUnavailable(f"there is no topic {self._source} now")
        source_id = str(topic_id)
        if any(place.source_id != source_id for place in known.values()):
            raise CopyStopped(
                f"{self._target} is the copy of another {self._source}, which was made again, let go or managed since: "
                "name another target for this one"
            )
        found: dict[int, CopyPlace] = {}
        for number, place in known.items():
            try:
                found[number] = place.resumed(ends[number])
            except ValueError as error:
                raise self._foreign(f"{self._target}-{number} {error}") from None
        new = [number for number in self._numbers if number not in found]
        if used := [number for number in new if ends[number]]:
            raise self._foreign(f"{self._target}-{used[0]} ends at {ends[used[0]]}, and the copy has not begun")
        if new:
            found |= await self._begun(new, source_id, next(iter(known.values()), None))
        self._is_begun = True
        return {number: CopiedPartition(found[number]) for number in self._numbers}

    async def _still(self) -> tuple[dict[int, CopyPlace], dict[int, int]]:
        """Returns places and ends, once a look later they are the same: nobody else is copying, nothing on its way."""
        before = await self._places(), await self._ends()
        for _ in range(_LOOKS if before[0] else 0):
            await asyncio.sleep(_PAUSE_SECONDS)
            now = await self._places(), await self._ends()
            if now == before:
                return now
            before = now
        if before[0]:
            raise CopyStopped(f"another copy to {self._target} is running: end it, and run this again")
        return before

    async def _begun(self, numbers: Iterable[int], source_id: str, other: CopyPlace | None) -> dict[int, CopyPlace]:
        """Commits where partitions begin that nobody has begun to copy."""
        starts = await self.reader.starts(self._numbers)
        producer_id = other.producer_id if other else (await new_identity(self._brokers.ask_any)).producer_id
        begun = {number: CopyPlace(source_id, producer_id, 0, starts[number], 0, starts[number]) for number in numbers}
        await self._commit(begun)
        return begun

    async def _ends(self) -> dict[int, int]:
        """Returns where the target ends; all that it has is replicated."""
        ends = await self._target_ends.ends_of(self._target, self._numbers)
        if not all(end.is_settled for end in ends.values()):
            raise UpstreamUnavailable(f"not all of {self._target} is replicated yet")
        return {number: end.high_watermark for number, end in ends.items()}

    async def _places(self) -> dict[int, CopyPlace]:
        client = await self._brokers.coordinator(CoordinatorKind.GROUP, self.group, _GROUP_PURPOSE)
        topic = OffsetFetchRequestGroupTopic(name=self._target, partition_indexes=list(self._numbers))
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group, topics=[topic])])
        answer = await client.ask(offset_fetch.API, client.version(offset_fetch.API.key, _FETCH_VERSIONS), asked)
        places: dict[int, CopyPlace] = {}
        for group in answer.groups:
            refuse(f"places of {self.group}", group)
            for row in (part for topic_row in group.topics for part in topic_row.partitions):
                refuse(f"places of {self.group}", row)
                if row.committed_offset >= 0:
                    places[row.partition_index] = self._loaded(row.committed_offset, row.metadata or "")
        return places

    def _loaded(self, written: int, text: str) -> CopyPlace:
        try:
            return CopyPlace.load(written, text)
        except ValueError:
            raise CopyStopped(
                f"the group {self.group} has commits that no copy has made: name another target"
            ) from None

    async def _commit(self, places: Mapping[int, CopyPlace]) -> None:
        offsets = {number: (place.written, place.dump()) for number, place in places.items()}
        await commit(self._brokers, self.group, self._target, offsets)

    def _foreign(self, what: str) -> CopyStopped:
        return CopyStopped(
            f"{what}: somebody else has written to {self._target}, or it was made again, or has lost records. If its "
            f"clients have moved there already, leave it as it is. Else copy {self._source} to another target, where "
            "nobody writes."
        )

    def _stop_if_final(self, error: UpstreamUnavailable) -> None:
        cure = next((cure for code, cure in _CURES.items() if name_of(code) in str(error)), None)
        if cure is not None:
            told = cure.format(source=self._source, target=self._target, group=self.group)
            raise CopyStopped(f"{error}; {told}") from error


def group_of(target: str) -> str:
    """Returns the name of the group by which a copy keeps its place."""
    return f"kordon-copy-{target}"


async def commit(brokers: Brokers, group: str, topic: str, offsets: Mapping[int, tuple[int, str]]) -> None:
    """Commits offsets for a group without members.

    Args:
        offsets: The offset and its metadata, by partition.

    Raises:
        TopicsRefused: The group has members, or the user lacks a right.
        UpstreamUnavailable: The coordinator does not answer.
    """
    rows = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata=text)
        for number, (offset, text) in offsets.items()
    ]
    client = await brokers.coordinator(CoordinatorKind.GROUP, group, _GROUP_PURPOSE)
    version = client.version(offset_commit.API.key, _COMMIT_VERSIONS)
    for at in range(0, len(rows), _AT_ONCE):
        named = OffsetCommitRequestTopic(name=topic, partitions=rows[at : at + _AT_ONCE])
        answer = await client.ask(offset_commit.API, version, OffsetCommitRequest(group_id=group, topics=[named]))
        for row in (part for each in answer.topics for part in each.partitions):
            refuse(f"committing {topic}-{row.partition_index} for the group {group}", row)


async def _all(*work: Awaitable[None]) -> None:
    """Awaits all, also if one fails, so that nothing is under way behind the first failure; that is raised."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
