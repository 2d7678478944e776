"""A real broker takes every request we build, in every version it has, and we rebuild its answers byte for byte."""

import time
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kordon.codecs.dialect import is_private
from kordon.codecs.messages import REQUESTS, request, response
from kordon.proxy.core.verdicts import api_name
from kordon.testing.cluster import Cluster
from kordon.testing.jars import kafka_version
from kordon.testing.plain_connection import PlainConnection

pytestmark = pytest.mark.broker

TOPIC = "codecs-real-broker"
API_VERSIONS = 18
NOT_ASKED = {
    17: "on a listener without SASL the broker closes the connection",
    36: "the same",
}


def one_batch() -> bytes:
    """A record batch as aiokafka builds it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1_000,
    )
    builder.append(0, timestamp=1, key=None, value=b"value", headers=[])
    return bytes(builder.build())


FIELDS: dict[int, dict[str, Any]] = {
    0: {"acks": -1, "timeout_ms": 5_000, "topic_data": [{"name": TOPIC, "partition_data": [{"records": one_batch()}]}]},
    3: {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": True},
    9: {"group_id": "group", "groups": [{"group_id": "group"}]},
    10: {"key": "group", "coordinator_keys": ["group"]},
    15: {"groups": ["group"]},
    18: {"client_software_name": "kordon", "client_software_version": "1"},
    22: {"transaction_timeout_ms": 5_000, "transactional_id": None},
    24: {
        "v3_and_below_transactional_id": "t",
        "transactions": [{"transactional_id": "t", "topics": [{"name": TOPIC, "partitions": [0]}]}],
    },
    29: {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1},
    32: {"resources": [{"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}]},
    55: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{}]}]},
    75: {"topics": [{"name": TOPIC}]},
}
"""What is asked for, where the defaults would ask for nothing; all others are answered with an error."""
ADVERTISED_BUT_REFUSED = {0: range(3)}
"""Kafka 4 advertises Produce 0 to 2 for the sake of librdkafka, and closes the connection on them (KAFKA-18659)."""


@pytest.fixture(scope="module")
def broker_versions(cluster: Cluster) -> dict[int, range]:
    """The versions that the broker has, by api key; a topic is there afterwards."""
    with PlainConnection(cluster.bootstrap("PLAINTEXT")) as connection:
        answer = connection.ask(API_VERSIONS, 0, {})
        deadline = time.monotonic() + 30
        while connection.ask(3, 4, FIELDS[3]).topics[0].error_code:
            assert time.monotonic() < deadline, "the topic was not created"
            time.sleep(0.1)
    return {row.api_key: range(row.min_version, row.max_version + 1) for row in answer.api_keys}


@pytest.mark.parametrize("api_key", sorted(key for key in set(REQUESTS) - set(NOT_ASKED) if not is_private(key)))
def test_broker_answers_and_the_answer_is_rebuilt(
    api_key: int, cluster: Cluster, broker_versions: dict[int, range]
) -> None:
    """Every version that table and broker have in common; one connection each."""
    answered = set(broker_versions.get(api_key, ())) - set(ADVERTISED_BUT_REFUSED.get(api_key, ()))
    if not answered:
        pytest.skip(f"Kafka {kafka_version()} has no {api_name(api_key)}")
    for version in sorted(answered.intersection(request(api_key).versions)):
        with PlainConnection(cluster.bootstrap("PLAINTEXT")) as connection:
            body = connection.ask_bytes(api_key, version, FIELDS.get(api_key, {}))
        message = response(api_key)
        assert message.build(version, message.parse(version, body)) == body, f"{message.name} v{version}"


def test_broker_has_no_version_that_the_tables_miss(broker_versions: dict[int, range]) -> None:
    """A newer broker that this fails on has versions that Kordon hides from clients."""
    missed = {
        key: [version for version in broker_versions[key] if version not in request(key).versions]
        for key in REQUESTS
        if key in broker_versions
    }
    assert {key: versions for key, versions in missed.items() if versions} == {}


def test_api_versions_that_is_too_new_is_answered_in_version_0(cluster: Cluster) -> None:
    """With error 35, whatever version was asked in (KIP-511)."""
    newest = request(API_VERSIONS).versions[-1]
    too_new = b"\x00\x12\x7f\xff\x00\x00\x00\x05\x00\x00\x00" + request(API_VERSIONS).build(newest, {})
    with PlainConnection(cluster.bootstrap("PLAINTEXT")) as connection:
        answer = response(API_VERSIONS).parse(0, connection.ask_frame(too_new)[4:])
    assert answer.error_code == 35
    assert answer.api_keys
