"""TxnOffsetCommit, api key 28."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kordon.codecs.primitives import GROUP_ID, INT16, INT32, INT64, STRING, TOPIC_ID, TOPIC_NAME, TRANSACTIONAL_ID
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# From version 5 on it also adds the group to the transaction (KIP-890); version 6 names topics by their ids (KIP-1319).
REQUEST: Final[Message[TxnOffsetCommitRequest]] = message(
    "TxnOffsetCommitRequest",
    field("transactional_id", TRANSACTIONAL_ID, "0+"),
    field("group_id", GROUP_ID, "0+"),
    field("producer_id", INT64, "0+"),
    field("producer_epoch", INT16, "0+"),
    field("generation_id_or_member_epoch", INT32, "3+", default=-1),
    field("member_id", STRING, "3+"),
    field("group_instance_id", STRING, "3+", nullable="3+", default=None),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0-5"),
        field("topic_id", TOPIC_ID, "6+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("committed_offset", INT64, "0+"),
            field("committed_leader_epoch", INT32, "2+", default=-1),
            field("committed_metadata", STRING, "0+", nullable="0+"),
        )), "0+"),
    )), "0+"),
    key=28, versions="0-6", flexible="3+",
)

# Version 6 names topics by their ids alone, and has the errors of OffsetCommit 9 and 10 (KIP-1319).
RESPONSE: Final[Message[TxnOffsetCommitResponse]] = message(
    "TxnOffsetCommitResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0-5"),
        field("topic_id", TOPIC_ID, "6+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("error_code", INT16, "0+"),
        )), "0+"),
    )), "0+"),
    key=28, versions="0-6", flexible="3+",
)
