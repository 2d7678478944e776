"""What a proxy of the simulation does for a dialect group: gated reads, and positions by way of `__kordon.groups`.

Who is held or refused, and what reports amount to, is judged by the product; the log of reports, and the ways to it,
are modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from kordon.codecs.bodies import FetchRequest, FetchRequestTopic
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.lookups import EARLIEST
from kordon.proxy.ordering.positions import MemberReport, Positions, ToldPosition
from kordon.proxy.ordering.reading import ReadingPlace, Resident, end_told, past_loss, place_in
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.own_topics.group_positions import GroupPositions
from kordon.proxy.reads.gated_fetching import RequestGate
from kordon.proxy.reads.gating import Gates
from kordon.proxy.topics.managed_topics import ManagedTopic
from kordon.testing.simulation.kafka import Record

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
        self._gates = Gates(cast(GroupPositions, self), self._log_starts)
        self._client = Client(0)
        self._read = 0
        """Up to where it has read the log of reports."""
        group.each(_FOLLOW_SECONDS, self._follow)

    def of(self, group_id: str, generation_id: int, topic: str, member_id: str) -> Mapping[int, int]:
        """Returns where a group stands, as evidence for one of its members."""
        return self._positions.of_member(group_id, generation_id, topic, member_id)

    async def changed(self, group_id: str) -> None:
        """Returns at once: members ask again instead."""

    def fetch(self, member: str, q: int, position: int, count: int, generation: int) -> Fetched | None:
        """Answers a read of a physical partition; None: nothing now, ask again.

        Args:
            member: Who asks.
            q: The physical partition.
            position: Where the member stands.
            count: The undeleted_partition_count that it believes in.
            generation: Of the group, as the member knows it.
        """
        proxy, topic, stream = self._proxy, self._proxy.topic, physical_stream(q)
        if topic is None:
            return None
        row = FetchRequestTopic(topic=topic.name, undeleted_partition_count=count)
        request = FetchRequest(group_id=GROUP, generation_id=generation, member_id=member, topics=[row])
        gate = RequestGate(cast("Any", proxy.reading), self._gates, request, self._client).of(topic, stream)
        if gate.refusal(topic.layout):
            return Fetched([], position, is_old=True)
        place = place_in(topic.layout, stream, position)
        if place is None:
            return None
        if place.is_read_out or gate.judge(place.stay, position):
            gate.release()
            return Fetched([], position)
        return self._portion(topic, place, proxy.reading.shown_until(topic, place.stay))

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

    async def _log_starts(self, topic: str, partitions: Iterable[int], timestamp: int) -> dict[int, int]:
        assert (topic, timestamp) == (self._proxy.cluster.topic, EARLIEST)
        return {q: self._proxy.cluster.partition(q).start for q in partitions}

    def _portion(self, topic: ManagedTopic, place: ReadingPlace, end: int) -> Fetched:
        """Returns the next few batches up to an offset."""
        cluster, stay, at = self._proxy.cluster, place.stay, place.position
        records: list[tuple[int, Record]] = []
        left, end = self._group.random.randint(*_BATCHES_READ), max(end, at)
        stream, log = physical_stream(stay.partition), cluster.partition(stay.partition)
        for base, batch, owner in cluster.views.of(topic.layout).owned(stream, log.between(at, end)):
            if isinstance(owner, Resident):
                records += enumerate(batch.records, base)
                left -= 1
                if not left:
                    end = base + len(batch.records)
                    break
        end = past_loss(stay, end)
        home = topic.layout.chain(stream).stays[-1]
        limit = self._proxy.reading.limits.of(topic, home.partition)
        read_to = end if place.is_home else None
        return Fetched(records, end, end_told(home, log.end, limit, position=read_to, after=end))
