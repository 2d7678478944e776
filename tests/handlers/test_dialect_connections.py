"""Connections that speak the dialect, with real brokers: through Kordon, and without it."""

from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.dialect import ORDERED, is_private
from kordon.codecs.error_codes import Code
from kordon.proxy.core import verdicts
from kordon.testing.cluster import Cluster
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, create_ordinary, resize
from kordon.testing.managed_writes import a_batch
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

NEWEST_API_VERSIONS = 4


def partitions_of(row: Any) -> dict[int, int]:
    """Leader epochs by partition, of a topic's row of a Metadata answer."""
    return {each.partition_index: each.leader_epoch for each in row.partitions}


def offered(connection: PlainConnection, version: int) -> tuple[set[int], list[str]]:
    """The api keys and the features that a client without the SDK is offered."""
    answer = connection.ask(apis.API_VERSIONS, version, {"client_software_name": "a", "client_software_version": "1"})
    return {row.api_key for row in answer.api_keys}, [row.name for row in answer.get("supported_features", ())]


def test_the_dialect_is_announced_and_its_api_keys_shown_to_those_who_speak_it(
    proxy: ProxyProcess, open_cluster: Cluster, dialect: DialectConnection
) -> None:
    """All others are offered what the broker offers, and in versions with features one feature more."""
    assert dialect.features[ORDERED] == range(1, 2)
    assert {key for key in dialect.api_keys if is_private(key)} == {16384, 16385}
    for version in range(NEWEST_API_VERSIONS + 1):
        with PlainConnection(proxy.bootstrap) as ours, PlainConnection(open_cluster.bootstrap()) as brokers:
            keys, features = offered(ours, version)
            expected_keys, expected_features = offered(brokers, version)
        assert not any(map(is_private, keys))
        assert keys == {api.key for api in verdicts.APIS if api.versions} & expected_keys
        assert features == expected_features + ([ORDERED] if version >= 3 else [])


