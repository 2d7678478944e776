"""What must hold in a simulated cluster: nothing is lost, doubled or out of order, fences are short (SHORT-FENCE)."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from kordon.proxy.controller.controller_role import ControllerRole
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.controller import FENCE_SECONDS
from kordon.proxy.ordering.identity import Owner, owner_of, untag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.reading import first_readable
from kordon.proxy.ordering.records import FenceRecord, Value
from kordon.proxy.ordering.streams import physical_stream
from kordon.testing.order.findings import Account, Findings
from kordon.testing.order.handovers import Handovers
from kordon.testing.simulation.clients import SOMEWHERE
from kordon.testing.simulation.groups import Delivery, DialectGroup
from kordon.testing.simulation.kafka import Batch, Partition, Record

if TYPE_CHECKING:
    from kordon.testing.simulation.cluster import Cluster
    from kordon.testing.simulation.proxies import Proxy

_LONGEST_FENCE_SECONDS: Final = 2 * FENCE_SECONDS + 4.0
"""To be acknowledged and to be cut, and what chance adds to the ways of messages."""


class FenceWatch:
    """Sees that no fence holds writes for long while its controller is well (SHORT-FENCE).

    Args:
        cluster: Whose fences.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._standing: tuple[float, Proxy, ControllerRole | None] | None = None
        cluster.world.each(1.0, self._look)

    def on_commit(self, writer: Proxy, records: Iterable[tuple[str, Value | None]]) -> None:
        """A controller has written."""
        for key, value in records:
            if key.startswith("fence/"):
                self._look()
                is_fence = isinstance(value, FenceRecord) and value.sealed
                self._standing = (self._cluster.world.now, writer, writer.leading) if is_fence else None

    def _look(self) -> bool:
        if self._standing is not None:
            began, writer, role = self._standing
            lasts = self._cluster.world.now - began
            is_well = writer.alive and writer.leading is role and writer.disturbed_until < began
            if is_well and lasts > _LONGEST_FENCE_SECONDS:
                self._cluster.fail(f"a fence has stood for {lasts:.1f} s, and {writer.name} lets it (SHORT-FENCE)")
                self._standing = None
        return not self._cluster.over


def check(cluster: Cluster) -> None:
    """Holds what happened against the promises."""
    acknowledged: dict[int, list[Record]] = defaultdict(list)
    for producer in cluster.all_producers:
        for v, records in producer.acknowledged.items():
            acknowledged[SOMEWHERE if cluster.delivers else v] += records  # another one may be given it
    layout = cluster.layout
    logs = logs_of(cluster, layout)
    if missing := set(acknowledged[SOMEWHERE]).difference(*logs):
        cluster.fail(f"lost: {sorted(missing)[:5]}")
    if cluster.delivers:
        promised = set(acknowledged[SOMEWHERE])
        acknowledged |= {v: [each for each in log if each in promised] for v, log in enumerate(logs)}
    for v, log in enumerate(logs):
        _check_log(cluster, f"log of {v}", log, acknowledged[v])
        _check_log(cluster, f"consumer of {v}", cluster.consumers[v].got, acknowledged[v])
    everything = {record for records in acknowledged.values() for record in records}
    _check_order(cluster, "the group", [each for each in cluster.delivered if each in everything])
    if cluster.dialect_group is not None:
        check_dialect_group(cluster, cluster.dialect_group, everything)


def check_dialect_group(cluster: Cluster, group: DialectGroup, acknowledged: set[Record]) -> None:
    """Order per key over the group, nothing skipped, and callbacks in their order.

    First deliveries come in order whatever happens. So does all that is delivered in one generation, also what was
    delivered in earlier ones; but for what a member has gone back to by itself.
    """
    if not group.is_drained:
        cluster.fail("the dialect group does not come to the end")
    delivered = group.delivered
    first = dict.fromkeys(record for each in delivered for _, record in each.records if record in acknowledged)
    _check_order(cluster, "the dialect group", first)
    if missing := acknowledged.difference(first):
        cluster.fail(f"the dialect group: skipped: {sorted(missing)[:5]}")
    by_generation: dict[tuple[int, int], list[Record]] = defaultdict(list)
    for each in delivered:
        again = group.rewound.get((each.era, each.generation, each.partition), 0)
        by_generation[each.era, each.generation] += [
            record for offset, record in each.records if offset >= again and record in acknowledged
        ]
    for (_, generation), records in by_generation.items():
        _check_order(cluster, f"generation {generation} of the dialect group", records)
    findings = Findings()
    handovers = Handovers("dialect", Account())
    for member, event in group.story:
        for read in event.events() if isinstance(event, Delivery) else (event,):
            handovers.take(member, read)
    handovers.finish(findings)
    for (anomaly, _), examples in findings.examples.items():
        cluster.fail(f"the dialect group: {anomaly}: {examples[0]}")


