"""Somebody who wants the topic of a simulated cluster managed, and to have so many partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from kordon.proxy.kafka.batches import NewRecord
from kordon.proxy.ordering.records import TopicRecord, WishRecord, dump
from kordon.proxy.ordering.wishes import Manage, Resize, Wish
from kordon.testing.simulation.clients import DELIVERY_SECONDS, METADATA_SECONDS

if TYPE_CHECKING:
    from kordon.testing.simulation.cluster import Cluster

_LOOK_SECONDS: Final = 0.2
TRANSITION_SECONDS: Final = METADATA_SECONDS * 1.2 + DELIVERY_SECONDS + 1.0
"""How long clients may have the old view."""


class Operator:
    """Wishes, whenever something is not as it is to be and no wish stands, whatever has become of the last one.

    Args:
        cluster: Whose topic it is.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._count = 0
        cluster.world.each(_LOOK_SECONDS, self._look)

    def _look(self) -> bool:
        wish = self._wanted()
        if wish is not None and self._cluster.layouts.newest.get(f"wish/{self._count}") is None:
            self._count += 1
            self._cluster.layouts.append([NewRecord(f"wish/{self._count}", dump(WishRecord(wish)))])
        return not self._cluster.over

    def _wanted(self) -> Wish | None:
        cluster = self._cluster
        record = cluster.layouts.newest.get(f"topic/{cluster.topic}")
        if isinstance(record, TopicRecord):
            is_so = record.takeover is not None or record.layout.u == cluster.wanted
            return None if is_so else Resize(cluster.topic, cluster.wanted)
        if not cluster.is_wished:
            return None
        kind: Literal["manage", "manage delivering"] = "manage delivering" if cluster.delivers else "manage"
        return Manage(cluster.topic, cluster.v_count, transition_ms=round(TRANSITION_SECONDS * 1000), kind=kind)
