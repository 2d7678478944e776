"""PartitionLeaderEpochsForPartitions, api key 16385: KIP-253's, "Protocol" 5; only Kordon's dialect has it."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import PartitionLeaderEpochsForPartitionsRequest, PartitionLeaderEpochsForPartitionsResponse
from kordon.codecs.dialect import PARTITION_LEADER_EPOCHS_FOR_PARTITIONS
from kordon.codecs.primitives import INT16, INT32, INT64, TOPIC_NAME
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like the proposal's.
# fmt: off

# No partitions ask for all of the topic.
REQUEST: Final[Message[PartitionLeaderEpochsForPartitionsRequest]] = message(
    "PartitionLeaderEpochsForPartitionsRequest",
    field("topics", array(struct(
        field("topic", TOPIC_NAME, "0+"),
        field("partitions", array(INT32), "0+"),
    )), "0+"),
    key=PARTITION_LEADER_EPOCHS_FOR_PARTITIONS, versions="0", flexible="0+",
)

# The tagged fields are not the proposal's. Two epochs tell of one change only; the segments tell of all there have
# been, so that a client need not ask for each (OffsetForLeaderEpoch) and knows what to wait for by one rule.
RESPONSE: Final[Message[PartitionLeaderEpochsForPartitionsResponse]] = message(
    "PartitionLeaderEpochsForPartitionsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("topics", array(struct(
        field("topic", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition", INT32, "0+"),
            field("leader_epoch_after_creation", INT32, "0+", default=-1),
            field("leader_epoch_before_deletion", INT32, "0+", default=-1),
            field("segments", array(struct(
                field("layout_epoch", INT32, "0+"),
                field("start_offset", INT64, "0+"),
                field("end_offset", INT64, "0+", default=-1),
                field("predecessors", array(struct(
                    field("partition", INT32, "0+"),
                    field("layout_epoch", INT32, "0+"),
                )), "0+"),
            )), "0+", tag=16384, tagged="0+"),
        )), "0+"),
        field("layout_epoch", INT32, "0+", tag=16384, tagged="0+", default=-1),
        field("error_code", INT16, "0+", tag=16385, tagged="0+"),
    )), "0+"),
    key=PARTITION_LEADER_EPOCHS_FOR_PARTITIONS, versions="0", flexible="0+",
)
