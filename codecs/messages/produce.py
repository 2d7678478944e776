"""Produce, api key 0."""

from __future__ import annotations

from kordon.codecs.primitives import INT16, INT32, INT64, RECORDS, STRING, TOPIC_ID, TOPIC_NAME, TRANSACTIONAL_ID
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Tags from 16384 up are fields of Kordon's dialect (KIP-253); who does not know them skips them.
# Versions 0-2 were removed in Apache Kafka 4.0.version 3 is the new baseline. Due to a bug in librdkafka, these
# versions have to be included in the api versions response (see KAFKA-18659), but are rejected otherwise. See
# `ApiKeys.PRODUCE_API_VERSIONS_RESPONSE_MIN_VERSION` for more details.
# Version 1 and 2 are the same as version 0.
# Version 3 adds the transactional ID, which is used for authorization when attempting to write transactional
# data. Version 3 also adds support for Kafka Message Format v2.
# Version 4 is the same as version 3, but the requester must be prepared to handle a KAFKA_STORAGE_ERROR.
# Version 5 and 6 are the same as version 3.
# Starting in version 7, records can be produced using ZStandard compression. See KIP-110.
# Starting in Version 8, response has RecordErrors and ErrorMessage. See KIP-467.
# Version 9 enables flexible versions.
# Version 10 is the same as version 9 (KIP-951).
# Version 11 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
# Version 12 is the same as version 11 (KIP-890). Note when produce requests are used in transaction, if
# transaction V2 (KIP_890 part 2) is enabled, the produce request will also include the function for a
# AddPartitionsToTxn call. If V2 is disabled, the client can't use produce request version higher than 11 within a
# transaction.
# Version 13 replaces topic names with topic IDs (KIP-516). May return UNKNOWN_TOPIC_ID error code.
REQUEST = message(
    "ProduceRequest",
    field("transactional_id", TRANSACTIONAL_ID, "3+", nullable="3+", default=None),
    field("acks", INT16, "0+"),
    field("timeout_ms", INT32, "0+"),
    field("topic_data", array(struct(
        field("name", TOPIC_NAME, "0-12"),
        field("topic_id", TOPIC_ID, "13+"),
        field("partition_data", array(struct(
            field("index", INT32, "0+"),
            field("records", RECORDS, "0+", nullable="0+"),
        )), "0+"),
        field("undeleted_partition_count", INT32, "9+", tag=16384, tagged="9+", default=-1),
        field("layout_epoch", INT32, "9+", tag=16385, tagged="9+", default=-1),
    )), "0+"),
    key=0, versions="0-13", flexible="9+",
)

# Versions 0-2 were removed in Apache Kafka 4.0.version 3 is the new baseline. Due to a bug in librdkafka, these
# versions have to be included in the api versions response (see KAFKA-18659), but are rejected otherwise. See
# `ApiKeys.PRODUCE_API_VERSIONS_RESPONSE_MIN_VERSION` for more details.
# Version 1 added the throttle time.
# Version 2 added the log append time.
# Version 3 is the same as version 2.
# Version 4 added KAFKA_STORAGE_ERROR as a possible error code.
# Version 5 added LogStartOffset to filter out spurious OutOfOrderSequenceExceptions on the client.
# Version 8 added RecordErrors and ErrorMessage to include information about records that cause the whole batch to
# be dropped. See KIP-467 for details.
# Version 9 enables flexible versions.
# Version 10 adds 'CurrentLeader' and 'NodeEndpoints' as tagged fields (KIP-951)
# Version 11 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
# Version 12 is the same as version 10 (KIP-890).
# Version 13 replaces topic names with topic IDs (KIP-516). May return UNKNOWN_TOPIC_ID error code.
RESPONSE = message(
    "ProduceResponse",
    field("responses", array(struct(
        field("name", TOPIC_NAME, "0-12"),
        field("topic_id", TOPIC_ID, "13+"),
        field("partition_responses", array(struct(
            field("index", INT32, "0+"),
            field("error_code", INT16, "0+"),
            field("base_offset", INT64, "0+"),
            field("log_append_time_ms", INT64, "2+", default=-1),
            field("log_start_offset", INT64, "5+", default=-1),
            field("record_errors", array(struct(
                field("batch_index", INT32, "8+"),
                field("batch_index_error_message", STRING, "8+", nullable="8+", default=None),
            )), "8+"),
            field("error_message", STRING, "8+", nullable="8+", default=None),
            field("current_leader", struct(
                field("leader_id", INT32, "10+", default=-1),
                field("leader_epoch", INT32, "10+", default=-1),
            ), "10+", tag=0, tagged="10+"),
        )), "0+"),
    )), "0+"),
    field("throttle_time_ms", INT32, "1+"),
    field("node_endpoints", array(struct(
        field("node_id", INT32, "10+"),
        field("host", STRING, "10+"),
        field("port", INT32, "10+"),
        field("rack", STRING, "10+", nullable="10+", default=None),
    )), "10+", tag=0, tagged="10+"),
    key=0, versions="0-13", flexible="9+",
)
