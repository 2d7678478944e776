"""What dialect connections say and understand, byte by byte, without a network."""

import io
from typing import Any
from uuid import UUID

import pytest
from aiokafka.errors import IncompatibleBrokerVersion, for_code

from kordon.client.connection import MetadataAnswer
from kordon.client.dialect_client import DialectCluster
from kordon.client.errors import InvalidPartitionMetadataError
from kordon.client.requests import ApiVersionsRequest, WireRequest, metadata_request
from kordon.codecs.headers import build_response_header
from kordon.codecs.messages import request, response
from kordon.testing.known import known

ID = UUID(int=7)


def metadata(topics: list[dict[str, Any]], version: int = 12) -> MetadataAnswer:
    """An answer to Metadata as it comes from the wire."""
    brokers = [{"node_id": 1, "host": "kordon", "port": 9092}]
    partition = {"error_code": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
    rows = [{"topic_id": ID, "partitions": [{**partition, "partition_index": q} for q in range(5)]} | t for t in topics]
    body = response(3).build(version, {"brokers": brokers, "topics": rows})
    return MetadataAnswer(response(3).parse(version, body))


def row(name: str = "orders", epoch: int = 2, u: int = 4, **more: Any) -> dict[str, Any]:
    counts = {"initial_partition_count": 3, "undeleted_partition_count": u, "virtual_partition_count": 12}
    return {"name": name, "error_code": 0, "layout_epoch": epoch, **counts, **more}


def test_a_connection_begins_with_the_tag_that_makes_it_a_dialect_connection() -> None:
    """ApiVersions 3 with kordon_client = 1."""
    prepared = ApiVersionsRequest().prepare({})
    assert (prepared.API_KEY, prepared.API_VERSION) == (18, 3)
    assert request(18).parse(3, prepared.encode()).kordon_client == 1


def test_a_broker_too_old_for_the_tag_is_understood() -> None:
    """It answers in version 0 with UNSUPPORTED_VERSION."""
    prepared = ApiVersionsRequest().prepare({})
    answer = io.BytesIO(build_response_header(18, 0, 5) + response(18).build(0, {"error_code": 35, "api_keys": []}))
    assert prepared.parse_response_header(answer).correlation_id == 5
    assert prepared.RESPONSE_TYPE.decode(answer).error_code == 35


def test_the_newest_version_that_both_sides_speak_is_taken() -> None:
    """And none is an error before anything is sent."""
    wish = WireRequest(3, range(9, 13), {"topics": None})
    assert wish.prepare({3: (0, 13)}).version == 12
    assert wish.prepare({3: (0, 10)}).version == 10
    for versions in ({3: (0, 8)}, {3: (13, 14)}, {}):
        with pytest.raises(IncompatibleBrokerVersion):
            wish.prepare(versions)


def test_metadata_is_asked_for_by_name_in_each_version() -> None:
    """With the id of none, where versions have ids."""
    for newest in (9, 12):
        prepared = metadata_request(["orders"]).prepare({3: (0, newest)})
        assert [each.name for each in request(3).parse(newest, prepared.encode()).topics] == ["orders"]
    assert metadata_request(None).prepare({3: (0, 12)}).body["topics"] is None


def test_metadata_tells_layouts_and_what_aiokafka_reads() -> None:
    """Of managed topics; a topic that is not managed has none."""
    cluster = DialectCluster()
    cluster.update_metadata(metadata([row(), {"name": "plain", "error_code": 0}]))

    layout = known(cluster.layouts.get("orders"))
    assert (layout.initial_partition_count, layout.undeleted_partition_count, layout.layout_epoch) == (3, 4, 2)
    assert layout.topic_id == ID
    assert cluster.layouts.get("plain") is None
    assert cluster.partitions_for_topic("orders") == {0, 1, 2, 3, 4}
    assert cluster.broker_metadata(1).host == "kordon"
    assert cluster.ordered is True


def test_a_proxy_that_is_behind_does_not_take_back_a_layout() -> None:
    """But a topic that was made again begins anew, and an error says nothing about the layout."""
    cluster = DialectCluster()
    for answer in (row(epoch=3, u=5), row(epoch=2, u=4), {"name": "orders", "error_code": 5}):
        cluster.update_metadata(metadata([answer]))
    layout = known(cluster.layouts.get("orders"))
    assert layout.undeleted_partition_count == 5

    cluster.update_metadata(metadata([row(epoch=0, u=3, topic_id=UUID(int=8))]))
    layout = known(cluster.layouts.get("orders"))
    assert layout.undeleted_partition_count == 3


def test_a_topic_that_is_let_go_is_not_managed_any_more() -> None:
    """Several answers have no counts; a single one may come from a proxy that has not heard of a takeover's end."""
    cluster = DialectCluster()
    denial = {"name": "orders", "error_code": 0}
    for answer in (row(), denial, denial, row(), denial, denial, denial, denial):
        cluster.update_metadata(metadata([answer]))
        assert cluster.layouts.get("orders") is not None
    cluster.update_metadata(metadata([denial]))
    assert cluster.layouts.get("orders") is None


def test_a_topic_that_was_made_again_is_not_managed_at_once() -> None:
    """It has another id."""
    cluster = DialectCluster()
    for answer in (row(), {"name": "orders", "error_code": 0, "topic_id": UUID(int=8)}):
        cluster.update_metadata(metadata([answer]))
    assert cluster.layouts.get("orders") is None


def test_a_record_for_a_partition_follows_its_keys_when_that_is_retired() -> None:
    """Partition 9 of 3 was split from 3, which was split from 0."""
    cluster = DialectCluster()
    for epoch, u, partition in ((1, 12, 9), (2, 9, 3), (3, 3, 0)):
        cluster.update_metadata(metadata([row(epoch=epoch, u=u)]))
        layout = known(cluster.layouts.get("orders"))
        assert layout.home(~9) == partition


def test_the_refusal_has_an_error_that_asks_for_a_refresh() -> None:
    """KIP-253: retriable, an InvalidMetadataException."""
    assert for_code(16384) is InvalidPartitionMetadataError
    assert InvalidPartitionMetadataError.retriable
    assert InvalidPartitionMetadataError.invalid_metadata