@pytest.mark.parametrize("api_key", [16384, 16385])
def test_who_does_not_speak_the_dialect_is_refused_its_api_keys(proxy: ProxyProcess, api_key: int) -> None:
    """As any key that Kordon does not know: the connection ends, and no broker hears of it."""
    with PlainConnection(proxy.bootstrap) as connection:
        connection.ask(apis.API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"})
        with pytest.raises((EOFError, ConnectionError)):
            connection.ask(api_key, 0, {})


def test_a_broker_skips_what_only_the_dialect_has(open_cluster: Cluster) -> None:
    """A client of the dialect without Kordon: its tags in ApiVersions, Metadata, Produce and Fetch change nothing."""
    create_ordinary(open_cluster.bootstrap(), "tags", 2)
    with DialectConnection(open_cluster.bootstrap()) as connection:
        assert ORDERED not in connection.features
        assert not any(map(is_private, connection.api_keys))
        wait_until("the topic is there", lambda: connection.metadata("tags").error_code == Code.NONE, 60)
        row = connection.metadata("tags")
        assert (row.initial_partition_count, row.undeleted_partition_count, row.layout_epoch) == (-1, -1, -1)
        assert sorted(partitions_of(row)) == [0, 1]
        batch = a_batch("one", "two")
        wait_until("it is written", lambda: connection.produce("tags", 1, batch, count=7).error_code == Code.NONE, 60)
        positions = [{"partition": 0, "position": 5}]
        read = connection.fetch("tags", {1: 0}, 7, group_id="g", generation_id=3, member_id="m", positions=positions)
        assert (read[1].error_code, read[1].high_watermark) == (Code.NONE, 2)
        assert b"one" in read[1].records


def test_topics_that_are_not_managed_are_what_they_are_on_brokers(
    open_cluster: Cluster, dialect: DialectConnection
) -> None:
    """No tags, and the broker's own numbers; written and read as ever."""
    create_ordinary(open_cluster.bootstrap(), "dialect-ordinary", 2)
    wait_until("the topic is there", lambda: dialect.metadata("dialect-ordinary").error_code == Code.NONE, 60)
    with DialectConnection(open_cluster.bootstrap()) as bare:
        assert dialect.metadata("dialect-ordinary") == bare.metadata("dialect-ordinary")
    batch = a_batch("one")
    wait_until("it is written", lambda: dialect.produce("dialect-ordinary", 0, batch).error_code == Code.NONE, 60)
    assert b"one" in dialect.fetch("dialect-ordinary", {0: 0})[0].records


def test_metadata_shows_physical_partitions_and_the_layout(proxy: ProxyProcess, dialect: DialectConnection) -> None:
    """Others see V; leader epochs rise where keys have moved, and stay where they have not."""
    admin = create_managed(proxy.bootstrap, "shown")
    row = dialect.metadata("shown")
    counts = (row.initial_partition_count, row.undeleted_partition_count, row.virtual_partition_count)
    assert counts == (3, 3, VIRTUAL_PARTITIONS)
    assert row.enable_ordered_delivery
    before = partitions_of(row)
    assert sorted(before) == [0, 1, 2]
    resize(admin, "shown", 4).result(60)
    grown = dialect.metadata("shown")
    assert grown.undeleted_partition_count == 4
    assert grown.layout_epoch == row.layout_epoch + 1
    after = partitions_of(grown)
    assert sorted(after) == [0, 1, 2, 3]
    assert after[0] >> 15 == after[3] >> 15 == grown.layout_epoch
    assert (after[1], after[2]) == (before[1], before[2])
    with PlainConnection(proxy.bootstrap) as stock:
        (seen,) = stock.ask(apis.METADATA, 9, {"topics": [{"name": "shown"}]}).topics
    assert len(seen.partitions) == VIRTUAL_PARTITIONS
    assert seen.undeleted_partition_count == -1


def test_kordons_own_topics_are_hidden_from_the_dialect_too(proxy: ProxyProcess, dialect: DialectConnection) -> None:
    """Of all topics, by name, and in what a group has committed."""
    create_managed(proxy.bootstrap, "hides")
    everything = dialect.ask(apis.METADATA, 9, {"topics": None}).topics
    assert "hides" in [row.name for row in everything]
    assert not [row.name for row in everything if row.name.startswith("__kordon")]
    assert dialect.metadata("__kordon.hides").error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_retired_partition_is_shown_until_it_is_empty(proxy: ProxyProcess, dialect: DialectConnection) -> None:
    """KIP-253: the count shrinks at once, and what is left in the partition is still there to be read."""
    admin = create_managed(proxy.bootstrap, "shrinks")
    resize(admin, "shrinks", 4).result(60)
    assert dialect.produce("shrinks", 3, a_batch("left"), count=4).error_code == Code.NONE
    resize(admin, "shrinks", 3).result(60)
    row = dialect.metadata("shrinks")
    assert row.undeleted_partition_count == 3
    assert sorted(partitions_of(row)) == [0, 1, 2, 3]
    rows = [{"name": "shrinks", "partitions": [{"partition_index": 3, "offset": 1}]}]
    (deleted,) = dialect.ask(apis.DELETE_RECORDS, 2, {"topics": rows, "timeout_ms": 10_000}).topics[0].partitions
    assert (deleted.error_code, deleted.low_watermark) == (Code.NONE, 1)
    wait_until("it is gone", lambda: sorted(partitions_of(dialect.metadata("shrinks"))) == [0, 1, 2], 60)
    resize(admin, "shrinks", 4).result(60)
    assert sorted(partitions_of(dialect.metadata("shrinks"))) == [0, 1, 2, 3]


def test_leader_epochs_tell_where_the_keys_of_a_partition_were_before(
    proxy: ProxyProcess, dialect: DialectConnection
) -> None:
    """The proposal's two numbers, and in tags the segments; of a topic that is not managed, an error."""
    admin = create_managed(proxy.bootstrap, "epochs")
    resize(admin, "epochs", 4).result(60)
    assert dialect.produce("epochs", 0, a_batch("one", "two"), count=4).error_code == Code.NONE
    resize(admin, "epochs", 3).result(60)
    told = dialect.leader_epochs("epochs")
    assert told.layout_epoch == dialect.metadata("epochs").layout_epoch == 2
    rows = {row.partition: row for row in told.partitions}
    assert sorted(rows) == [0, 1, 2, 3]
    created, deleted = (1 << 15) - 1, (2 << 15) - 1
    numbers = {q: (row.leader_epoch_after_creation, row.leader_epoch_before_deletion) for q, row in rows.items()}
    assert numbers == {0: (-1, -1), 1: (-1, -1), 2: (-1, -1), 3: (created, deleted)}
    segments = [(row.layout_epoch, row.start_offset, row.end_offset) for row in rows[0].segments]
    assert segments == [(0, 0, 0), (1, 0, 2), (2, 2, -1)]
    sources = {(each.partition, each.layout_epoch) for each in rows[0].segments[2].predecessors}
    assert sources == {(0, 1), (3, 1)}
    assert [row.partition for row in dialect.leader_epochs("epochs", 3, 9).partitions] == [3, 9]
    assert dialect.leader_epochs("nowhere").error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_commits_of_dialect_groups_are_of_physical_partitions(proxy: ProxyProcess, dialect: DialectConnection) -> None:
    """They are the real topic's: a client that sees virtual partitions does not take them for its own."""
    create_managed(proxy.bootstrap, "commits")
    commit = {"partition_index": 2, "committed_offset": 7}
    asked = {"group_id": "of-dialect", "topics": [{"name": "commits", "partitions": [commit]}]}

    def committed() -> bool:
        row = dialect.ask(apis.OFFSET_COMMIT, 8, asked).topics[0].partitions[0]
        return bool(row.error_code == Code.NONE)

    wait_until("the coordinator has taken a commit", committed, 60)
    wanted = {"group_id": "of-dialect", "topics": [{"name": "commits", "partition_indexes": [2]}]}
    (row,) = dialect.ask(apis.OFFSET_FETCH, 7, wanted).topics
    assert (row.name, row.partitions[0].committed_offset) == ("commits", 7)
    with PlainConnection(proxy.bootstrap) as stock:
        (seen,) = stock.ask(apis.OFFSET_FETCH, 7, wanted).topics
    assert seen.partitions[0].committed_offset == -1


def test_a_group_that_changes_to_the_dialect_goes_on_where_it_was(
    proxy: ProxyProcess, dialect: DialectConnection
) -> None:
    """Its commits on virtual partitions say where, until it commits a physical one."""
    create_managed(proxy.bootstrap, "inherits")
    offsets = {v: 1 if v == 0 else 2 for v in range(VIRTUAL_PARTITIONS)}

    def commits(connection: PlainConnection, rows: dict[int, int]) -> bool:
        partitions = [{"partition_index": each, "committed_offset": offset} for each, offset in rows.items()]
        asked = {"group_id": "changing", "topics": [{"name": "inherits", "partitions": partitions}]}
        answered = connection.ask(apis.OFFSET_COMMIT, 8, asked).topics[0].partitions
        return all(row.error_code == Code.NONE for row in answered)

    def positions() -> dict[int, int]:
        asked = {"group_id": "changing", "topics": [{"name": "inherits", "partition_indexes": [0, 1, 2]}]}
        (row,) = dialect.ask(apis.OFFSET_FETCH, 7, asked).topics
        return {each.partition_index: each.committed_offset for each in row.partitions}

    assert positions() == {0: -1, 1: -1, 2: -1}
    with PlainConnection(proxy.bootstrap) as stock:
        wait_until("the coordinator has taken commits", lambda: commits(stock, offsets), 60)
    assert positions() == {0: 1, 1: 2, 2: 2}
    assert commits(dialect, {0: 5})
    assert positions() == {0: 5, 1: 2, 2: 2}


def test_resizing_through_a_dialect_connection_changes_the_count(
    proxy: ProxyProcess, dialect: DialectConnection
) -> None:
    """CreatePartitions asks for U, up or down, as on every connection."""
    create_managed(proxy.bootstrap, "dialect-resized")
    for count in (5, 4):
        asked = {"topics": [{"name": "dialect-resized", "count": count}], "timeout_ms": 60_000}
        assert dialect.ask(apis.CREATE_PARTITIONS, 2, asked).results[0].error_code == Code.NONE
        assert dialect.metadata("dialect-resized").undeleted_partition_count == count
