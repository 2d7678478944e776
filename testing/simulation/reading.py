"""How a proxy of the simulation reads: the real chains, tenancies and limits over a model of logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kordon.proxy.handlers.settle import LocatedStream
from kordon.proxy.ordering import reading
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.gate import Gate
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.managed_topics import ManagedTopic
from kordon.testing.simulation.kafka import Batch, Record

if TYPE_CHECKING:
    from kordon.testing.simulation.proxies import Proxy

_BATCHES_READ: Final = (2, 9)
"""At least and at most, in one portion: so that growths and shrinks overtake consumers."""


class Portion(NamedTuple):
    """What a consumer gets."""

    records: list[Record]
    position: int
    """Virtual; where it goes on."""


Owner: TypeAlias = reading.Resident | reading.Hidden
OUT_OF_RANGE: Final = Portion([], -1)
"""An error: consumers begin anew where the first record is (auto.offset.reset=earliest)."""


class View:
    """What all who read under one layout derive from it, once for all of them.

    Args:
        layout: Which.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.tenancies = reading.tenancies(layout)
        self.gate = Gate.of(layout)
        self.ends = {segment.id.partition: segment.end for segment in layout.segments}
        """By physical partition, where its last segment ends."""
        self._owners: dict[int, dict[int, reading.Resident | reading.Hidden]] = {q: {} for q in self.tenancies}

    def owned(self, q: int, log: Iterable[tuple[int, Batch]]) -> Iterator[tuple[int, Batch, Owner]]:
        """Says whose batches of a physical partition are."""
        known, tenancy = self._owners[q], self.tenancies[q]
        for base, batch in log:
            found = known.get(base)
            if found is None:
                found = known[base] = tenancy.owner(batch.producer_id, base, is_control=False)
            yield base, batch, found


class Views:
    """The views of a cluster's layouts."""

    def __init__(self) -> None:
        self._by_id: dict[int, View] = {}

    def of(self, layout: Layout) -> View:
        """Returns the view of a layout; which proxies share, as they share the record that they have read."""
        found = self._by_id.get(id(layout))
        if found is None or found.layout is not layout:
            found = self._by_id[id(layout)] = View(layout)
        return found


class Reading:
    """All that one proxy reads.

    Args:
        proxy: Whose.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._cluster = proxy.cluster
        self.shown: dict[int, int] = {}
        """By physical partition, up to where somebody was shown what is there."""

    def read(self, v: int, position: int) -> Portion | None:
        """Returns what a consumer gets at an offset; None: nothing now, ask again."""
        topic = self._proxy.topic
        if topic is None:
            return self._pass(v, position)
        if not topic.layout.is_managed:
            return None
        place = LocatedStream(topic, topic.layout, v)
        if place.is_withheld:
            return None
        found = reading.reading_place(place.chain, position, place.floor)
        if found is None:
            return self._out_of_range(topic)
        log = self._cluster.partition(found.stay.partition)
        if not log.start <= found.position <= log.end:
            going_on = reading.position_beyond(found.stay, found.position, log.start, log.end)
            return self._out_of_range(topic) if going_on is None else Portion([], going_on + found.stay.delta)
        stay = found.stay
        end = self.end_of_open(topic, stay.partition) if stay.end is None else stay.end
        return self._portion(topic.layout, v, stay, found.position, end)

    def end_of_open(self, topic: ManagedTopic, q: int) -> int:
        """Returns up to where readers may see an open segment now (LIVE-LEASE, FROZEN-READS)."""
        limit = topic.limit(q, may_serve=self._proxy.may_serve)
        end = self._cluster.partition(q).end if limit is None else limit
        self.shown[q] = max(end, self.shown.get(q, 0))
        return end

    def ends(self, partitions: frozenset[int]) -> dict[int, int]:
        """Returns where logs end."""
        return {q: self._cluster.partition(q).end for q in partitions}

    def settle_layouts(self) -> bool:
        """Takes in all layouts there are (NO-FALSE-END); False: they cannot be had now."""
        return self._proxy.read_layouts_now()

    def _out_of_range(self, topic: ManagedTopic) -> Portion | None:
        layout = topic.layout
        return OUT_OF_RANGE if self.settle_layouts() and topic.layout is layout else None

    def _pass(self, v: int, position: int) -> Portion | None:
        """Lets a read of an ordinary topic go by."""
        if v >= self._cluster.n or not self._proxy.knows_layouts or not self._proxy.is_running:
            return None
        records: list[Record] = []
        for base, batch in self._cluster.partition(v).between(position, self._cluster.partition(v).end):
            records += batch.records
            position = base + len(batch.records)
            if len(records) > _BATCHES_READ[1]:
                break
        return Portion(records, position)

    def _portion(self, layout: Layout, v: int, stay: Stay, start: int, end: int) -> Portion:
        """Returns the next few batches of `v` in [start, end) of a log."""
        view = self._cluster.views.of(layout)
        records: list[Record] = []
        left = self._proxy.world.between(*_BATCHES_READ)
        tenancy, log = view.tenancies[stay.partition], self._cluster.partition(stay.partition).between(start, end)
        for base, batch, owner in view.owned(stay.partition, log):
            if isinstance(owner, reading.Resident):
                mine: Sequence[Record] = batch.records if owner.v == v else ()
            else:
                mine = self._share(v, owner, tenancy, base, batch.records)
            if mine:
                records += mine
                left -= 1
                if not left:
                    return Portion(records, base + len(batch.records) + stay.delta)
        return Portion(records, max(start, end) + stay.delta)

    def _share(
        self,
        v: int,
        owner: reading.Hidden,
        tenancy: reading.Tenancy,
        base: int,
        records: tuple[Record, ...],
    ) -> Sequence[Record]:
        """Returns what is one virtual partition's of a batch that has no single owner (ORIGIN-TAG)."""
        if owner is not reading.Hidden.DIALECT:
            return ()
        here = tenancy.at(base)
        shares = reading.share_out((each.key for each in records), here, self._cluster.v_count)
        return [record for record, share in zip(records, shares, strict=True) if share == v]
