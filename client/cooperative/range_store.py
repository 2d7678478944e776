"""Where finished ranges are kept between two owners of a partition: at a Kordon, or in the metadata of commits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any, Final
from uuid import UUID

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.consumer import AIOKafkaConsumer
from aiokafka.errors import (
    CommitFailedError,
    IncompatibleBrokerVersion,
    KafkaError,
    NodeNotReadyError,
    OffsetMetadataTooLargeError,
)
from aiokafka.structs import TopicPartition

from kordon.client.cooperative.entry import Progress
from kordon.client.cooperative.found import Found
from kordon.client.cooperative.group_commits import CommitRow, GroupCommits
from kordon.client.cooperative.leader_epochs import NO_EPOCH
from kordon.client.cooperative.log_watch import LogWatch
from kordon.client.cooperative.range_text import METADATA_BYTES, RangesOwner, UnreadRanges, build, parse
from kordon.client.requests import METADATA, WireRequest
from kordon.codecs import dialect
from kordon.codecs.ranges import MOST_RANGES, NONE, Ranges, load_stored

_log = logging.getLogger(__name__)

NO_ID: Final = UUID(int=0)
_NO_INCARNATION: Final = 0
_METADATA_VERSIONS: Final = range(10, 13)
"""Those that name topics and tell their ids."""
_TRIES: Final = 5
_RETRY_SECONDS: Final = 0.2


class NotKeptError(KafkaError):
    """The Kordon that kept the ranges does so no more; the next commit has them as metadata."""

    retriable = True


class RangeStore:
    """Keeps what is finished of partitions, with the group's commits.

    A Kordon that offers it keeps all ranges, up to ten thousand of a partition. Elsewhere they are in the metadata of
    ordinary commits, as far as they fit.

    Args:
        consumer: A member of a group; started before `read` is called.
        group_id: The group's id.
        watch: Knows the leader epochs of what was read.
    """

    def __init__(self, consumer: AIOKafkaConsumer, group_id: str, watch: LogWatch) -> None:
        self.commits = GroupCommits(consumer, group_id)
        self._consumer = consumer
        self._group_id = group_id
        self._watch = watch
        self._ids: dict[str, UUID] = {}
        self._incarnations: dict[TopicPartition, int] = {}
        """The incarnations that a Kordon has told, by partition whose ranges it keeps."""
        self._most_bytes = METADATA_BYTES
        self._warned: set[TopicPartition] = set()
        """Partitions whose ranges are not all kept; each is warned of once, until they are again."""
        self._told_bare = False

    @property
    def is_member(self) -> bool:
        """Whether the group still counts this consumer as the owner of its partitions, as far as is known here."""
        return self.commits.is_member

    async def read(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Found]:
        """Returns what is known of partitions that were assigned; those without a commit are missing.

        Raises:
            KafkaError: The commits cannot be known. Ranges that cannot be judged are not believed instead.
        """
        if not partitions:
            return {}
        made_again = await self._learn_ids({tp.topic for tp in partitions})
        rows = await self._rows(partitions)
        committed = {tp: self._found(tp, row) for tp, row in rows.items() if row.committed_offset >= 0}
        found = await self._to_the_end_of_the_log(
            await self._to_the_end_of_the_epoch(
                {tp: Found(0) if tp.topic in made_again else each for tp, each in committed.items()}
            )
        )
        for tp in partitions:
            if found.get(tp) != committed.get(tp):
                # A Kordon would go on telling what the log lacks: a commit without incarnation begins the group anew.
                self._incarnations.pop(tp, None)
        found = await self._from_the_start_of_the_log(found)
        for tp in partitions:
            each = found.get(tp, Found(0))
            self._watch.epochs.begin(tp, each.reach, each.epoch)
        return found

    async def write(self, progress: Mapping[TopicPartition, Progress]) -> None:
        """Keeps what is finished, in place of what was kept of these partitions before.

        Raises:
            CommitFailedError: The group has moved on, or was reset: the partitions may be another member's.
            KafkaError: The outcome is unknown.
        """
        rows = {tp: self._row(tp, each) for tp, each in progress.items()}
        try:
            errors = await self.commits.commit(rows)
        except OffsetMetadataTooLargeError:
            self._most_bytes //= 2
            _log.warning(
                "The broker takes less than %d bytes of metadata (offset.metadata.max.bytes): less of what is finished "
                "behind a gap is committed from now on",
                self._most_bytes * 2,
            )
            raise
        for tp, code in errors:
            self._take_error(tp, code, progress[tp])

    def forget(self) -> None:
        """All partitions are given up."""
        self._incarnations.clear()
        self._watch.epochs.forget()

    def _row(self, tp: TopicPartition, progress: Progress) -> dict[str, object]:
        row: dict[str, object] = {
            "committed_offset": progress.stable,
            "committed_leader_epoch": self._watch.epochs.at(tp, max(progress.stable, progress.ranges.end)),
            "committed_metadata": "",
        }
        incarnation = self._incarnations.get(tp, _NO_INCARNATION)
        if incarnation == _NO_INCARNATION:
            return row | {"committed_metadata": self._text(tp, progress)}
        ranges = progress.ranges.first(MOST_RANGES)
        self._tell_of_cut(tp, progress, len(ranges))
        return row | {"incarnation": incarnation, "offset_ranges": ranges.dump()}

    def _text(self, tp: TopicPartition, progress: Progress) -> str:
        text, told = build(self.owner(tp), progress.stable, progress.ranges, self._most_bytes)
        self._tell_of_cut(tp, progress, len(progress.ranges) if told == progress.ranges else len(told))
        return text

    def _tell_of_cut(self, tp: TopicPartition, progress: Progress, kept: int) -> None:
        if kept == len(progress.ranges):
            self._warned.discard(tp)
        elif tp not in self._warned:
            self._warned.add(tp)
            _log.warning(
                "%s has %d finished ranges behind offset %d, and a commit has room for %d: what is finished behind "
                "them is handled again if this consumer dies. Look at what holds that offset (oldest_gap)",
                tp,
                len(progress.ranges),
                progress.stable,
                kept,
            )

    def _take_error(self, tp: TopicPartition, code: int, progress: Progress) -> None:
        if code == dialect.MAX_INDIVIDUAL_COMMIT_REACHED:
            self._tell_of_cut(tp, progress, 0)
        elif code == dialect.INDIVIDUAL_COMMIT_TOO_OLD:
            self.commits.ask_again()
            raise CommitFailedError(
                f"the group was reset, or has begun anew, on {tp} since this member was told where it stands: it asks "
                "again"
            )
        elif code == dialect.INDIVIDUAL_COMMIT_NOT_ALLOWED:
            self._incarnations.clear()  # of all: it is no matter of one partition
            raise NotKeptError(f"Kordon keeps no individual commits of {tp} now")
        else:
            raise KafkaError(f"the commit of {tp} was answered by the unknown code {code}")

    async def _rows(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommitRow]:
        """Asks for commits, with ranges where a Kordon keeps them."""
        try:
            is_kept = await self.commits.serves_ranges()
            rows = await self.commits.fetch(partitions, with_ranges=is_kept)
        except IncompatibleBrokerVersion:  # its brokers have no tagged fields
            is_kept, rows = False, await self.commits.fetch(partitions)
        if is_kept:
            told = {tp: int(row.get("incarnation", _NO_INCARNATION)) for tp, row in rows.items()}
            self._incarnations.update((tp, name) for tp, name in told.items() if name != _NO_INCARNATION)
        elif not self._told_bare:
            self._told_bare = True
            _log.warning(
                "No Kordon answers that keeps individual commits (the feature %s): what is finished behind a gap is in "
                "the metadata of commits, as far as %d bytes hold it. Kordon keeps all of it if "
                "ordering.individual_commits is set",
                dialect.COOPERATIVE,
                self._most_bytes,
            )
        return rows

    def _found(self, tp: TopicPartition, row: CommitRow) -> Found:
        epoch = int(row.get("committed_leader_epoch", NO_EPOCH))
        if tp not in self._incarnations:
            return Found(row.committed_offset, self._read_text(tp, row), epoch)
        try:
            ranges = load_stored(row.get("committed_range_offsets", b"") or NONE.dump())
        except ValueError as error:
            self._tell_unread(tp, row.committed_offset, error)
            ranges = NONE
        # from before a Kordon kept them
        ranges = ranges.joined(self._read_text(tp, row)) if (row.metadata or "").startswith("kr") else ranges
        stable, ranges = ranges.above(row.committed_offset)
        return Found(stable, ranges, epoch)

    def _read_text(self, tp: TopicPartition, row: CommitRow) -> Ranges:
        try:
            return parse(self.owner(tp), row.committed_offset, row.metadata or "")
        except UnreadRanges as error:
            self._tell_unread(tp, row.committed_offset, error)
            return NONE

    @staticmethod
    def _tell_unread(tp: TopicPartition, offset: int, error: ValueError) -> None:
        _log.warning(
            "What is finished of %s behind offset %d is not known, and is handled again: %s", tp, offset, error
        )

    def owner(self, tp: TopicPartition) -> RangesOwner:
        """Returns whose commits a partition's are, as far as its topic's id is known."""
        return RangesOwner(self._group_id, tp.topic, tp.partition, self._ids.get(tp.topic, NO_ID))

    async def _learn_ids(self, topics: Collection[str]) -> set[str]:
        """Asks for the topics' ids; returns those that were deleted and made again since this member asked before."""
        before = {topic: self._ids.pop(topic) for topic in topics if topic in self._ids}
        rows = [{"topic_id": NO_ID, "name": topic} for topic in topics]
        request = WireRequest(METADATA, _METADATA_VERSIONS, {"topics": rows, "allow_auto_topic_creation": False})
        client: AIOKafkaClient = self._consumer._client  # pyright: ignore[reportPrivateUsage] # aiokafka has no hooks
        try:
            node = client.get_random_node()
            if node is None:
                raise NodeNotReadyError
            answer: Any = await client.send(node, request, group=ConnectionGroup.DEFAULT)
        except IncompatibleBrokerVersion:
            return set()  # before Kafka 2.8 topics have no ids
        except KafkaError as error:
            _log.warning("The ids of %s are not known, so finished ranges are not believed: %r", sorted(topics), error)
            return set()
        self._ids.update((row.name, row.topic_id) for row in answer.topics if not row.error_code)
        made_again = {topic for topic, each in before.items() if self._ids.get(topic, each) != each}
        if made_again:
            _log.warning("%s were made again, and are handled from their start", sorted(made_again))
        return made_again

    async def _to_the_end_of_the_epoch(self, found: Mapping[TopicPartition, Found]) -> dict[TopicPartition, Found]:
        """Drops what a log has no more that was cut, though it may have grown again (KIP-320)."""
        believed = dict(found)
        asked = {tp: each.epoch for tp, each in found.items() if each.epoch != NO_EPOCH}
        for number in range(_TRIES if asked else 0):
            if number:
                await asyncio.sleep(_RETRY_SECONDS)
            for tp, end in (await self._watch.ends(asked)).items():
                del asked[tp]
                each = found[tp]
                believed[tp] = each.as_of(end)
                if believed[tp] != each:
                    _log.warning(
                        "The log of %s was cut: it has leader epoch %d up to offset %d, and everything up to %d was "
                        "committed as finished. What has come there since is handled",
                        tp,
                        each.epoch,
                        end,
                        each.reach,
                    )
            if not asked:
                break
        return believed | {tp: found[tp].without_ranges() for tp in asked}

    async def _to_the_end_of_the_log(self, found: Mapping[TopicPartition, Found]) -> dict[TopicPartition, Found]:
        """Drops what lies behind the end of a log, where its leader epochs are not known."""
        try:
            ends: Mapping[TopicPartition, int] = await self._consumer.end_offsets(list(found)) if found else {}
        except (TimeoutError, KafkaError) as error:
            _log.warning("The ends of %s are not known, so finished ranges are not believed: %r", sorted(found), error)
            return {tp: each.without_ranges() for tp, each in found.items()}
        believed: dict[TopicPartition, Found] = {}
        for tp, each in found.items():
            within = each.behind(ends.get(tp, -1))
            if within is not None:
                believed[tp] = within
            if within != each:
                _log.warning(
                    "%s ends at %d, and ranges up to %d were committed as finished: they are not believed, and are "
                    "handled again",
                    tp,
                    ends.get(tp, -1),
                    each.reach,
                )
        return believed

    async def _from_the_start_of_the_log(self, found: Mapping[TopicPartition, Found]) -> dict[TopicPartition, Found]:
        """Continues where a log begins now, if retention has taken the record that held the committed offset.

        That offset would be out of range, and `auto_offset_reset` might skip what nobody has handled. Where it is not
        known, it is left to that.
        """
        behind = dict(found)
        try:
            starts: Mapping[TopicPartition, int] = await self._consumer.beginning_offsets(list(found)) if found else {}
        except (TimeoutError, KafkaError) as error:
            _log.warning("It is not known where %s begin now: %r", sorted(found), error)
            return behind
        for tp, start in starts.items():
            behind[tp] = found[tp].from_start(start)
            if behind[tp] != found[tp]:
                _log.warning(
                    "%s begins at %d, and everything was finished before %d only: the records between, as far as they "
                    "were not finished, are gone unhandled",
                    tp,
                    start,
                    found[tp].offset,
                )
        return behind
