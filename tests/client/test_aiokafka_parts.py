"""What the SDK relies upon of aiokafka beyond what it documents: fails when a new aiokafka has changed it.

The range of aiokafka in pyproject.toml is as wide as this list is known to hold.
"""

import inspect
import re
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
from aiokafka import errors
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer import AIOKafkaConsumer
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import BaseCoordinator, GroupCoordinator, NoGroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.producer import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder, MessageAccumulator, MessageBatch
from aiokafka.producer.producer import TransactionContext
from aiokafka.producer.sender import (
    EndTxnHandler,
    InitPIDHandler,
    Sender,
    SendProduceReqHandler,
    TxnOffsetCommitHandler,
)
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest

from kordon.client.errors import InvalidPartitionMetadataError, TransactionAbortableError

ATTRIBUTES: list[tuple[type, str]] = [
    (AIOKafkaConnection, "_versions _request_timeout _protocol _closed_fut"),
    (
        AIOKafkaClient,
        "_conns _topics _sync_task _client_id _request_timeout_ms _ssl_context _security_protocol _get_conn_lock "
        "_connections_max_idle_ms _sasl_mechanism _sasl_plain_username _sasl_plain_password _bootstrap_servers "
        "_sasl_kerberos_service_name _sasl_kerberos_domain_name _sasl_oauth_token_provider _md_synchronizer "
        "_on_connection_closed _wait_on_metadata _metadata_update",
    ),
    (ClusterMetadata, "_partitions _listeners"),
    (AIOKafkaProducer, "_metadata _message_accumulator _sender _txn_manager _partitioner _serialize"),
    (MessageBatch, "_builder _tp _ctime _linger_time future _msg_futures _drain_waiter _retry_count"),
    (
        MessageAccumulator,
        "_batches _pending_batches _batch_ttl _linger_time _closed _exception _compression_type _txn_manager "
        "_waiter_future _pop_batch _append_batch reenqueue flush_for_commit",
    ),
    (
        Sender,
        "_in_flight _muted_partitions _acks _request_timeout_ms _send_produce_req _do_add_partitions_to_txn "
        "_do_txn_commit _do_txn_offset_commit _find_coordinator _retry_backoff _txn_manager",
    ),
    (SendProduceReqHandler, "_batches _client _default_backoff _sender _can_retry handle_response create_request"),
    (
        TransactionManager,
        "_sequence_numbers _pid_and_epoch _pid_waiter _txn_partitions _pending_txn_partitions _pending_txn_offsets "
        "_transaction_waiter _txn_consumer_group state notify_task_waiter make_task_waiter partitions_to_add "
        "consumer_group_to_add consumer_group_added maybe_add_partition_to_txn needs_transaction_commit",
    ),
    (TransactionContext, "_producer"),
    (MetadataRequest, "_topics"),
    (BatchBuilder, "_relative_offset _buffer _build _set_producer_state"),
    (
        AIOKafkaConsumer,
        "_client _subscription _fetcher _coordinator _closed _wait_topics _group_id _group_instance_id _client_rack "
        "_heartbeat_interval_ms _session_timeout_ms _rebalance_timeout_ms _max_poll_interval_ms _retry_backoff_ms "
        "_auto_offset_reset _enable_auto_commit _auto_commit_interval_ms _exclude_internal_topics _isolation_level "
        "_key_deserializer _value_deserializer _fetch_min_bytes _fetch_max_bytes _fetch_max_wait_ms _check_crcs "
        "_max_partition_fetch_bytes _consumer_timeout",
    ),
    (Fetcher, "_client _default_reset_strategy _retry_backoff _wait_consume_future _notify _records"),
    (FetchRequest, "_max_wait_ms _min_bytes _max_bytes _isolation_level _topics _rack_id"),
    (SubscriptionState, "_fetch_count abort_waiters begin_reassignment fetch_context subscription"),
    (
        GroupCoordinator,
        "_group_instance_id _enable_auto_commit generation member_id coordinator_id commit_offsets "
        "fetch_committed_offsets start_commit_offsets_refresh_task request_rejoin reset_generation "
        "ensure_coordinator_known coordinator_dead check_errors _send_req _closing "
        "_coordination_task _group_subscription",
    ),
    (TxnOffsetCommitHandler, "_sender _offsets _group_id _default_backoff handle_error handle_response create_request"),
    (EndTxnHandler, "_sender _commit_result handle_response create_request"),
    (BaseCoordinator, "_cluster _subscription _client _get_metadata_snapshot"),
]

