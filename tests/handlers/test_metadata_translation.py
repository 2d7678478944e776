"""What clients see of managed topics in Metadata and DescribeTopicPartitions, version by version."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.apis import METADATA
from kordon.codecs.messages import request, response
from kordon.proxy.core.interception import Translate
from kordon.proxy.handlers.describe_topic_partitions import DescribeTopicPartitions
from kordon.proxy.handlers.metadata import DialectMetadata, Metadata
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics, face_of
from kordon.testing.handled import held
from kordon.testing.messages.as_read import as_read

DESCRIBE_TOPIC_PARTITIONS = 75
REAL_ID, FACE_ID, OTHER_ID, OWN_ID = (UUID(int=number) for number in (1, 2, 3, 4))
NO_ID = UUID(int=0)
UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_ID = 3, 5, 100


def grown() -> Layout:
    """A topic with V = 4 on 2 partitions that began with 1: v 2 and 3 have moved to the second."""
    layout = Layout.created("orders", REAL_ID, 1, 4)
    return layout.changed(layout.next_epoch(2), {0: 10, 1: 0})


def managed(layout: Layout | None = None) -> ManagedTopics:
    topics = ManagedTopics()
    topics.add(ManagedTopic(layout or grown(), FACE_ID))
    return topics


def partition(index: int, leader: int, epoch: int = 7) -> dict[str, Any]:
    return {
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": epoch,
        "replica_nodes": [leader, 9],
        "isr_nodes": [leader],
        "offline_replicas": [9],
    }


def topic_row(name: str | None, topic_id: UUID, count: int, error: int = 0) -> dict[str, Any]:
    rows = [partition(q, q + 1) for q in range(count)]
    return {"error_code": error, "name": name, "topic_id": topic_id, "partitions": rows}


def asking(version: int, fields: Mapping[str, Any], api_key: int = METADATA) -> Any:
    return as_read(request(api_key), version, fields)


def answered(version: int, rows: list[dict[str, Any]]) -> Any:
    return as_read(response(METADATA), version, {"topics": rows})


def seen(version: int, asked: Any, rows: list[dict[str, Any]], topics: ManagedTopics | None = None) -> list[Any]:
    """Returns the topics that a client reads, through the wire."""
    value = answered(version, rows)
    Metadata().response(version, value, topics or managed(), asked)
    body = response(METADATA).build(version, value)
    return list(response(METADATA).parse(version, body).topics)


@pytest.mark.parametrize("version", range(14))
def test_a_managed_topic_has_its_virtual_partitions(version: int) -> None:
    """Every version shows V partitions, each with leader, replicas and ISR of its physical one."""
    asked = asking(version, {"topics": [{"name": "orders"}]})
    (topic,) = seen(version, asked, [topic_row("orders", REAL_ID, 3)])
    assert [row.partition_index for row in topic.partitions] == [0, 1, 2, 3]
    assert [row.leader_id for row in topic.partitions] == [1, 1, 2, 2]
    assert [list(row.isr_nodes) for row in topic.partitions] == [[1], [1], [2], [2]]
    assert topic.get("topic_id", FACE_ID) == FACE_ID
    if version >= 7:
        assert [row.leader_epoch for row in topic.partitions] == [7, 7, 1 << 15 | 7, 1 << 15 | 7]


@pytest.mark.parametrize("handler", [Metadata(), DialectMetadata()])
def test_who_names_nothing_managed_is_answered_as_by_brokers(handler: Metadata | DialectMetadata) -> None:
    """The answer streams on, unless one of its topics has come to be managed, is coming, or is not served by then."""

    def streams(name: str | None, topics: ManagedTopics) -> bool:
        asked = {"topics": None if name is None else [{"name": "other"}, {"name": name}]}
        decision = handler.decide(held(topics, METADATA, 12, asked))
        return isinstance(decision, Translate) and decision.streams is not None and decision.streams()

    asked_before = handler.decide(held(topics := managed(), METADATA, 12, {"topics": [{"name": "clicks"}]}))
    assert isinstance(asked_before, Translate)
    assert asked_before.streams is not None
    assert asked_before.streams()
    topics.begin(ManagedTopic(Layout.unmanaged("clicks", OTHER_ID, 1, 4), OWN_ID))
    assert not asked_before.streams()
    topics.serve("unread", "a record of it cannot be read")
    shown = (None, "orders", "clicks", "unread", "__kordon.layouts")
    assert [each for each in (*shown, "another", "") if streams(each, topics)] == ["another", ""]


@pytest.mark.parametrize("version", [0, 1, 9, 12, 13])
def test_kordons_own_topics_are_hidden_from_all_topics(version: int) -> None:
    """Who asks for all topics gets none of Kordon's; others pass as they are."""
    asked = asking(version, {"topics": None if version else []})
    rows = [topic_row(name, NO_ID, 2) for name in ("plain", face_of("orders"), "__kordon.layouts")]
    translation = Metadata()
    assert not translation.request(version, asking(version, {"topics": None if version else []}), managed())
    topics = seen(version, asked, rows)
    assert [topic.name for topic in topics] == ["plain"]
    assert [row.leader_id for row in topics[0].partitions] == [1, 2]


