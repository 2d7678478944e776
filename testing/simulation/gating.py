"""What a proxy of the simulation does for a dialect group: gated reads, and positions by way of `__kordon.groups`.

The gate and what reports amount to are the product's own; the log of reports, and the ways to it, are modelled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kordon.proxy.ordering.gate import Evidence
from kordon.proxy.ordering.positions import MemberReport, Positions, ToldPosition
from kordon.proxy.ordering.reading import Hidden, Resident, reading_place
from kordon.proxy.ordering.streams import physical_stream
from kordon.testing.simulation.kafka import Record
from kordon.testing.simulation.reading import View

if TYPE_CHECKING:
    from kordon.testing.simulation.groups import DialectGroup
    from kordon.testing.simulation.proxies import Proxy

_Answer = TypeVar("_Answer")
GROUP: Final = "group"
_BATCHES_READ: Final = (2, 40)
"""At least and at most, in one answer."""
_FOLLOW_SECONDS: Final = 0.1


class Fetched(NamedTuple):
    """What a member of a dialect group gets of a partition.

    Attributes:
        records: With their offsets.
        position: Where it goes on.
        high_watermark: Up to where it could be read.
        is_old: INVALID_PARTITION_METADATA: the member believes in another undeleted_partition_count.
    """

    records: list[tuple[int, Record]]
    position: int
    high_watermark: int = -1
    is_old: bool = False


class _Roll(NamedTuple):
    """Who had reported when the coordinator was asked, and who it says is in the group."""

    known: frozenset[str]
    members: frozenset[str]


class Gating:
    """The part of one proxy for one group.

    Args:
        proxy: Whose.
        group: Which.
    """

    def __init__(self, proxy: Proxy, group: DialectGroup) -> None:
        self._proxy = proxy
        self._group = group
        self._positions = Positions()
        self._read = 0
        """Up to where it has read the log of reports."""
        group.each(_FOLLOW_SECONDS, self._follow)

    def fetch(self, member: str, q: int, position: int, count: int, generation: int) -> Fetched | None:
        """Answers a read of a physical partition; None: nothing now, ask again.

        Args:
            member: Who asks.
            q: The physical partition.
            position: Where the member stands.
            count: The undeleted_partition_count that it believes in.
            generation: Of the group, as the member knows it.
        """
        topic = self._proxy.topic
        if topic is None:
            return None
        layout = topic.layout
        if count != layout.count_in_force:
            return Fetched([], position, is_old=True)
        view = self._proxy.cluster.views.of(layout)
        place = reading_place(layout.chain(physical_stream(q)), position, 0)
        if place is None:
            return None
        stay, proxy = place.stay, self._proxy
        is_read_out = place.is_home and stay.end is not None and position >= stay.end
        if is_read_out or view.gate.asks(q, position, self._evidence(member, generation, view)):
            return Fetched([], position)
        shown = proxy.reading.end_of_open(topic, q) if stay.end is None else proxy.cluster.partition(q).end
        end = shown if stay.end is None else stay.end
        return self._portion(view, q, position, max(end, position), max(shown, position))

    def report(
        self, member: str, report: MemberReport, answer: Callable[[dict[str, list[ToldPosition]] | None], None]
    ) -> None:
        """Takes a ConsumerGroupPosition; answered with None if the group's coordinator refuses the member."""
        coordinator = self._group.coordinator

        def there() -> _Roll | None:
            if not coordinator.heartbeat(member, report.generation_id):
                return None
            self._read_up_to(len(self._group.log))
            return _Roll(frozenset(self._positions.members(GROUP)), frozenset(coordinator.members))

        def checked(roll: _Roll | None) -> None:
            if roll is None or not self._may_be_written(member, roll):
                answer(None)
                return
            is_new = self._positions.said(GROUP, member) is None
            gone = sorted(roll.known - roll.members) if is_new else []
            records = [*((each, None) for each in gone), (member, report)]
            self._ask(lambda: self._group.append(records), written)

        def written(end: int) -> None:
            self._read_up_to(end)
            answer(self._positions.answer(GROUP, member))

        self._ask(there, checked)

    def _may_be_written(self, member: str, roll: _Roll) -> bool:
        """Whether all whose reports will stand beside a member's are of its days (`proxy.managed.rosters`)."""
        if self._positions.said(GROUP, member) is not None:
            return True
        return roll.members.issuperset(self._positions.members(GROUP) - roll.known)

    def _ask(self, there: Callable[[], _Answer], back: Callable[[_Answer], None]) -> None:
        group, proxy = self._group, self._proxy

        def answer() -> None:
            found = there()
            group.world.after(group.delay(proxy), lambda: proxy.arrive(lambda: back(found)))

        group.world.after(group.delay(proxy, stray=True), answer)

    def _follow(self) -> bool:
        end, proxy, world = len(self._group.log), self._proxy, self._group.world
        if end > self._read and proxy.is_running and world.now >= max(proxy.lags_until, proxy.cut_until):
            world.after(self._group.delay(proxy), lambda: proxy.arrive(lambda: self._read_up_to(end)))
        return proxy.alive and not proxy.cluster.over

    def _read_up_to(self, end: int) -> None:
        for member, report in self._group.log[self._read : end]:
            self._positions.apply(GROUP, member, report)
        self._read = max(self._read, end)

    def _evidence(self, member: str, generation: int, view: View) -> Evidence:
        cluster = self._proxy.cluster
        starts = {q: cluster.partition(q).start for q in view.tenancies}
        said = self._positions.said(GROUP, member)
        if said is None or said.generation_id != generation:
            return Evidence({}, starts)  # the others may be of another life of the group, too
        return Evidence(self._positions.of(GROUP, generation, cluster.topic), starts)

    def _portion(self, view: View, q: int, start: int, end: int, high_watermark: int) -> Fetched:
        records: list[tuple[int, Record]] = []
        left = self._group.random.randint(*_BATCHES_READ)
        for base, batch, owner in view.owned(q, self._proxy.cluster.partition(q).between(start, end)):
            if isinstance(owner, Resident) or owner is Hidden.DIALECT:
                records += enumerate(batch.records, base)
                left -= 1
                if not left:
                    return Fetched(records, base + len(batch.records), high_watermark)
        return Fetched(records, end, high_watermark)
