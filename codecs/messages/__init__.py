"""One module per api key, each with the tables REQUEST and RESPONSE; `request` and `response` find them.

The tables cover all versions that brokers 2.4 to 4.4 speak, those that Kafka 4.0 dropped included. To add a field
or a version, edit the table: `tests/codecs` compares each row with Kafka's own schemas.

Source: `common/message/*.json` in kafka-clients 4.4.0, for versions older than it has, 3.9.2. What Kordon's dialect has
of its own (api keys and tags from 16384 up) is KIP-253's; docs/dialect.md sets both side by side.
"""

from __future__ import annotations

from typing import Any, Final

from kordon.codecs.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    consumer_group_position,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    partition_leader_epochs_for_partitions,
    produce,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    streams_group_topology_description_update,
    sync_group,
    txn_offset_commit,
)
from kordon.codecs.schema import Api, Message

_MODULES: Final = (
    produce,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    find_coordinator,
    join_group,
    heartbeat,
    leave_group,
    sync_group,
    describe_groups,
    list_groups,
    sasl_handshake,
    api_versions,
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    txn_offset_commit,
    describe_configs,
    alter_configs,
    alter_replica_log_dirs,
    describe_log_dirs,
    sasl_authenticate,
    create_acls,
    create_partitions,
    delete_acls,
    delete_groups,
    elect_leaders,
    incremental_alter_configs,
    alter_partition_reassignments,
    list_partition_reassignments,
    offset_delete,
    describe_quorum,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_producers,
    consumer_group_heartbeat,
    consumer_group_describe,
    describe_topic_partitions,
    share_group_heartbeat,
    share_fetch,
    share_acknowledge,
    streams_group_heartbeat,
    describe_transactions,
    list_transactions,
    list_config_resources,
    share_group_describe,
    streams_group_describe,
    describe_share_group_offsets,
    alter_share_group_offsets,
    delete_share_group_offsets,
    streams_group_topology_description_update,
    consumer_group_position,
    partition_leader_epochs_for_partitions,
)
REQUESTS: Final[dict[int, Message[Any]]] = {module.REQUEST.api_key: module.REQUEST for module in _MODULES}
"""All requests by api key."""
RESPONSES: Final[dict[int, Message[Any]]] = {module.RESPONSE.api_key: module.RESPONSE for module in _MODULES}
"""All responses by api key."""


def api(api_key: int) -> Api[Any, Any]:
    """Returns both tables of an api key that is known only at run time; a module's `API` tells more of its types.

    Raises:
        KeyError: Kordon never reads them.
    """
    return Api(REQUESTS[api_key], RESPONSES[api_key])


def request(api_key: int) -> Message[Any]:
    """Returns the table of the requests of an api key.

    Raises:
        KeyError: Kordon never reads them.
    """
    return REQUESTS[api_key]


def response(api_key: int) -> Message[Any]:
    """Returns the table of the responses to an api key.

    Raises:
        KeyError: Kordon never reads them.
    """
    return RESPONSES[api_key]
