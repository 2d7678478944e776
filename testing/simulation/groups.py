"""A group of dialect consumers in a simulated cluster: its members, what befalls them, and what it was given.

Its chance is its own, so that a cluster lives as it would without the group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.positions import MemberReport, ToldPosition
from kordon.testing.order.history import Processed, Read
from kordon.testing.simulation.coordinator import ConsumerGroup
from kordon.testing.simulation.gating import Gating
from kordon.testing.simulation.kafka import Record
from kordon.testing.simulation.members import Member
from kordon.testing.simulation.world import PACE

if TYPE_CHECKING:
    from kordon.testing.simulation.cluster import Cluster
    from kordon.testing.simulation.proxies import Proxy

_Answer = TypeVar("_Answer")
_MEMBERS: Final = 3
_TROUBLE_SECONDS: Final = 4.0
_PAUSE_SECONDS: Final = (1.0, 4.0, 8.0)
"""Shorter and longer than a session."""
_BACK_SECONDS: Final = 1.0
"""Until a member that was killed has a successor."""
_LEAST_SECONDS: Final = 0.001
_MOST_SECONDS: Final = 0.03
"""A message's way, unless it takes long."""
_LONG_SECONDS: Final = (0.3, 2.0, 5.0)


class Delivery(NamedTuple):
    """What a member was given at once."""

    era: int
    """Of the group: it is another one once it was deleted."""
    generation: int
    partition: int
    records: list[tuple[int, Record]]
    """With their offsets."""
    time_us: int
    """The place in the group's story."""

    def events(self) -> Iterator[Processed]:
        """Returns what the member would write down of it."""
        for offset, record in self.records:
            key = f"{record.client_id}/{record.key}"
            yield Processed(self.time_us, self.partition, offset, key, record.number)


