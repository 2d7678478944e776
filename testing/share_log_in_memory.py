"""A log of share groups without brokers: what is written is read back at once, and by all workers that follow it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import cast

from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.ordering.share.lock_records import KIND
from kordon.proxy.own_topics.claims_log import key_with
from kordon.proxy.own_topics.compacted_topic import SHARE_GROUPS
from kordon.proxy.own_topics.share_log import ShareLog


class SharedRecords:
    """What stands in the log, and who follows it."""

    def __init__(self) -> None:
        self.records: list[NewRecord] = []
        self.followers: list[ShareLog] = []
        self.between: Callable[[], None] = lambda: None
        """Happens before a write lands."""
        self.now_ms = 1_000
        """The time of records that are written."""

    def follow(self, log: ShareLog) -> None:
        """Has a worker read all that stands here from where it is, and all that comes."""
        self.followers.append(log)
        for offset in range(log.read_to, len(self.records)):
            self._tell(log, offset)

    def _tell(self, log: ShareLog, offset: int) -> None:
        key, value = self.records[offset]
        log.log.on_record(Record(key, value, offset, timestamp_ms=self.now_ms))

    def put(self, key: str, value: bytes | None) -> None:
        """Writes a record."""
        self.records.append(NewRecord(key, value))
        for log in self.followers:
            self._tell(log, len(self.records) - 1)

    @property
    def standing(self) -> list[str]:
        """The keys that compaction leaves."""
        last = {each.key: each.value for each in self.records}
        return [key for key, value in last.items() if value is not None]


class ShareLogInMemory(ShareLog):
    """What one worker has of it.

    Args:
        records: Of all workers.
        writer: A name that no other worker has.
    """

    def __init__(self, records: SharedRecords, writer: str = "w") -> None:
        super().__init__(cast("Brokers", None), SHARE_GROUPS, 0, key_with(writer, KIND), older=self._groups)
        self._records = records
        self.older: set[str] = set()
        """Share groups that there are."""
        self.log.write = self._written  # type: ignore[method-assign]
        records.follow(self)

    async def read_to_end(self) -> None:
        """Has it follow again, if it does not."""
        if self not in self._records.followers:
            self._records.follow(self)

    async def _groups(self, partition: int) -> Collection[str]:
        return self.older

    async def _written(self, entries: Sequence[NewRecord], timeout: float = 0) -> int:
        self._records.between()
        for each in entries:
            self._records.put(each.key, each.value)
        return len(self._records.records) - 1
