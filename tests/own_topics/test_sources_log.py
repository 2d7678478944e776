"""The log of source topics: what is read counts, what cannot be read says nothing, and nothing grows without bound."""

from unittest.mock import AsyncMock, MagicMock
from uuid import UUID

import pytest

from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.ordering.source_records import MOST_BYTES, SourceTopic, dump, key_of, load, topic_of
from kordon.proxy.own_topics import sources_log
from kordon.proxy.own_topics.compacted_topic import SOURCE_TOPICS
from kordon.proxy.own_topics.sources_log import SourcesLog
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.source_topics import SourceTopics
from kordon.testing.waiting import turns

ID = UUID(int=7)


def record(topic: str, value: bytes | None, key: str | None = None) -> Record:
    return Record(key or key_of(topic), value, 0, 0)


def declared(topic: str) -> Record:
    return record(topic, dump(SourceTopic(ID, 1)))


@pytest.fixture
def topics() -> SourceTopics:
    return SourceTopics()


@pytest.fixture
def log(topics: SourceTopics) -> SourcesLog:
    return SourcesLog(MagicMock(), topics)


def test_what_is_written_can_be_read() -> None:
    assert load(dump(SourceTopic(ID, 5))) == SourceTopic(ID, 5)
    assert topic_of(key_of("db1")) == "db1"


def test_records_of_later_versions_say_nothing(log: SourcesLog, topics: SourceTopics) -> None:
    log.take_in(record("db1", b'{"version": 2, "more": 1}'))
    log.take_in(record("", b"{}", key="point/db1/0"))
    log.caught_up(Tasks())
    assert not topics


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topic/db1", b"junk"),
        ("topic/db1", b'{"version": 1, "topic_id": "7", "since_ms": 1}'),
        ("topic/db1", b'{"version": 1, "since_ms": 1}' + b" " * MOST_BYTES),
        ("topic/", b"{}"),
        ("topic/a/b", b"{}"),
        ("topic/" + "a" * 250, b"{}"),
    ],
)
def test_junk_is_refused(log: SourcesLog, key: str, value: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        log.take_in(record("", value, key))


def test_topics_are_known_by_name_and_id_once_all_is_read(log: SourcesLog, topics: SourceTopics) -> None:
    seen: list[bool] = []
    topics.watch(seen.append)
    log.take_in(declared("db1"))
    assert not topics
    log.caught_up(Tasks())
    assert "db1" in topics
    assert ID in topics
    assert topics.name_of(ID) == "db1"
    log.take_in(record("db1", None))
    assert not topics
    assert seen == [False, True, False]


def test_what_was_known_counts_until_all_is_read_again(log: SourcesLog, topics: SourceTopics) -> None:
    log.take_in(declared("db1"))
    log.caught_up(Tasks())
    log.forget()
    assert "db1" in topics
    log.take_in(declared("db2"))
    assert "db1" in topics
    log.caught_up(Tasks())
    assert "db1" not in topics
    assert "db2" in topics


async def test_a_log_that_was_deleted_is_written_again(log: SourcesLog, topics: SourceTopics) -> None:
    log.take_in(declared("db1"))
    log.caught_up(Tasks())
    log.forget()
    log.log.tally.lost += 1
    log.log.write = AsyncMock()  # type: ignore[method-assign]
    work = Tasks()
    log.caught_up(work)
    assert "db1" in topics
    await turns()
    log.log.write.assert_awaited_once_with([NewRecord(key_of("db1"), dump(SourceTopic(ID, 1)))])
    await work.stop()


def test_no_more_topics_are_taken_in_than_there_is_room_for(log: SourcesLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources_log, "MOST_TOPICS", 1)
    log.take_in(declared("db1"))
    log.take_in(declared("db1"))
    with pytest.raises(ValueError, match="1 source topics already"):
        log.take_in(declared("db2"))


def test_a_log_that_is_not_there_is_not_made(log: SourcesLog) -> None:
    log.log.start = MagicMock()  # type: ignore[method-assign]
    log.look(["__kordon.layouts"])
    assert not log.is_there
    log.log.start.assert_not_called()
    log.look([SOURCE_TOPICS.name])
    assert log.is_there
    log.log.start.assert_called_once()