class DialectGroup:
    """One group.

    Args:
        cluster: Which it reads from.
        seed: Decides all that befalls it.
    """

    def __init__(self, cluster: Cluster, seed: object) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.topic = cluster.topic
        self.random = Random(f"dialect group {seed}")  # noqa: S311 - chance that can be repeated
        self.coordinator = ConsumerGroup(self.world)
        self.log: list[tuple[str, MemberReport | None]] = []
        """`__kordon.groups`."""
        self.story: list[tuple[str, Read | Delivery]] = []
        """What members would write down, with their names; the place is the time."""
        self.rewound: dict[tuple[int, int, int], int] = defaultdict(int)
        """By era, generation and partition: below which offset records came again because a member went back."""
        self.era = 0
        self._member_count = 0
        self._gatings: dict[Proxy, Gating] = {}
        self._trouble_share = self.random.choice([0.0, 0.02, 0.1])
        self.members = [self._new_member() for _ in range(_MEMBERS)]
        self.each(_TROUBLE_SECONDS, self._trouble)

    @property
    def is_troubled(self) -> bool:
        """Whether things go wrong."""
        return self.cluster.is_troubled

    @property
    def over(self) -> bool:
        """Whether the cluster has lived."""
        return self.cluster.over

    @property
    def is_drained(self) -> bool:
        """Whether its members have come to the end of all that there is."""
        positions = {q: owned.position for member in self.members for q, owned in member.owned.items()}
        ends = self.cluster.views.of(self.cluster.layout).ends
        return all(
            positions.get(q, -1) >= (self.cluster.partition(q).end if end is None else end) for q, end in ends.items()
        )

    # --- for members and proxies

    def layout(self) -> Layout | None:
        """Returns what some proxy tells in Metadata and PartitionLeaderEpochsForPartitions, which may be old.

        None: it does not answer now.
        """
        proxy = self._some_proxy()
        answers = proxy.is_running and self.world.now >= proxy.cut_until
        return proxy.topic.layout if proxy.topic is not None and answers else None

    def delay(self, proxy: Proxy | None = None, *, stray: bool = False) -> float:
        """Returns how long something takes on its way; some of it, while things go wrong, very long."""
        seconds = _LEAST_SECONDS + (_MOST_SECONDS - _LEAST_SECONDS) * self.random.random()
        if proxy is not None:
            seconds += max(0.0, proxy.cut_until - self.world.now)
        if self.is_troubled and self.random.random() < self._trouble_share * (0.5 if stray else 0.1):
            seconds += self.random.choice(_LONG_SECONDS)
        return seconds

    def after(self, what: Callable[[], None], seconds: float | None = None) -> None:
        """Lets something happen after its way, or after so many seconds."""
        self.world.after(self.delay() if seconds is None else seconds, what)

    def each(self, seconds: float, what: Callable[[], bool]) -> None:
        """Lets something happen again and again until it returns False."""

        def again() -> None:
            if what():
                self.world.after(seconds * (least + spread * random()), again)

        random, least, spread = self.random.random, PACE[0], PACE[1] - PACE[0]
        self.world.after(seconds * random(), again)

    def ask(
        self,
        what: Callable[[Gating], _Answer],
        at_member: Callable[[Callable[[], None]], Callable[[], None]],
        back: Callable[[_Answer], None],
    ) -> None:
        """Lets some proxy answer a member.

        Args:
            what: Asks the proxy.
            at_member: Makes what happens at the member of what happens.
            back: Takes the answer.
        """
        proxy = self._some_proxy()

        def there() -> None:
            found = what(self._gating(proxy))
            self.after(at_member(lambda: back(found)))

        self.after(lambda: proxy.arrive(there))

    def ask_to_report(
        self,
        name: str,
        report: MemberReport,
        at_member: Callable[[Callable[[], None]], Callable[[], None]],
        back: Callable[[dict[str, list[ToldPosition]] | None], None],
    ) -> None:
        """Lets some proxy take a member's positions."""
        proxy = self._some_proxy()

        def answer(found: dict[str, list[ToldPosition]] | None) -> None:
            self.after(at_member(lambda: back(found)))

        self.after(lambda: proxy.arrive(lambda: self._gating(proxy).report(name, report, answer)))

    def append(self, records: Sequence[tuple[str, MemberReport | None]]) -> int:
        """Writes into `__kordon.groups`; returns its end."""
        self.log += records
        return len(self.log)

    def tell(self, member: str, event: Any) -> None:
        """A member writes down what it does."""
        self.story.append((member, event._replace(time_us=len(self.story))))

    def deliver(self, member: Member, q: int, records: list[tuple[int, Record]]) -> None:
        """A member gets records."""
        delivery = Delivery(self.era, member.generation, q, records, len(self.story))
        self.story.append((member.name, delivery))

    @property
    def delivered(self) -> list[Delivery]:
        """All that it was given, in this order."""
        return [event for _, event in self.story if isinstance(event, Delivery)]

    def went_back(self, generation: int, q: int, offset: int) -> None:
        """A member goes back from an offset."""
        place = self.era, generation, q
        self.rewound[place] = max(self.rewound[place], offset)

    # --- what befalls it

    def _trouble(self) -> bool:
        match self.random.choice(["kill", "pause", "seek", "seek", "reset", "reset", "delete", "nothing"]):
            case "kill":
                self._kill(self.random.choice(self.members))
            case "pause":
                self.random.choice(self.members).pause(self.random.choice(_PAUSE_SECONDS))
            case "seek":
                self._seek(self.random.choice(self.members))
            case "reset":
                self._reset()
            case "delete":
                self._delete()
            case _:
                pass
        return self.is_troubled

    def _kill(self, member: Member) -> None:
        member.kill()
        self.members.remove(member)
        self.world.after(_BACK_SECONDS, lambda: self.members.append(self._new_member()))

    def _seek(self, member: Member) -> None:
        if member.owned and self.world.now >= member.paused_until:
            q = self.random.choice(list(member.owned))
            member.seek(q, self._somewhere(member.owned[q].position))

    def _reset(self) -> None:
        """An operator takes some partitions' commits back; of others they stay."""
        offsets = {
            q: self._somewhere(offset)
            for q, offset in sorted(self.coordinator.offsets.items())
            if self.random.random() < 0.5
        }
        self.world.say(f"the dialect group's commits are set to {offsets}")
        self.coordinator.reset(offsets)

    def _delete(self) -> None:
        """All members end, and the group is deleted: its successors begin at the beginning, in generation 1."""
        self.world.say("the dialect group is deleted")
        for member in list(self.members):
            self._kill(member)
        self.era += 1
        self.coordinator.delete()

    def _somewhere(self, before: int) -> int:
        return self.random.choice([0, self.random.randint(0, before), max(0, before - self.random.randint(1, 20))])

    def _new_member(self) -> Member:
        self._member_count += 1
        return Member(self, f"member-{self._member_count}")

    def _some_proxy(self) -> Proxy:
        return self.random.choice(self.cluster.proxies)

    def _gating(self, proxy: Proxy) -> Gating:
        if proxy not in self._gatings:
            self._gatings[proxy] = Gating(proxy, self)
        return self._gatings[proxy]
