"""The options that an OrderedConsumer and an OrderedProducer take, for type checkers and for readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Any, Literal, TypedDict

from aiokafka.abc import AbstractTokenProvider
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor

from kordon.client.partitioning import Partitioner


class ConnectionOptions(TypedDict, total=False):
    """What both clients take; names, meanings and defaults are aiokafka's."""

    bootstrap_servers: str | list[str]
    """`host:port` of one or several Kordons; by default `localhost`."""
    client_id: str
    """The client's name in logs and quotas; by default a producer is numbered."""
    metadata_max_age_ms: int
    request_timeout_ms: int
    """The time for one request; of a producer also for room in its buffer."""
    retry_backoff_ms: int
    connections_max_idle_ms: int | None
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    ssl_context: SSLContext | None
    sasl_mechanism: Literal["PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_oauth_token_provider: AbstractTokenProvider | None


class ConsumerOptions(ConnectionOptions, total=False):
    """The options of AIOKafkaConsumer, except for `loop` and `api_version`, which are deprecated there."""

    group_id: str | None
    group_instance_id: str | None
    key_deserializer: Callable[[bytes], Any] | None
    value_deserializer: Callable[[bytes], Any] | None
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    fetch_min_bytes: int
    max_partition_fetch_bytes: int
    auto_offset_reset: Literal["earliest", "latest", "none"]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    check_crcs: bool
    partition_assignment_strategy: Sequence[type[AbstractPartitionAssignor]]
    max_poll_interval_ms: int
    rebalance_timeout_ms: int | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    consumer_timeout_ms: int
    max_poll_records: int | None
    exclude_internal_topics: bool
    isolation_level: Literal["read_uncommitted", "read_committed"]
    client_rack: str | None


class ProducerOptions(ConnectionOptions, total=False):
    """The options of AIOKafkaProducer, except for `loop` and `api_version`, which are deprecated there."""

    acks: Literal["all", -1]
    """Always `"all"`: other values are refused."""
    enable_idempotence: bool
    """Always true: false is refused."""
    key_serializer: Callable[[Any], bytes | None] | None
    value_serializer: Callable[[Any], bytes | None] | None
    compression_type: Literal["gzip", "snappy", "lz4", "zstd"] | None
    max_batch_size: int
    """The bytes of a batch; by default 16 KiB."""
    max_request_size: int
    """The bytes of the largest record; by default 1 MiB."""
    linger_ms: int
    """The time for which a batch waits for more records; by default 0."""
    partitioner: Partitioner | None
    """Chooses a virtual partition from the serialized key; by default murmur2, as Java's clients."""
    transactional_id: str | None
    """Begins transactions. Another producer that starts with the same one replaces this one."""
    transaction_timeout_ms: int
    """After which a transaction is aborted that has not ended; by default a minute."""