def check_rewind(cluster: Cluster) -> None:
    """Reads all once more from the beginning, when retention has taken the heads of some logs (HOLE-PASSED)."""
    layout = cluster.layout
    for q in range(layout.n, layout.v_count):
        log = cluster.partition(q)
        if log.batches:
            log.start = cluster.world.random.choice(log.batches)[0]
    log_starts = {q: cluster.partition(q).start for q in range(layout.v_count)}
    proxy = ([each for each in cluster.proxies if each.may_serve] or cluster.proxies)[0]
    for v, (chain, left) in enumerate(zip(layout.chains, logs_of(cluster, layout), strict=True)):
        got, position = list[Record](), first_readable(chain, 0, log_starts.__getitem__)
        while (portion := proxy.read(v, position)) is not None and portion.position > position:
            got += portion.records
            position = portion.position
        if got != left:
            cluster.fail(f"who begins {v} anew gets {len(got)} of {len(left)} records")


_Batches: TypeAlias = list[tuple[int, Batch]]


def logs_of(cluster: Cluster, layout: Layout) -> list[list[Record]]:
    """Reads the whole chain of each virtual partition, as far as retention has left it."""
    stays = [stay for chain in layout.chains for stay in chain.stays]
    sorted_out = {q: _by_owner(cluster.partition(q), layout, q) for q in {stay.partition for stay in stays}}
    return [
        [
            record
            for stay in chain.stays
            for record in _log_of(layout, v, stay, cluster.partition(stay.partition), sorted_out[stay.partition])
        ]
        for v, chain in enumerate(layout.chains)
    ]


def _by_owner(log: Partition, layout: Layout, q: int) -> dict[Owner | None, _Batches]:
    """Sorts a log by who gets its batches; by `None` those that dialect clients wrote to it as such."""
    shared = {epoch.number for epoch in layout.epochs if epoch.placement is Placement.SHARED}
    stretches = [stay for stay in layout.chain(physical_stream(q)).stays if stay.move in shared]
    found: dict[Owner | None, _Batches] = defaultdict(list)
    owners: dict[int, Owner | None] = {}
    for base, batch in log.between(log.start, log.end):
        if batch.producer_id not in owners:
            who = untag(batch.producer_id)
            owners[batch.producer_id] = None if who is None or who.is_physical else who.owner
        owner = owners[batch.producer_id]
        if owner is not None and any(stay.holds(base) for stay in stretches):
            owner = owner._replace(v=q)
        found[owner].append((base, batch))
    return found


def _log_of(
    layout: Layout, v: int, stay: Stay, log: Partition, by_owner: Mapping[Owner | None, _Batches]
) -> Iterator[Record]:
    """Reads one stay of a virtual partition."""
    end = log.end if stay.end is None else stay.end
    if not stay.tagged:
        yield from (record for _, batch in log.between(stay.start, end) for record in batch.records)
        return
    owner = owner_of(v, stay.move)
    both = heapq.merge(by_owner.get(owner, ()), by_owner.get(None, ()), key=lambda each: each[0])
    for base, batch in both:
        if stay.start <= base < end:
            who = untag(batch.producer_id)
            is_mine = who is not None and not who.is_physical
            yield from batch.records if is_mine else _of_dialect(layout, v, stay.partition, base, batch)


def _of_dialect(layout: Layout, v: int, q: int, base: int, batch: Batch) -> list[Record]:
    """Returns what of a dialect client's batch is a virtual partition's, unless it landed behind its cut."""
    who, stream = untag(batch.producer_id), physical_stream(q)
    segment = next((each for each in layout.chain(stream).stays if each.holds(base)), None)
    if segment is None or who is None or who.owner != owner_of(stream, segment.move):
        return []
    epoch = next(each for each in layout.epochs if each.number == segment.move)
    is_own = epoch.placement is Placement.OWN
    return [each for each in batch.records if v == (q if is_own else each.key % layout.v_count)]


def _check_log(cluster: Cluster, where: str, records: list[Record], acknowledged: list[Record]) -> None:
    if len(records) != len(set(records)):
        doubled = sorted({each for each in records if records.count(each) > 1})
        cluster.fail(f"{where}: doubled: {doubled[:5]}")
    if missing := set(acknowledged).difference(records):
        cluster.fail(f"{where}: lost: {sorted(missing)[:5]}")
    promised = set(acknowledged)
    _check_order(cluster, where, [each for each in records if each in promised])


def _check_order(cluster: Cluster, where: str, records: Iterable[Record]) -> None:
    last: dict[tuple[int, int], int] = {}
    for client_id, key, number in records:
        before = last.get((client_id, key), -1)
        if number < before:
            cluster.fail(f"{where}: {client_id}'s {number} of key {key} comes behind its {before}")
            return
        last[client_id, key] = number