@pytest.mark.parametrize("version", [0, 1, 9, 12, 13])
def test_kordons_own_topics_do_not_exist_by_name(version: int) -> None:
    """The broker is not even asked, or it might create them; the client reads UNKNOWN_TOPIC_OR_PARTITION."""
    asked = asking(version, {"topics": [{"name": face_of("orders")}, {"name": "__kordon.nothing"}]})
    value = asking(version, asked)
    assert Metadata().request(version, value, managed())
    sent = as_read(request(METADATA), version, value)
    assert [row.name for row in sent.topics] == (["/"] if version == 0 else [])
    refused = [topic_row("/", NO_ID, 0, error=17)] if version == 0 else []
    topics = seen(version, asked, refused)
    assert {topic.name: topic.error_code for topic in topics} == {
        face_of("orders"): UNKNOWN_TOPIC_OR_PARTITION,
        "__kordon.nothing": UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize("version", [12, 13])
def test_topic_ids_are_those_of_faces(version: int) -> None:
    """By the id that clients know the real topic is found; by its real id, and by those of own topics, nothing is."""
    wishes = [{"topic_id": topic_id, "name": None} for topic_id in (FACE_ID, REAL_ID, OTHER_ID, OWN_ID)]
    asked, value = asking(version, {"topics": wishes}), asking(version, {"topics": wishes})
    assert Metadata().request(version, value, managed())
    assert [row.topic_id for row in value.topics] == [REAL_ID, OTHER_ID, OWN_ID]
    rows = [
        topic_row("orders", REAL_ID, 2),
        topic_row("other", OTHER_ID, 1),
        topic_row("__kordon.layouts", OWN_ID, 1),
    ]
    topics = {topic.topic_id: topic for topic in seen(version, asked, rows)}
    assert {topic_id: topic.name for topic_id, topic in topics.items()} == {
        FACE_ID: "orders",
        REAL_ID: None,
        OTHER_ID: "other",
        OWN_ID: None,
    }
    errors = [topics[topic_id].error_code for topic_id in (FACE_ID, REAL_ID, OTHER_ID, OWN_ID)]
    assert errors == [0, UNKNOWN_TOPIC_ID, 0, UNKNOWN_TOPIC_ID]
    assert len(topics[FACE_ID].partitions) == 4


@pytest.mark.parametrize("version", [10, 11])
def test_ids_in_versions_that_do_not_ask_by_them_are_left_to_the_broker(version: int) -> None:
    """It refuses all that is asked then, and an answer of these versions has a name in each row."""
    wishes = [{"topic_id": topic_id, "name": "other"} for topic_id in (FACE_ID, REAL_ID, OTHER_ID, OWN_ID)]
    asked, value = asking(version, {"topics": wishes}), asking(version, {"topics": wishes})
    assert not Metadata().request(version, value, managed())
    assert value == asked
    rows = [topic_row("other", NO_ID, 0, error=42)] * len(wishes)
    assert [(topic.name, topic.error_code) for topic in seen(version, asked, rows)] == [("other", 42)] * len(wishes)


def test_a_topic_that_the_broker_refuses_is_refused() -> None:
    """Errors of the broker pass, and an id in them is the one that the client knows."""
    asked = asking(12, {"topics": [{"name": "orders"}]})
    (topic,) = seen(12, asked, [topic_row("orders", REAL_ID, 0, error=29)])
    assert (topic.error_code, topic.topic_id, list(topic.partitions)) == (29, FACE_ID, [])
    (topic,) = seen(12, asked, [topic_row("orders", NO_ID, 0, error=29)])
    assert (topic.error_code, topic.topic_id) == (29, NO_ID)


def test_a_topic_made_again_waits() -> None:
    """SAME-TOPIC: the layout is another topic's; nobody is led to partitions by it."""
    asked = asking(12, {"topics": [{"name": "orders"}]})
    (topic,) = seen(12, asked, [topic_row("orders", OTHER_ID, 2)])
    assert (topic.error_code, list(topic.partitions)) == (LEADER_NOT_AVAILABLE, [])


def test_a_home_that_the_broker_has_not_heard_of_has_no_leader() -> None:
    """A partition that was just created is LEADER_NOT_AVAILABLE, the others are served."""
    asked = asking(9, {"topics": [{"name": "orders"}]})
    (topic,) = seen(9, asked, [topic_row("orders", REAL_ID, 1)])
    assert [(row.error_code, row.leader_id) for row in topic.partitions] == [(0, 1), (0, 1), (5, -1), (5, -1)]


def test_a_topic_that_has_been_taken_over_has_all_its_virtual_partitions() -> None:
    """Also those that are written but not delivered yet (TAKEOVER-WAITS)."""
    layout = Layout.unmanaged("orders", REAL_ID, 2, 8)
    taken = layout.changed(layout.next_epoch(2, Placement.OWN), {0: 5, 1: 5}, withheld=True)
    asked = asking(9, {"topics": [{"name": "orders"}]})
    (topic,) = seen(9, asked, [topic_row("orders", REAL_ID, 2)], managed(taken))
    assert [row.partition_index for row in topic.partitions] == list(range(8))


class PagingBroker:
    """Answers DescribeTopicPartitions as a broker does (DescribeTopicPartitionsRequestHandler)."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = counts

    def answer(self, asked: Any) -> Any:
        names = sorted({row.name for row in asked.topics} or self.counts)
        begin, first = (asked.cursor.topic_name, asked.cursor.partition_index) if asked.cursor else ("", 0)
        room, rows, following = max(asked.response_partition_limit, 1), list[dict[str, Any]](), None
        for name in [name for name in names if name >= begin]:
            if name not in self.counts:
                rows.append({"name": name, "error_code": UNKNOWN_TOPIC_OR_PARTITION})
                continue
            indices = range(first if name == begin else 0, self.counts[name])
            if not room:
                following = {"topic_name": name, "partition_index": indices[0] if indices else 0}
                break
            rows.append(topic_row(name, NO_ID, self.counts[name]))
            rows[-1]["partitions"] = [partition(q, q + 1) for q in indices[:room]]
            if len(indices) > room:
                following = {"topic_name": name, "partition_index": indices[room]}
                break
            room -= len(indices)
        body = response(75).build(0, {"topics": rows, "next_cursor": following})
        return response(75).parse(0, body)


def pages(broker: PagingBroker, names: list[str], limit: int) -> list[Any]:
    """Reads page after page as a client does."""
    translation, cursor, got = DescribeTopicPartitions(), None, list[Any]()
    for _ in range(200):
        wish = {
            "topics": [{"name": name} for name in names],
            "response_partition_limit": limit,
            "cursor": cursor,
        }
        asked, value = asking(0, wish, 75), asking(0, wish, 75)
        translation.request(0, value, managed())
        sent = as_read(request(75), 0, value)
        answer = broker.answer(sent)
        translation.response(0, answer, managed(), asked)
        page = as_read(response(75), 0, answer)
        assert sum(len(topic.partitions) for topic in page.topics) <= max(limit, 1)  # as brokers have it
        got += page.topics
        if page.next_cursor is None:
            return got
        cursor = dict(page.next_cursor)
        assert not cursor["topic_name"].startswith("__kordon.")
    raise AssertionError("the pages do not end")


NAMES = ["aaa", "orders", "zzz", "__kordon.layouts", "__kordon.orders"]


@given(
    st.lists(st.sampled_from([*NAMES, "none"]), unique=True),
    st.integers(-2, 12),
    st.fixed_dictionaries({name: st.integers(1, 5) for name in ("aaa", "zzz", "__kordon.layouts")}),
)
def test_pages_add_up_to_each_partition_once(names: list[str], limit: int, counts: dict[str, int]) -> None:
    """Whatever the limit, the pages of DescribeTopicPartitions hold every partition once, and nothing of Kordon's."""
    broker = PagingBroker({**counts, "orders": 2, "__kordon.orders": 4})
    seen_partitions: dict[str, list[int]] = {}
    for topic in pages(broker, names, limit):
        if not topic.error_code:
            seen_partitions.setdefault(topic.name, []).extend(row.partition_index for row in topic.partitions)
        else:
            assert topic.error_code == UNKNOWN_TOPIC_OR_PARTITION
            assert topic.name in {"none", "__kordon.layouts", "__kordon.orders"}
    visible = {"aaa": counts["aaa"], "zzz": counts["zzz"], "orders": 4}
    wanted = set(names or visible) & visible.keys()
    assert seen_partitions == {name: list(range(visible[name])) for name in wanted}


def test_more_physical_partitions_than_a_page_holds_come_to_an_end() -> None:
    """A broker that never shows a managed topic whole still lets the client get past it."""

    class Narrow(PagingBroker):
        def answer(self, asked: Any) -> Any:
            asked["response_partition_limit"] = 1
            return super().answer(asked)

    got = pages(Narrow({"aaa": 1, "orders": 2, "zzz": 1}), [], 10)
    assert [(topic.name, len(topic.partitions)) for topic in got] == [("aaa", 1), ("orders", 4), ("zzz", 1)]
    assert [row.error_code for row in got[1].partitions] == [0, 0, LEADER_NOT_AVAILABLE, LEADER_NOT_AVAILABLE]
