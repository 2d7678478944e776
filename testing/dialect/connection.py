"""A plain connection that speaks the dialect, for tests that say exactly what is sent."""

from __future__ import annotations

from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.dialect import VERSION
from kordon.testing.plain_connection import PlainConnection

API_VERSIONS: Final = 3
METADATA: Final = 9
PRODUCE: Final = 9
FETCH: Final = 12
"""The flexible versions that the SDK uses."""


class DialectConnection(PlainConnection):
    """Says at once that it speaks the dialect.

    Args:
        bootstrap: "host:port" of a proxy, or of a broker, which takes no notice.
    """

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        asked = {"client_software_name": "test", "client_software_version": "1", "kordon_client": VERSION}
        try:
            self.offered: Any = self.ask(apis.API_VERSIONS, API_VERSIONS, asked)
        except BaseException:
            self.close()
            raise
        """The answer to ApiVersions."""

    @property
    def features(self) -> dict[str, range]:
        """By name, the versions of the features that the other side has."""
        return {row.name: range(row.min_version, row.max_version + 1) for row in self.offered.supported_features}

    @property
    def api_keys(self) -> set[int]:
        return {row.api_key for row in self.offered.api_keys}

    def metadata(self, topic: str) -> Any:
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        (row,) = self.ask(apis.METADATA, METADATA, asked).topics
        return row

    def produce(self, topic: str, partition: int, records: bytes, count: int = -1, layout_epoch: int = -1) -> Any:
        """Writes a batch with acks=all; returns what became of it.

        Args:
            count: undeleted_partition_count; -1: it is not said.
            layout_epoch: Of the layout that has this count; -1: it is not said.
        """
        row = {
            "name": topic,
            "partition_data": [{"index": partition, "records": records}],
            "undeleted_partition_count": count,
            "layout_epoch": layout_epoch,
        }
        fields = {"acks": -1, "timeout_ms": 10_000, "topic_data": [row]}
        (answer,) = self.ask(apis.PRODUCE, PRODUCE, fields).responses
        return answer.partition_responses[0]

    def fetch(self, topic: str, offsets: dict[int, int], count: int = -1, **fields: Any) -> dict[int, Any]:
        """Reads once; returns by partition what was told.

        Args:
            offsets: By physical partition, where to read.
            count: undeleted_partition_count; -1: it is not said.
            fields: Others of the request, such as `group_id`; `positions` is of the topic.
        """
        partitions = [
            {"partition": q, "fetch_offset": offset, "partition_max_bytes": 1 << 20} for q, offset in offsets.items()
        ]
        topic_fields = {"topic": topic, "partitions": partitions, "undeleted_partition_count": count}
        topic_fields["positions"] = fields.pop("positions", [])
        asked = {"max_wait_ms": 500, "min_bytes": 1, "topics": [topic_fields], **fields}
        answer = self.ask(apis.FETCH, FETCH, asked)
        return {row.partition_index: row for each in answer.responses for row in each.partitions}

    def leader_epochs(self, topic: str, *partitions: int) -> Any:
        """Returns what PartitionLeaderEpochsForPartitions says of a topic, of all partitions if none are named."""
        asked = {"topics": [{"topic": topic, "partitions": list(partitions)}]}
        (row,) = self.ask(apis.PARTITION_LEADER_EPOCHS, 0, asked).topics
        return row
