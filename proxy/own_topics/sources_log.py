"""The log of source topics, `__kordon.source_topics`, as one worker reads and writes it (`ordering/source_records.py`).

A cluster without source topics has no such log, and nobody reads or makes it before somebody declares one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import structlog

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record, in_batches
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.ordering.source_records import SourceTopic, dump, key_of, load, topic_of
from kordon.proxy.own_topics.compacted_topic import SOURCE_TOPICS
from kordon.proxy.own_topics.followed_log import BATCH_BYTES, FollowedLog, what_is_said
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.source_topics import MOST_TOPICS, SourceTopics

log = structlog.get_logger(__name__)


class SourcesLog:
    """Keeps the source topics of a worker as the log has them.

    What was known stays known while the log is read again: a source topic takes no records meanwhile.
    """

    def __init__(self, brokers: Brokers, topics: SourceTopics) -> None:
        self.is_there = False
        """Whether the log was seen; it may have to be read yet."""
        self.log = FollowedLog(brokers, SOURCE_TOPICS, self)
        self._topics = topics
        self._read: dict[str, SourceTopic] = {}
        self._is_read = False
        self._lost = 0
        """How often the log was lost, as far as what it had was written again."""

    def look(self, topics: Collection[str]) -> None:
        """Begins to read the log if it is among the topics that are there."""
        if SOURCE_TOPICS.name in topics:
            self.is_there = True
            self.log.start()

    async def close(self) -> None:
        """Ends reading and writing."""
        await self.log.close()

    async def declare(self, name: str, topic: SourceTopic) -> None:
        """Has a topic be a source topic, here and soon at all proxies.

        Raises:
            UpstreamUnavailable: The record may or may not be written.
        """
        await self.log.write([NewRecord(key_of(name), dump(topic))])

    async def revoke(self, name: str) -> None:
        """Has a topic be no source topic any more.

        Raises:
            UpstreamUnavailable: The record may or may not be written.
        """
        await self.log.write([NewRecord(key_of(name), None)])

    def take_in(self, record: Record) -> None:
        """Takes in a record of the log.

        Raises:
            ValueError: The record cannot be read, and is ignored.
        """
        read = what_is_said(record, topic_of, load)
        if read is None:
            return
        name, topic = read
        if topic is None:
            self._read.pop(name, None)
        elif name not in self._read and len(self._read) >= MOST_TOPICS:
            raise ValueError(f"there are {MOST_TOPICS} source topics already")
        else:
            self._read[name] = topic
        if self._is_read:
            self._topics.know(self._read)

    def forget(self) -> None:
        """Begins again; what was known counts until all is read again."""
        self._read = {}
        self._is_read = False

    def caught_up(self, work: Tasks) -> None:
        """Has all that was read count. What a log that was deleted had is written again, as far as it is known here."""
        self._is_read = True
        if self._lost != self.log.tally.lost:
            self._lost = self.log.tally.lost
            missing = {name: topic for name, topic in self._topics.items() if name not in self._read}
            self._read |= missing
            if missing:
                work.start(self._write_again(missing), name="write source topics again")
        self._topics.know(self._read)

    async def _write_again(self, topics: Mapping[str, SourceTopic]) -> None:
        entries = [NewRecord(key_of(name), dump(topic)) for name, topic in topics.items()]
        try:
            for batch in in_batches(entries, BATCH_BYTES):
                await self.log.write(batch)
        except UpstreamUnavailable as error:
            cure = "declare them again: set their config kordon.source=true"
            log.error("sources_not_written_again", topics=len(topics), error=str(error), cure=cure)
