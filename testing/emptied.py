"""A broker that tests use one after the other, each as if it were new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.own_topics.compacted_topic import LAYOUTS
from kordon.proxy.own_topics.layouts_topic import LAYOUTS_TOPIC
from kordon.testing.cluster import Cluster
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.waiting import wait_until

_LEAVE_GROUP: Final = 13
_OF_KAFKA: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Are kept: brokers fail where these are taken from them."""


def emptied(cluster: Cluster) -> Cluster:
    """Takes from a single plain broker what was left on it, by whom that has gone; starts it where it was killed.

    Members of groups that were killed are taken out, so that nobody waits for their sessions to end. Transactional ids
    stay: who opens one again ends what was begun under it. The layouts topic is there, with nothing in it, so that
    Kordons know of each other from their start, and the first managed topic does not wait for that.

    Returns:
        The cluster.
    """
    (broker,) = cluster.brokers
    if broker.pid is None:
        broker.start()
    broker.resume()
    with PlainConnection(cluster.bootstrap()) as connection:
        _delete_groups(connection)
        wait_until("all topics are gone", lambda: _has_deleted_topics(connection))
        wait_until("there are layouts", lambda: _has_created_layouts(connection))
    return cluster


def _delete_groups(connection: PlainConnection) -> None:
    found = [each.group_id for each in connection.ask(apis.LIST_GROUPS, 2, {}).groups]
    for group in connection.ask(apis.DESCRIBE_GROUPS, 4, {"groups": found}).groups:
        members = [{"member_id": each.member_id} for each in group.members]
        if members:
            connection.ask(_LEAVE_GROUP, 3, {"group_id": group.group_id, "members": members})
    connection.ask(apis.DELETE_GROUPS, 1, {"groups_names": found})


def _has_deleted_topics(connection: PlainConnection) -> bool:
    left = [name for name in _topics(connection) if name not in _OF_KAFKA]
    if left:
        connection.ask(apis.DELETE_TOPICS, 1, {"topic_names": left, "timeout_ms": 30_000})
    return not left


def _has_created_layouts(connection: PlainConnection) -> bool:
    configs = [{"name": name, "value": value} for name, value in LAYOUTS.configs(1).items()]
    topic = {"name": LAYOUTS_TOPIC, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
    (row,) = connection.ask(apis.CREATE_TOPICS, 4, {"topics": [topic], "timeout_ms": 30_000}).topics
    (known,) = connection.ask(apis.METADATA, 1, {"topics": [{"name": LAYOUTS_TOPIC}]}).topics
    return row.error_code in {Code.NONE, Code.TOPIC_ALREADY_EXISTS} and known.error_code == Code.NONE


def _topics(connection: PlainConnection) -> Sequence[str]:
    found: Any = connection.ask(apis.METADATA, 1, {"topics": None}).topics
    return [each.name for each in found]
