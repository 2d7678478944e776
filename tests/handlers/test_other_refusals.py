"""Errors in answers beside Produce and Fetch are on record: those of Kordon's own, by topic and stream."""

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.decision import Kind
from kordon.codecs.messages import request, response
from kordon.codecs.row import Row
from kordon.proxy.handlers.add_partitions_to_txn import AddPartitionsToTxn
from kordon.proxy.handlers.other_refusals import OtherRefusals
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.views import PHYSICAL, VIRTUAL, View
from kordon.testing.messages.as_read import as_read
from kordon.testing.noted import Noted

FACE_ID = UUID(int=2)


def told(
    api_key: int, fields: Mapping[str, Any], names: Collection[str] | None = None, view: View = VIRTUAL
) -> list[tuple[str | None, int | None, str | None, int | None]]:
    """Returns what is on record of an answer: topic, stream, error and layout epoch."""
    topics = ManagedTopics()
    topics.add(ManagedTopic(Layout.created("orders", UUID(int=1), 1, 4), FACE_ID, layouts_offset=17))
    noted = Noted()
    client = noted.journal.connected()
    OtherRefusals(noted.journal, topics, view).parts(client, api_key, Row(fields), names)
    noted.journal.end_runs()
    assert all(each.api_key == api_key for each in noted.of(Kind.REFUSE))
    return [(each.topic, each.stream, each.reason, each.layout_epoch) for each in noted.of()]


@pytest.mark.parametrize(("view", "stream"), [(VIRTUAL, 1), (PHYSICAL, physical_stream(1))])
def test_partitions_are_named_as_their_clients_mean_them(view: View, stream: int) -> None:
    """What went well is not on record."""
    rows = [{"partition_index": 0, "error_code": 0}, {"partition_index": 1, "error_code": 6}]
    fields = {"topics": [{"name": "orders", "partitions": rows}]}
    expected = [("orders", stream, "NOT_LEADER_OR_FOLLOWER", 0)]
    assert told(apis.LIST_OFFSETS, fields, view=view) == expected


def test_a_topic_that_is_named_by_its_id_is_known() -> None:
    """Later versions name no topic otherwise."""
    fields = {"responses": [{"name": None, "topic_id": FACE_ID, "error_code": 29}]}
    assert told(apis.DELETE_TOPICS, fields) == [("orders", None, "TOPIC_AUTHORIZATION_FAILED", 0)]


@pytest.mark.parametrize("version", [3, 4])
def test_a_transaction_is_refused_by_partition(version: int) -> None:
    """Of managed topics it is said why, of others that nothing was tried."""
    topics = ManagedTopics()
    topics.add(ManagedTopic(Layout.created("orders", UUID(int=1), 1, 4), FACE_ID))
    rows = [{"name": "orders", "partitions": [2]}, {"name": "others", "partitions": [0]}]
    ids = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
    whole = {f"v3_and_below_{name}": value for name, value in ids.items()}
    asked = (
        {**whole, "v3_and_below_topics": rows}
        if version < 4
        else {"transactions": [{**ids, "verify_only": False, "topics": rows}]}
    )
    table = request(apis.ADD_PARTITIONS_TO_TXN)
    refusal = AddPartitionsToTxn().look(table.at(version).parse(table.build(version, asked))[0], topics)
    assert refusal is not None
    unknown = [
        {"name": name, "results_by_partition": [{"partition_index": q, "partition_error_code": 49}]}
        for name, q in (("orders", 2), ("others", 0))
    ]
    said = (
        {"results_by_topic_v3_and_below": unknown}
        if version < 4
        else {"results_by_transaction": [{"transactional_id": "t", "topic_results": unknown}]}
    )
    fields = as_read(response(apis.ADD_PARTITIONS_TO_TXN), version, said)
    refusal(fields)
    assert refusal.stands
    assert told(apis.ADD_PARTITIONS_TO_TXN, fields) == [
        ("orders", 2, "INVALID_TXN_STATE", 0),
        ("others", 0, "OPERATION_NOT_ATTEMPTED", None),
    ]


def test_what_brokers_answered_for_other_topics_is_not_on_record() -> None:
    """Their rows stand in the same answer."""
    rows = [{"resource_name": "orders", "error_code": 42}, {"resource_name": "others", "error_code": 42}]
    assert [each[0] for each in told(apis.ALTER_CONFIGS, {"responses": rows}, {"orders"})] == ["orders"]


def test_an_error_of_the_whole_answer_names_no_topic() -> None:
    """As where a report of positions is refused."""
    fields = {"error_code": 22, "topics": []}
    assert told(apis.CONSUMER_GROUP_POSITION, fields) == [(None, None, "ILLEGAL_GENERATION", None)]
