"""The assignor `kordon-ordered`: who of a group gets which partitions (KIP-253 "Proposed Changes" 6).

Retired partitions get no new records. So that each member has its share of those that do, the two kinds are shared out
separately, and neighbours stay together:

    undeleted 0 1 2 3 4 5    retired 6 7        a: 0 1 | 6     b: 2 3 | 7     c: 4 5

What members tell one another travels in the userData of ConsumerProtocol, which is not flexible: a version, and the
layout epochs that are known. A later version may only append to it.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from kordon.client.layouts import Layouts
from kordon.codecs.errors import WireError
from kordon.codecs.primitives import INT32, STRING
from kordon.codecs.schema import array, field, message
from kordon.codecs.schema import struct as rows

# pyright: reportIncompatibleMethodOverride=false
# aiokafka's methods are class methods; it calls them on what it was given, which here knows the layouts.

USER_DATA_VERSION: Final = 0
"""Of what members of this release tell one another."""
_VERSION: Final = struct.Struct(">h")
_USER_DATA: Final = message(
    "KordonOrderedUserData",
    field("layouts", array(rows(field("topic", STRING, "0+"), field("layout_epoch", INT32, "0+"))), "0+"),
    versions="0",
)

_log = logging.getLogger(__name__)


def user_data(epochs: Mapping[str, int]) -> bytes:
    """Writes the layout epochs by topic as members tell them to one another."""
    layouts = [{"topic": topic, "layout_epoch": epoch} for topic, epoch in sorted(epochs.items())]
    return _VERSION.pack(USER_DATA_VERSION) + _USER_DATA.build(USER_DATA_VERSION, {"layouts": layouts})


def told_epochs(data: bytes) -> dict[str, int]:
    """Reads the layout epochs by topic out of userData; what cannot be read tells nothing."""
    try:
        told, _ = _USER_DATA.at(USER_DATA_VERSION).parse(data[_VERSION.size :])  # a later version appends
    except WireError:
        _log.warning("A member's userData cannot be read: %r", data[:64])
        return {}
    return {row.topic: row.layout_epoch for row in told.layouts}


class OrderedAssignor(AbstractPartitionAssignor):
    """Shares out undeleted and retired partitions separately, evenly, neighbours together.

    Args:
        layouts: The layouts of managed topics. All partitions of other topics are undeleted.
    """

    name: ClassVar[str] = "kordon-ordered"

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts

    def assign(  # aiokafka's is a class method, and is called on what it was given
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Shares out the partitions of all topics that somebody has subscribed to."""
        mine: dict[str, dict[str, list[int]]] = {member: {} for member in members}
        loads = (dict.fromkeys(members, 0), dict.fromkeys(members, 0))
        for topic in sorted({topic for each in members.values() for topic in each.subscription}):
            subscribers = sorted(member for member, each in members.items() if topic in each.subscription)
            for kind, load in zip(self._kinds(topic, cluster.partitions_for_topic(topic) or ()), loads, strict=True):
                for member, share in _shares(kind, subscribers, load).items():
                    mine[member].setdefault(topic, []).extend(share)
        told = user_data(self._epochs(topic for each in members.values() for topic in each.subscription))
        return {
            member: ConsumerProtocolMemberAssignment(0, sorted(topics.items()), told) for member, topics in mine.items()
        }

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Returns what the member tells its group when it joins."""
        wanted = sorted(topics)
        return ConsumerProtocolMemberMetadata(0, wanted, user_data(self._epochs(wanted)))

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Nothing is kept from assignment to assignment."""

    def _kinds(self, topic: str, partitions: Iterable[int]) -> tuple[list[int], list[int]]:
        """Returns the undeleted partitions of a topic, and the retired ones."""
        layout = self._layouts.get(topic)
        every = sorted(partitions)
        if layout is None:
            return every, []
        u = layout.undeleted_partition_count
        return [q for q in every if q < u], [q for q in every if q >= u]

    def _epochs(self, topics: Iterable[str]) -> dict[str, int]:
        known = {topic: self._layouts.get(topic) for topic in topics}
        return {topic: layout.layout_epoch for topic, layout in known.items() if layout is not None}


def _shares(partitions: Sequence[int], members: Sequence[str], load: dict[str, int]) -> dict[str, Sequence[int]]:
    """Cuts partitions into runs; those with the least so far get the longer ones."""
    size, longer = divmod(len(partitions), len(members))
    favoured = set(sorted(members, key=lambda member: (load[member], member))[:longer])
    shares: dict[str, Sequence[int]] = {}
    begin = 0
    for member in members:
        end = begin + size + (member in favoured)
        shares[member] = partitions[begin:end]
        load[member] += end - begin
        begin = end
    return {member: share for member, share in shares.items() if share}
