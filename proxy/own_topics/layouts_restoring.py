"""Reads the layouts once, for a backup, and writes a backup back, as a controller writes (ONE-CONTROLLER)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from kordon.codecs.bodies import DescribeGroupsRequest
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import describe_groups
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.kafka.brokers import Brokers, CoordinatorKind
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.ordering.records import TopicRecord, Unreadable, kind_of, load, topic_of
from kordon.proxy.own_topics.compacted_topic import LAYOUTS
from kordon.proxy.own_topics.layouts_backup import Backup, kept_of, topic_in
from kordon.proxy.own_topics.layouts_check import BackupComparison, LayoutsCheck
from kordon.proxy.own_topics.layouts_log import LayoutsLog
from kordon.proxy.own_topics.layouts_topic import LAYOUTS_TOPIC
from kordon.proxy.own_topics.layouts_writer import LayoutsWriter

READ_SECONDS: Final = 60.0
"""For all of the layouts; an open transaction is waited for."""
_LOOK_SECONDS: Final = 0.02
_COMMIT_SECONDS: Final = 7.0
"""For each half of the transaction; both are less than its timeout."""
_GROUP_VERSIONS: Final = range(5)
_PURPOSE: Final = "restoring"
_OF_TOPICS: Final = frozenset({"topic", "image", "janitor", "fence", "announcement"})
"""Kinds of records that are about one layout of a topic."""


@dataclass(frozen=True)
class LayoutsRead:
    """What stands in `__kordon.layouts`.

    Attributes:
        records: The last record of each key.
        offset: Up to where it was read.
    """

    records: Mapping[str, Record]
    offset: int

    @property
    def values(self) -> list[tuple[str, bytes]]:
        """The values of all keys whose records are whole."""
        return [(key, each.value) for key, each in self.records.items() if each.value is not None and not each.fault]

    @property
    def topics(self) -> dict[str, TopicRecord]:
        """The layouts in force, by topic."""
        values = (load(key, value) for key, value in self.values if kind_of(key) == "topic")
        return {value.layout.topic: value for value in values if isinstance(value, TopicRecord)}

    @property
    def unreadable(self) -> dict[str, str]:
        """Why the layout of a topic cannot be known, by topic."""
        faults = {key: each.fault for key, each in self.records.items() if each.fault}
        values = ((key, load(key, value)) for key, value in self.values)
        faults |= {key: value.why for key, value in values if isinstance(value, Unreadable)}
        return {topic: f"{key}: {why}" for key, why in faults.items() if (topic := topic_of(key)) is not None}


class NotRestored(ValueError):  # noqa: N818 - says why nothing was written
    """Raised where a backup is not written back; nothing was changed."""


async def read_layouts(brokers: Brokers) -> LayoutsRead | None:
    """Reads the layouts up to where they end now, and writes nothing; None: there is no such topic.

    Raises:
        LogLost: The topic was deleted meanwhile.
        UpstreamUnavailable: The layouts cannot be read within a minute.
    """
    log, found = LayoutsLog(brokers), dict[str, Record]()

    def take(record: Record) -> None:
        if record.value is None and not record.fault:
            found.pop(record.key, None)
        else:
            found[record.key] = record

    if not await log.exists():
        return None
    began, following = time.monotonic(), asyncio.ensure_future(log.follow(take))
    try:
        async with asyncio.timeout(READ_SECONDS):
            while log.read_at < began or log.position < log.end:
                if following.done():
                    following.result()
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        raise UpstreamUnavailable(f"{LAYOUTS_TOPIC} was not read to its end within {READ_SECONDS:g} s") from None
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        log.close()
    return LayoutsRead(found, log.position)


async def take_backup(brokers: Brokers) -> tuple[Backup, dict[str, str]]:
    """Reads all that a backup has.

    Returns:
        The backup, and why topics are left out of it, by topic.

    Raises:
        NotRestored: There are no layouts.
        LogLost: The layouts were deleted in the meantime.
        UpstreamUnavailable: No broker answers.
    """
    before = await read_layouts(brokers)
    if before is None:
        raise NotRestored(f"there is no {LAYOUTS_TOPIC}: no topic is managed, or it is lost")
    admin = TopicsAdmin(brokers)
    log_ends: dict[str, dict[int, int]] = {}
    for topic in before.topics:  # before the layouts are read for good: whatever comes behind may be of later ones
        leaders = await admin.ends.leaders(topic)
        led = [q for q, leader in leaders.items() if leader.is_elected]
        log_ends[topic] = {q: end.log_end_offset for q, end in (await admin.ends.ends_of(topic, led)).items()}
    cluster_id = (await brokers.metadata([])).cluster_id
    layouts_id = await admin.topic_id(LAYOUTS_TOPIC)
    now = await read_layouts(brokers)
    if now is None:
        raise NotRestored(f"{LAYOUTS_TOPIC} was deleted just now")
    kept, left_out = kept_of(now.values)
    left_out = {**left_out, **now.unreadable}
    records = {key: value for key, value in kept.items() if topic_in(key) not in left_out}
    log_ends = {topic: ends for topic, ends in log_ends.items() if f"topic/{topic}" in records}
    taken_at = datetime.now(UTC).isoformat(timespec="seconds")
    backup = Backup(cluster_id or "", UUID(int=layouts_id.int), now.offset, taken_at, log_ends, records)
    return backup, left_out


async def compared(brokers: Brokers, backup: Backup, *, only: bool = False) -> BackupComparison:
    """Compares a backup with a cluster.

    Args:
        only: Whether topics that the backup does not have are nobody's concern.

    Raises:
        LogLost: The layouts were deleted meanwhile.
        UpstreamUnavailable: No broker answers.
    """
    found = await read_layouts(brokers)
    in_force = found.topics if found is not None else {}
    wanted = {topic: each for topic, each in in_force.items() if not only or topic in backup.topics}
    return await LayoutsCheck(brokers, backup, wanted).run()


class Restoring:
    """Writes a backup to the layouts of a cluster on which no Kordon serves managed topics.

    Args:
        group: The proxies' group.
    """

    def __init__(self, brokers: Brokers, backup: Backup, group: str) -> None:
        self._brokers = brokers
        self._backup = backup
        self._group = group
        self._seen: Mapping[str, int] = {}
        """What stood in the layouts when they were looked at, by key and offset."""

    async def plan(self) -> tuple[BackupComparison, list[NewRecord]]:
        """Returns what was compared, and what is to be written; changes nothing.

        Raises:
            NotRestored: A Kordon is a member of the group, or the backup is not sound here.
            LogLost: The layouts were deleted meanwhile.
            UpstreamUnavailable: No broker answers.
        """
        await self._refuse_live()
        found = await read_layouts(self._brokers)
        self._seen = _seen(found)
        standing = found.topics if found is not None else {}
        ours = {topic: each for topic, each in standing.items() if topic in self._topics}  # the others stay as they are
        comparison = await LayoutsCheck(self._brokers, self._backup, ours).run()
        if not comparison.is_sound:
            problems = ((topic, why) for topic, all_of_it in comparison.problems.items() for why in all_of_it)
            raise NotRestored("\n".join(f"{topic}: {why}" for topic, why in problems))
        unreadable = found.unreadable.keys() & self._topics if found is not None else set[str]()
        missing = sorted(topic for topic in self._topics - comparison.same if topic not in unreadable)
        if unreadable:
            named = ", ".join(sorted(unreadable))
            detail = f"records of {named} in {LAYOUTS_TOPIC} cannot be read"
            raise NotRestored(f"{detail}: docs/runbook.md#kordontopicunserved")
        return comparison, self._entries(missing, found.records.keys() if found is not None else ())

    async def write(self, entries: Sequence[NewRecord]) -> None:
        """Writes what `plan` returned, in one transaction that fences every former controller.

        Raises:
            NotRestored: A Kordon has joined the group meanwhile, or the layouts have changed.
            Fenced: Another controller has begun meanwhile.
            OwnTopicUnfit: `__kordon.layouts` is there, and layouts are not safe in it.
            UpstreamUnavailable: The cluster does not answer; where the end of the transaction was not answered, all of
                it was written or nothing.
        """
        await LAYOUTS.ensure(self._brokers)
        writer = LayoutsWriter(self._brokers)
        try:
            await writer.open()
            await self._refuse_live()
            if _seen(await read_layouts(self._brokers)) != self._seen:
                raise NotRestored(f"{LAYOUTS_TOPIC} has changed meanwhile: try again")
            await writer.commit(entries, _COMMIT_SECONDS)
        finally:
            await writer.close()

    @property
    def _topics(self) -> set[str]:
        return set(self._backup.topics)

    def _entries(self, topics: Sequence[str], standing: Collection[str]) -> list[NewRecord]:
        """Returns the records of topics, layouts last, and tombstones for what stands there of a former layout."""
        entries: list[NewRecord] = []
        for topic in topics:
            keys = self._backup.keys_of(topic)
            former = (key for key in standing if kind_of(key) in _OF_TOPICS and topic_in(key) == topic)
            entries += [NewRecord(key, None) for key in sorted(set(former) - set(keys))]
            entries += [NewRecord(key, self._backup.value(key)) for key in keys]
        return entries

    async def _refuse_live(self) -> None:
        """Raises NotRestored while a Kordon is a member of the group: it may serve managed topics."""
        client = await self._brokers.coordinator(CoordinatorKind.GROUP, self._group, _PURPOSE)
        asked = DescribeGroupsRequest(groups=[self._group])
        version = client.version(describe_groups.API.key, _GROUP_VERSIONS)
        (found,) = (await client.ask(describe_groups.API, version, asked)).groups
        if found.error_code not in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
            raise UpstreamUnavailable(f"members of group {self._group}: {name_of(found.error_code)}")
        if found.members:
            hosts = ", ".join(sorted({each.client_host.lstrip("/") for each in found.members}))
            raise NotRestored(
                f"{len(found.members)} Kordons at {hosts} serve managed topics (group {self._group}): stop them first."
                " A Kordon that was killed counts for ordering.session_ms"
            )


def _seen(found: LayoutsRead | None) -> Mapping[str, int]:
    return {} if found is None else {key: each.offset for key, each in found.records.items()}
