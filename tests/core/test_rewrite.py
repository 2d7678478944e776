"""No broker's address leaves: what is changed in responses, and that nothing with an address was forgotten."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs import apis
from kordon.codecs.messages import response
from kordon.codecs.schema import versions_of
from kordon.proxy.config.config import Limits
from kordon.proxy.core import verdicts
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.events import LearnNodes, SendDownstream
from kordon.proxy.core.rewrite import EDITS
from kordon.proxy.core.tally import Tally
from kordon.testing.jars import NEWEST, VERSIONS, kafka_clients_jar
from kordon.testing.messages.kafka_schemas import read_schemas
from kordon.testing.plays import Broker, Client, feed, request_frame, response_frame

HOST = "broker-7.internal.example"
OF_CLIENTS = {88, 89}
"""Streams groups: the hosts are the application's own instances (application.server), not brokers."""
TAILS = [
    *((apis.PRODUCE, version) for version in range(10, 14)),
    *((apis.FETCH, version) for version in range(16, 19)),
    *((apis.SHARE_FETCH, version) for version in range(1, 3)),
    *((apis.SHARE_ACKNOWLEDGE, version) for version in range(1, 3)),
]


def addresses_in(fields: list[dict[str, Any]], version: int, structs: dict[str, list[dict[str, Any]]]) -> bool:
    """Whether a message of Kafka's schemas has a host with a port in a version (an ACL's host has none)."""
    present = [field for field in fields if version in versions_of(field["versions"])]
    if {"Host", "Port"} <= {field["name"] for field in present}:
        return True
    inner = (field.get("fields") or structs.get(field["type"].removeprefix("[]"), []) for field in present)
    return any(addresses_in(each, version, structs) for each in inner)


@pytest.mark.parametrize("kafka", VERSIONS.values())
def test_every_response_that_can_name_a_host_is_changed(kafka: str) -> None:
    """Kafka's own schemas: each (api key, version) that Kordon lets through and that has a host has an edit."""
    schemas = read_schemas(kafka_clients_jar(kafka))
    with_addresses: set[tuple[int, int]] = set()
    for schema in (each for (_, type_), each in schemas.items() if type_ == "response"):
        structs = {each["name"]: each["fields"] for each in schema.get("commonStructs", [])}
        for route in verdicts.ROUTES:
            if route.api.key in OF_CLIENTS:
                continue
            if route.api.key == schema["apiKey"] and addresses_in(schema["fields"], route.version, structs):
                with_addresses.add((route.api.key, route.version))
    assert with_addresses
    assert with_addresses <= EDITS.keys()
    if kafka == NEWEST:
        assert {key for key in EDITS if key[0] != apis.API_VERSIONS} <= with_addresses


def answer(api_key: int, version: int, endpoints: int, partitions: int, records: int) -> bytes:
    """A response that says of every partition that another broker leads it now."""
    leader = {"leader_id": 7, "leader_epoch": 3}
    partition: dict[str, Any] = {"index": 0, "partition_index": 0, "error_code": 6, "current_leader": leader}
    if api_key in (apis.FETCH, apis.SHARE_FETCH):
        partition["records"] = b"r" * records
    rows = [partition] * partitions
    topic = {"name": "t", "partition_responses": rows, "partitions": rows}
    nodes = [{"node_id": node, "host": HOST, "port": 9092, "rack": f"rack-{node}"} for node in range(endpoints)]
    return response_frame(api_key, version, 1, responses=[topic], node_endpoints=nodes, throttle_time_ms=5)


def through_kordon(api_key: int, version: int, sent: bytes, chunk_bytes: int, host: str) -> tuple[bytes, set[int]]:
    """Passes a response through a core in chunks; returns what the client gets, and the brokers learned."""
    core = Connection(Limits(), Tally(), Advertised(host=host, base_port=20000), 0.0)
    feed(core, Client, asked(api_key, version))
    got, unread, learned = b"", b"", set[int]()
    for at in range(0, len(sent), chunk_bytes):
        commands, unread = feed(core, Broker, unread + sent[at : at + chunk_bytes])
        for command in commands:
            if isinstance(command, SendDownstream):
                got += b"".join(map(bytes, command.pieces))
            elif isinstance(command, LearnNodes):
                learned |= command.nodes.keys()
    assert core.closed is None
    return got, learned


def asked(api_key: int, version: int) -> bytes:
    if api_key == apis.PRODUCE:
        return request_frame(api_key, version, 1, transactional_id=None, acks=-1, timeout_ms=1, topic_data=[])
    return request_frame(api_key, version, 1)


@pytest.mark.parametrize(("api_key", "version"), TAILS)
@given(
    endpoints=st.integers(0, 4),
    partitions=st.integers(0, 3),
    records=st.integers(0, 300),
    chunk_bytes=st.sampled_from([1, 2, 7, 64, 100, 1 << 20]),
    host=st.sampled_from(
        ["p", "proxy", "x" * (len(HOST) - 1), "x" * len(HOST), "a-proxy-with-a-very-long-name.example.com"]
    ),
)
def test_new_leaders_are_found_at_the_proxy(
    api_key: int, version: int, endpoints: int, partitions: int, records: int, chunk_bytes: int, host: str
) -> None:
    """KIP-951 endpoints name the proxy, or are left out where a longer name has no room; the rest is as it was."""
    sent = answer(api_key, version, endpoints, partitions, records)
    got, learned = through_kordon(api_key, version, sent, chunk_bytes, host)
    assert int.from_bytes(got[:4], "big") == len(got) - 4
    assert HOST.encode() not in got
    before, after = (response(api_key).parse(version, frame[9:]) for frame in (sent, got))
    found = after.node_endpoints or []
    assert [(each.host, each.port) for each in found] == [(host, 20000 + each.node_id) for each in found]
    assert learned == set(range(endpoints))
    whole = chunk_bytes >= len(sent)
    if whole or len(host) <= len(HOST) - 2:
        assert [each.node_id for each in found] == list(range(endpoints))
    if whole:
        assert [each.rack for each in found] == [f"rack-{node}" for node in range(endpoints)]
    for value in (before, after):
        value.update({"node_endpoints": [], "_tagged": {}})
    assert after == before


def test_coordinators_of_no_group_are_none() -> None:
    """Who asks for none gets none: an answer of a broker without rows is not the single row of older versions."""
    core = Connection(Limits(), Tally(), Advertised(host=HOST, base_port=20000), 0.0)
    feed(core, Client, request_frame(apis.FIND_COORDINATOR, 4, 1, key_type=0, coordinator_keys=[]))
    answer = response_frame(apis.FIND_COORDINATOR, 4, 1, coordinators=[])
    commands, _ = feed(core, Broker, answer)
    (sent,) = [each for each in commands if isinstance(each, SendDownstream)]
    assert b"".join(bytes(piece) for piece in sent.pieces) == answer
