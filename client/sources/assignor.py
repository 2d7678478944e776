"""Who of a group gets which source partitions: everybody the same number, and what he had as far as possible.

Every move costs a transaction's end and a reading of restart points, so nothing moves that need not. On the wire it is
the protocol `range`, which all clients know, so stock members can share a group with a SourceProducer. If one of them
leads the group, partitions are shared out by its own rule.

What members tell one another is the userData of ConsumerProtocol: a version, and what they had in which generation. A
later version may only append to it.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar, Final, NamedTuple

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from kordon.codecs.errors import WireError
from kordon.codecs.primitives import INT32
from kordon.codecs.schema import array, field, message

# pyright: reportIncompatibleMethodOverride=false
# aiokafka's methods are class methods; it calls them on what it was given, which here has a memory.

_log = logging.getLogger(__name__)

USER_DATA_VERSION: Final = 0
_VERSION: Final = struct.Struct(">h")
_USER_DATA: Final = message(
    "KordonSourceUserData", field("generation", INT32, "0+"), field("partitions", array(INT32), "0+"), versions="0"
)


class Had(NamedTuple):
    """What a member had before."""

    generation: int = -1
    partitions: frozenset[int] = frozenset()


def share_out(count: int, members: Mapping[str, Had]) -> dict[str, list[int]]:
    """Shares partitions out evenly; members keep what they had, as far as that is fair.

    Args:
        count: The number of partitions.
        members: All of them, with what they had.
    """
    owner: dict[int, tuple[int, str]] = {}
    for member, had in sorted(members.items()):
        for partition in had.partitions:
            if partition in range(count):
                owner[partition] = max(owner.get(partition, (-1, "")), (had.generation, member))
    kept: dict[str, list[int]] = {member: [] for member in members}
    for partition, (_, member) in sorted(owner.items()):
        kept[member].append(partition)
    least, longer = divmod(count, len(members))
    favoured = sorted(members, key=lambda member: (-len(kept[member]), member))[:longer]
    shares = {member: kept[member][: least + (member in favoured)] for member in members}
    given = {partition for share in shares.values() for partition in share}
    rest = iter([partition for partition in range(count) if partition not in given])
    for member in sorted(members):
        while len(shares[member]) < least + (member in favoured):
            shares[member].append(next(rest))
    return {member: sorted(share) for member, share in shares.items()}


def user_data(had: Had) -> bytes:
    """Writes what a member had, as members tell it to one another."""
    body = {"generation": had.generation, "partitions": sorted(had.partitions)}
    return _VERSION.pack(USER_DATA_VERSION) + _USER_DATA.build(USER_DATA_VERSION, body)


def told(data: bytes) -> Had:
    """Reads what a member had out of its userData; a stock member tells nothing, and so does junk."""
    if not data:
        return Had()
    try:
        read, _ = _USER_DATA.at(USER_DATA_VERSION).parse(data[_VERSION.size :])  # a later version appends
    except WireError:
        _log.warning("A member's userData cannot be read: %r", data[:64])
        return Had()
    return Had(read.generation, frozenset(read.partitions))


class SourceAssignor(AbstractPartitionAssignor):
    """Shares out source partitions, for one member.

    Args:
        topic: The source topic.
    """

    name: ClassVar[str] = "range"

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.had = Had()

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Shares out the source topic's partitions among those who have subscribed to it."""
        known: Collection[int] = cluster.partitions_for_topic(self._topic) or ()
        mine = {
            member: told(each.user_data or b"") for member, each in members.items() if self._topic in each.subscription
        }
        shares = share_out(len(known), mine) if mine else {}
        return {
            member: ConsumerProtocolMemberAssignment(
                0, [(self._topic, shares[member])] if shares.get(member) else [], b""
            )
            for member in members
        }

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Returns what the member tells its group when it joins."""
        return ConsumerProtocolMemberMetadata(0, sorted(topics), user_data(self.had))

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """The member's coordinator keeps it, with the generation."""
