"""Rows of partitions of a Metadata response without construct.

Property tests hold them against the table (`codecs/messages/metadata.py`).

Source: MetadataResponse.json: an error code, the partition, its leader and, from version 7 on, the leader's epoch begin
a row in every version; its replicas, those in sync and, from version 5 on, those offline follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, pack
from typing import Final

from kordon.codecs.bodies import MetadataResponsePartition
from kordon.codecs.messages.metadata import PARTITION
from kordon.codecs.primitives import uvarint

_OFFLINE: Final = 5
_EPOCHS: Final = 7
_FLEXIBLE: Final = 9
_NUMBER: Final = Struct(">i")
_INDEX_AT: Final = 2
_LEADER_AT: Final = 6
_EPOCH_AT: Final = 10
_REST_AT: Final = 14


def written(version: int, row: MetadataResponsePartition) -> bytes:
    """Writes a row as the table does, which writes those with tagged fields; raises BuildError."""
    if "_tagged" in row:
        return PARTITION.build(version, row)
    begin = pack(">hii", row.error_code, row.partition_index, row.leader_id)
    epoch = _NUMBER.pack(row.get("leader_epoch", -1)) if version >= _EPOCHS else b""
    offline = _nodes(version, row.get("offline_replicas", list[int]())) if version >= _OFFLINE else b""
    end = b"\0" if version >= _FLEXIBLE else b""
    return b"".join((begin, epoch, _nodes(version, row.replica_nodes), _nodes(version, row.isr_nodes), offline, end))


def _nodes(version: int, nodes: Sequence[int]) -> bytes:
    count = uvarint(len(nodes) + 1) if version >= _FLEXIBLE else _NUMBER.pack(len(nodes))
    return count + pack(f">{len(nodes)}i", *nodes)


def placed(version: int, row: bytes, partition: int, leader_epoch: int) -> bytes:
    """Returns the row of a partition that has the leader and the replicas of another one.

    Args:
        version: 0 to 13.
        row: Of the other one, as the version writes it.
        leader_epoch: Left out in versions that have none.
    """
    begin, index = row[:_INDEX_AT], _NUMBER.pack(partition)
    if version < _EPOCHS:
        return b"".join((begin, index, row[_LEADER_AT:]))
    epoch = _NUMBER.pack(leader_epoch)
    return b"".join((begin, index, row[_LEADER_AT:_EPOCH_AT], epoch, row[_REST_AT:]))