SIGNATURES: list[tuple[Callable[..., Any], str]] = [
    (AIOKafkaConnection.send, "self, request, expect_response"),
    (AIOKafkaClient._get_conn, "self, node_id, group, no_hint"),
    (AIOKafkaClient._metadata_update, "self, cluster_metadata, topics"),
    (MessageAccumulator._append_batch, "self, builder, tp"),
    (MessageAccumulator._pop_batch, "self, tp"),
    (MessageAccumulator.drain_by_nodes, "self, ignore_nodes, muted_partitions"),
    (MessageAccumulator.add_message, "self, tp, key, value, timeout, timestamp_ms, headers"),
    (MessageAccumulator.add_batch, "self, builder, tp, timeout"),
    (Fetcher.seek_to, "self, tp, offset"),
    (Fetcher.request_offset_reset, "self, tps, strategy"),
    (Fetcher._get_actions_per_node, "self, assignment"),
    (Fetcher._proc_fetch_request, "self, assignment, node_id, request"),
    (Fetcher._update_fetch_positions, "self, assignment, node_id, tps"),
    (BaseCoordinator._handle_metadata_update, "self, cluster"),
    (GroupCoordinator._do_rejoin_group, "self, subscription"),
    (GroupCoordinator._do_commit_offsets, "self, assignment, offsets"),
    (GroupCoordinator._on_join_prepare, "self, previous_assignment"),
    (GroupCoordinator._perform_assignment, "self, response"),
    (GroupCoordinator._on_join_complete, "self, generation, member_id, protocol, member_assignment_bytes"),
    (GroupCoordinator._maybe_do_last_autocommit, "self, assignment"),
    (NoGroupCoordinator.assign_all_partitions, "self, check_unknown"),
    (MessageBatch.__init__, "self, tp, builder, ttl, linger_time"),
    (MessageBatch.append, "self, key, value, timestamp_ms, _create_future, headers"),
    (MessageBatch.done, "self, base_offset, timestamp, log_start_offset, _record_metadata_class"),
    (MessageBatch.set_producer_state, "self, producer_id, producer_epoch, base_sequence"),
    (MessageBatch.failure, "self, exception"),
    (Sender._send_produce_req, "self, node_id, batches"),
    (Sender._do_add_partitions_to_txn, "self, tps"),
    (Sender._do_txn_commit, "self, commit_result"),
    (Sender._do_txn_offset_commit, "self, offsets, group_id"),
    (TxnOffsetCommitHandler.__init__, "self, sender, offsets, group_id"),
    (TxnOffsetCommitHandler.create_request, "self"),
    (TxnOffsetCommitHandler.handle_response, "self, resp"),
    (GroupCoordinator._push_error_to_user, "self, exc"),
    (TxnOffsetCommitHandler.create_request, "self"),
    (EndTxnHandler.create_request, "self"),
    (EndTxnHandler.handle_response, "self, resp"),
    (Sender._do_txn_offset_commit, "self, offsets, group_id"),
    (TransactionManager.maybe_add_partition_to_txn, "self, tp"),
    (TransactionManager.consumer_group_to_add, "self"),
    (InitPIDHandler.create_request, "self"),
    (InitPIDHandler.handle_response, "self, resp"),
    (TransactionManager.begin_transaction, "self"),
    (TransactionManager.committing_transaction, "self"),
    (TransactionManager.aborting_transaction, "self"),
    (TransactionManager.complete_transaction, "self"),
    (TransactionManager.error_transaction, "self, exc"),
    (TransactionManager.fatal_error, "self, exc"),
    (TransactionManager.partition_added, "self, tp"),
    (TransactionManager.consumer_group_added, "self, group_id"),
    (TransactionManager.offset_committed, "self, tp, offset, group_id"),
    (TransactionManager.is_empty_transaction, "self"),
    (SendProduceReqHandler._can_retry, "self, error, batch"),
    (SendProduceReqHandler.do, "self, node_id"),
]


@pytest.mark.parametrize(("owner", "names"), ATTRIBUTES, ids=lambda each: getattr(each, "__name__", ""))
def test_aiokafka_has_the_attributes_that_are_used(owner: type, names: str) -> None:
    """As attributes of the class, or set somewhere in its code."""
    source = inspect.getsource(owner)
    assert [name for name in names.split() if not re.search(rf"\b{name}\b", source)] == []


@pytest.mark.parametrize(("function", "names"), SIGNATURES, ids=lambda each: getattr(each, "__qualname__", ""))
def test_what_is_overridden_is_called_as_before(function: Callable[..., Any], names: str) -> None:
    """With these parameters, in this order."""
    assert list(inspect.signature(function).parameters) == names.split(", ")


def test_one_batch_of_a_partition_is_under_way_at_a_time() -> None:
    """Aiokafka mutes a partition until its batch is answered; the order of keys rests on that."""
    source = inspect.getsource(Sender)
    assert "self._muted_partitions.add(tp)" in source
    assert "muted_partitions=muted_partitions" in source


def test_partitions_wait_until_their_transaction_has_them() -> None:
    """Aiokafka sends nothing to a partition that is to be added, and does one thing with the coordinator at a time."""
    source = inspect.getsource(Sender._sender_routine)
    assert "muted_partitions | txn_manager.partitions_to_add()" in source
    assert "if txn_task is None or txn_task.done():" in source


def test_errors_are_found_by_their_codes() -> None:
    """Aiokafka's own table has them."""
    assert errors.kafka_errors[16384] is InvalidPartitionMetadataError
    assert errors.kafka_errors[120] is TransactionAbortableError


def test_the_range_of_aiokafka_is_the_one_that_is_known() -> None:
    """pyproject.toml is to be widened only after this file has passed with what is new."""
    assert version("aiokafka").startswith("0.14.")


def test_all_partitions_are_given_up_at_each_rebalance() -> None:
    """A CooperativeConsumer drains them all then, and looks at what it is assigned as at new partitions."""
    source = inspect.getsource(GroupCoordinator._on_join_prepare)
    assert "on_partitions_revoked(revoked)" in source
    assert "revoked = previous_assignment.tps" in source


def test_a_poll_without_a_wait_takes_records_and_positions_at_once() -> None:
    """Between records that are taken and their position nothing else runs, so a CooperativeConsumer knows both."""
    source = inspect.getsource(Fetcher.fetched_records)
    begin, end = source.index("res_or_error.getall(max_records)"), source.index("waiter = self._create_fetch_waiter")
    taken = source[begin:end]
    assert "await" not in taken
