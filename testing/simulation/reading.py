"""How a proxy of the simulation reads: the product's chains, tenancies, limits and control over a model of logs."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.journal import NO_JOURNAL
from kordon.proxy.ordering import reading
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.lookups import LATEST
from kordon.proxy.ordering.physical_reading import AnyTenancy, tenancy_of
from kordon.proxy.ordering.reading import Hidden, Resident, Tenancy, place_in, share_out, tenancies
from kordon.proxy.reads.read_control import ReadControl
from kordon.proxy.reads.read_decisions import ReadDecisions
from kordon.proxy.reads.worker_reads import ReadLimits
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import ManagedTopic
from kordon.testing.simulation.kafka import Batch, Record

if TYPE_CHECKING:
    from kordon.testing.simulation.proxies import Proxy

_Answer = TypeVar("_Answer")
_BATCHES_READ: Final = (2, 9)
"""At least and at most, in one portion: so that growths and shrinks overtake consumers."""


class Portion(NamedTuple):
    """What a consumer gets."""

    records: list[Record]
    position: int
    """Virtual; where it goes on."""


Owner: TypeAlias = Resident | Hidden
OUT_OF_RANGE: Final = Portion([], -1)
"""An error: consumers begin anew where the first record is (auto.offset.reset=earliest)."""


class View:
    """What all who read under one layout derive from it, once for all of them.

    Args:
        layout: Which.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.tenancies = tenancies(layout)
        self.ends = {segment.id.partition: segment.end for segment in layout.segments}
        """By physical partition, where its last segment ends."""
        self._logs: dict[int, AnyTenancy] = {}
        self._owners: dict[int, dict[int, Owner]] = {}
        """By `log_read_by`, and then by base offset."""

    def owned(self, log: int, batches: Iterable[tuple[int, Batch]]) -> Iterator[tuple[int, Batch, Owner]]:
        """Says whose batches of a log are."""
        if log not in self._logs:
            self._logs[log], self._owners[log] = tenancy_of(self.layout, self.tenancies, log), {}
        known, tenancy = self._owners[log], self._logs[log]
        for base, batch in batches:
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


class _Logs:
    """The logs of one proxy: what readers were shown of them; nothing of theirs is kept."""

    def __init__(self) -> None:
        self._shown: dict[int, int] = {}

    def show(self, partition: int, end: int) -> None:
        """Somebody is shown what stands below an offset."""
        self._shown[partition] = max(end, self._shown.get(partition, 0))

    def shown(self, topic: ManagedTopic, partitions: Iterable[int]) -> dict[int, int]:
        """Returns up to where somebody was shown physical partitions."""
        del topic
        return {q: self._shown[q] for q in partitions if q in self._shown}


class _Ends:
    """What leaders say to one proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def of(self, topic: str, partitions: Iterable[int], timestamp: int) -> dict[int, int]:
        """Asks where logs end."""
        assert (topic, timestamp) == (self._proxy.cluster.topic, LATEST)
        return await self._proxy.asked(lambda: {q: self._proxy.cluster.partition(q).end for q in partitions})


class Reading:
    """All that one proxy reads: to the product's control and gates, what `WorkerReads` is.

    Args:
        proxy: Whose.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._cluster = proxy.cluster
        self.topics = proxy.topics
        self.logs = _Logs()
        self.ends = _Ends(proxy)
        self.limits = ReadLimits(lambda: proxy.may_serve, self._read_layouts)
        self.decisions = ReadDecisions(NO_JOURNAL)
        self.tasks = Tasks()
        self.control = ReadControl(cast("Any", self))

    def read(self, v: int, position: int) -> Portion | None:
        """Returns what a consumer gets at an offset; None: nothing now, ask again."""
        topic = self._proxy.topic
        if topic is None:
            return self._pass(v, position)
        layout = topic.layout
        if not layout.is_managed or layout.withholds(v):
            return None
        place = place_in(layout, v, position)
        if place is None:
            return self._out_of_range(topic)
        stay, log = place.stay, self._cluster.partition(place.stay.partition)
        if not log.start <= place.position <= log.end:
            going_on = reading.position_beyond(stay, place.position, log.start, log.end)
            return self._out_of_range(topic) if going_on is None else Portion([], going_on + stay.delta)
        return self._portion(layout, v, stay, place.position, self.shown_until(topic, stay))

    def shown_until(self, topic: ManagedTopic, stay: Stay) -> int:
        """Returns up to where readers see a stay now, and takes note that they do."""
        limit, q = self.limits.in_stay(topic, stay), stay.partition
        end = self._cluster.partition(q).end if limit is None else limit
        if stay.end is None:
            self.logs.show(q, end)
        return end

    async def _read_layouts(self) -> None:
        if not self._proxy.read_layouts_now():
            raise UpstreamUnavailable("they do not come")

    def _out_of_range(self, topic: ManagedTopic) -> Portion | None:
        judged = at_once(self.limits.judge_beyond(topic, topic.layout))
        return OUT_OF_RANGE if judged == Code.OFFSET_OUT_OF_RANGE else None

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
            if isinstance(owner, Resident):
                mine: Sequence[Record] = batch.records if owner.v == v else ()
            else:
                mine = self._share(v, owner, tenancy, base, batch.records)
            if mine:
                records += mine
                left -= 1
                if not left:
                    return Portion(records, base + len(batch.records) + stay.delta)
        return Portion(records, reading.past_loss(stay, max(start, end)) + stay.delta)

    def _share(
        self,
        v: int,
        owner: Hidden,
        tenancy: Tenancy,
        base: int,
        records: tuple[Record, ...],
    ) -> Sequence[Record]:
        """Returns what is one virtual partition's of a batch that has no single owner (ORIGIN-TAG)."""
        if owner is not Hidden.DIALECT:
            return ()
        here = tenancy.at(base)
        shares = share_out((each.key for each in records), here, self._cluster.v_count)
        return [record for record, share in zip(records, shares, strict=True) if share == v]


def at_once(work: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Returns what comes of work that waits for nothing here."""
    try:
        work.send(None)
    except StopIteration as end:
        found: _Answer = end.value
        return found
    raise AssertionError("it waits")
