"""What a script has left behind in the cluster, read directly with one neutral client.

The batches are read with the few bytes of the Fetch protocol written out here, so that neither Kordon's codecs nor the
client under test judge themselves.
"""

# confluent-kafka's own hints refuse what its documentation shows (None for "any", the names it exports).
# pyright: reportPrivateImportUsage=false, reportArgumentType=false, reportOptionalMemberAccess=false

from __future__ import annotations

import hashlib
import socket
import struct
from collections.abc import Collection, Iterator
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from kordon.testing.managed_clients import read_to_ends
from kordon.testing.steps import TIMESTAMP_MS, in_order

_FETCH, _FETCH_VERSION = 1, 4
_BATCH = struct.Struct(">qiibIhiqqqhii")
"""Kafka's record batch header, version 2: base offset, length, leader epoch, magic, CRC, attributes, last offset delta,
base and maximal timestamp, producer id and epoch, base sequence, count."""
_GZIP = b"\x1f\x8b"
_CODEC_MASK, _TRANSACTIONAL, _CONTROL = 0x07, 0x10, 0x20


def side_effects(bootstrap: str, prefix: str) -> dict[str, Any]:
    """Reads topics with their configs and logs, groups with their offsets, and ACLs, of one run.

    Args:
        bootstrap: Address of a cluster with a single broker.
        prefix: Begins the names of what the run made; taken out of the result.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = sorted(name for name in admin.list_topics(timeout=60).topics if name.startswith(prefix))
    found = {
        "topics": {name: _topic(admin, bootstrap, name) for name in topics},
        "groups": _groups(admin, prefix),
        "acls": _acls(admin, prefix),
    }
    anonymous: dict[str, Any] = _without(found, prefix)
    return anonymous


def _topic(admin: AdminClient, bootstrap: str, topic: str) -> dict[str, Any]:
    partitions = admin.list_topics(topic, 10).topics[topic].partitions
    (config,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    logs = _contents(bootstrap, topic, partitions)
    with _Fetcher(bootstrap) as fetcher:
        for number, log in logs.items():
            log["batches"] = _batches_of(fetcher, topic, number, log["start"], log["end"])
    return {
        "replicas": {number: len(partition.replicas) for number, partition in partitions.items()},
        "config": {e.name: e.value for e in config.result(60).values() if not e.is_default},
        "logs": logs,
    }


def _contents(bootstrap: str, topic: str, partitions: Collection[int]) -> dict[int, dict[str, Any]]:
    """Reads a whole topic; returns bounds of each partition and a digest of keys, values and headers in their order."""
    digests = {partition: hashlib.sha256() for partition in partitions}
    everything = {"bootstrap.servers": bootstrap, "isolation.level": "read_uncommitted"}
    for message in read_to_ends(everything, topic):
        record = (message.offset(), message.key(), message.value(), message.headers())
        digests[message.partition() or 0].update(repr(record).encode())
    asking = Consumer({"bootstrap.servers": bootstrap, "group.id": "reads-side-effects"})
    found: dict[int, dict[str, Any]] = {}
    for partition, digest in digests.items():
        start, end = asking.get_watermark_offsets(TopicPartition(topic, partition), 10)
        found[partition] = {"start": start, "end": end, "records": digest.hexdigest()[:16]}
    asking.close()
    return found


def _batches_of(fetcher: _Fetcher, topic: str, partition: int, start: int, end: int) -> list[dict[str, Any]]:
    """Reads the headers of a partition's batches.

    Where a client took the time from the clock, how it cut records into batches is chance as well: these are joined.
    """
    batches: list[dict[str, Any]] = []
    offset = start
    while offset < end:
        for next_offset, batch in fetcher.fetch(topic, partition, offset):
            offset = next_offset
            if batches and batch["bytes"] is None and _kind(batches[-1]) == _kind(batch):
                batches[-1]["count"] += batch["count"]
            else:
                batches.append(batch)
    return batches


def _kind(batch: dict[str, Any]) -> tuple[Any, ...]:
    return (batch["bytes"], batch["codec"], batch["transactional"], batch["control"], batch["producer"] is None)


def _groups(admin: AdminClient, prefix: str) -> dict[str, Any]:
    groups: dict[str, Any] = {}
    for group in admin.list_consumer_groups().result(60).valid:
        if group.group_id.startswith(prefix):
            ask = [ConsumerGroupTopicPartitions(group.group_id)]
            (offsets,) = admin.list_consumer_group_offsets(ask).values()
            committed = [(at.topic, at.partition, at.offset) for at in offsets.result(60).topic_partitions]
            groups[group.group_id] = {
                "type": group.type.name,
                "state": group.state.name,
                "offsets": in_order(committed),
            }
    return dict(sorted(groups.items()))


def _acls(admin: AdminClient, prefix: str) -> list[str]:
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return in_order(str(rule) for rule in admin.describe_acls(every).result(60) if rule.name.startswith(prefix))


def _without(value: Any, prefix: str) -> Any:
    if isinstance(value, dict):
        return {_without(name, prefix): _without(inner, prefix) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without(inner, prefix) for inner in value]
    return value.replace(prefix, "<run>") if isinstance(value, str) else value


class _Fetcher:
    """One connection that sends Fetch requests of version 4, which every broker from 2.4 to 4.4 takes."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 10)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> _Fetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def fetch(self, topic: str, partition: int, offset: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the batches from an offset on, each with the offset behind it."""
        name = topic.encode()
        body = struct.pack(">iiiibi", -1, 1000, 1, 1 << 26, 0, 1) + struct.pack(">h", len(name)) + name
        body += struct.pack(">iiqi", 1, partition, offset, 1 << 26)
        request = struct.pack(">hhih", _FETCH, _FETCH_VERSION, 0, -1) + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", self._stream.read(4))
        answer = self._stream.read(length)
        # correlation id, throttle time, one topic; its name; one partition
        at = 4 + 4 + 4 + 2 + len(name) + 4
        _, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
        if error:
            raise RuntimeError(f"reading {topic}-{partition} at {offset}: error {error}")
        at += 26 + max(aborted, 0) * 16 + 4
        yield from _batches(answer[at:])


def _batches(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    at = 0
    while at + _BATCH.size <= len(data):
        (base_offset, length, _, magic, _, attributes, last_delta, base_ms, max_ms, producer_id, epoch, sequence, count
         ) = _BATCH.unpack_from(data, at)  # fmt: skip
        records = data[at + _BATCH.size : at + 12 + length]
        if records[:2] == _GZIP:
            records = records[:4] + bytes(4) + records[8:]  # the time at which it was compressed
        known_times = (base_ms, max_ms) == (TIMESTAMP_MS, TIMESTAMP_MS)
        yield (
            base_offset + last_delta + 1,
            {
                "base_offset": base_offset,
                "magic": magic,
                "codec": attributes & _CODEC_MASK,
                "transactional": bool(attributes & _TRANSACTIONAL),
                "control": bool(attributes & _CONTROL),
                "count": count,
                "producer": None if producer_id < 0 else (epoch, sequence),
                "bytes": hashlib.sha256(records).hexdigest()[:16] if known_times else None,
            },
        )
        at += 12 + length
