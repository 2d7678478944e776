"""The options of AIOKafkaConsumer that an OrderedConsumer takes, for type checkers and for people who look for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Any, Literal, TypedDict

from aiokafka.abc import AbstractTokenProvider
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor


class ConsumerOptions(TypedDict, total=False):
    """As AIOKafkaConsumer has them, with its defaults; its `loop` and `api_version` are deprecated and left out."""

    bootstrap_servers: str | list[str]
    client_id: str
    group_id: str | None
    group_instance_id: str | None
    key_deserializer: Callable[[bytes], Any] | None
    value_deserializer: Callable[[bytes], Any] | None
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    fetch_min_bytes: int
    max_partition_fetch_bytes: int
    request_timeout_ms: int
    retry_backoff_ms: int
    auto_offset_reset: Literal["earliest", "latest", "none"]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    check_crcs: bool
    metadata_max_age_ms: int
    partition_assignment_strategy: Sequence[type[AbstractPartitionAssignor]]
    max_poll_interval_ms: int
    rebalance_timeout_ms: int | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    consumer_timeout_ms: int
    max_poll_records: int | None
    ssl_context: SSLContext | None
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    exclude_internal_topics: bool
    connections_max_idle_ms: int | None
    isolation_level: Literal["read_uncommitted", "read_committed"]
    sasl_mechanism: Literal["PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    sasl_plain_password: str | None
    sasl_plain_username: str | None
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_oauth_token_provider: AbstractTokenProvider | None
    client_rack: str | None
