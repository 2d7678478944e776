"""Answers that depend on a layout, while layouts may change: what was planned under an old one is planned again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kordon.codecs.error_codes import Code
from kordon.proxy.kafka.leader_requests import Form, PartitionLeaderRequests, PartitionQuestion, Row
from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.epochs import split_epoch
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.lookups import FoundOffset
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.views import View

_ROUNDS: Final = 3
HOLD_SECONDS: Final = 2.5
"""How long a request waits for this worker's lease, as writes do: below the patience of every client."""
_LOOK_SECONDS: Final = 0.02


class Unsettled(Exception):  # noqa: N818 - says what holds
    """Raised where there is no answer now; carries the error code that has clients do the right thing."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(frozen=True, slots=True)
class LocatedStream:
    """A partition under the layout in force when it was looked up."""

    topic: ManagedTopic
    layout: Layout
    stream: Stream

    @property
    def chain(self) -> Chain:
        """The chain of the partition's homes."""
        return self.layout.chain(self.stream)

    @property
    def home(self) -> Stay:
        """The partition's present home."""
        home = self.chain.home
        assert home is not None  # or else it is not found
        return home

    @property
    def floor(self) -> int:
        """The virtual offset below which its records were deleted (OWN-FLOOR)."""
        return (self.layout.floors or {}).get(self.stream, 0)

    @property
    def is_current(self) -> bool:
        """Whether that layout is still in force."""
        return self.topic.layout is self.layout

    @property
    def is_withheld(self) -> bool:
        """Whether it is written but not delivered yet (TAKEOVER-WAITS)."""
        return self.layout.withholds(self.stream)

    def limit(self) -> int | None:
        """Returns the offset in its home from which on nothing is shown now; None: there is no such limit.

        Raises:
            Unsettled: A fence has begun, and what it freezes reading at is not known yet.
        """
        if self.is_withheld:
            return self.home.start
        fence, partition = self.topic.fence, self.home.partition
        if fence is not None and not fence.may_tell_end(partition):
            raise Unsettled(Code.UNKNOWN_LEADER_EPOCH)
        return self.topic.limit(partition, may_serve=True)  # `settle` asks for the lease, before and after

    def home_epoch(self, current_leader_epoch: int) -> int:
        """Takes the leader epoch in which a client believes to its home's physical partition (KIP-320).

        Args:
            current_leader_epoch: The client's; -1: it does not say.

        Raises:
            Unsettled: The client, or this worker, does not know of the last move yet.
        """
        if current_leader_epoch < 0:
            return -1
        move, epoch = split_epoch(current_leader_epoch)
        if move != self.home.move:
            raise Unsettled(Code.FENCED_LEADER_EPOCH if move < self.home.move else Code.UNKNOWN_LEADER_EPOCH)
        return epoch


def find_place(topics: ManagedTopics, name: str, number: int, view: View) -> LocatedStream:
    """Finds a partition.

    Args:
        number: The number by which the client knows the partition.

    Raises:
        Unsettled: There is none, or none yet.
    """
    topic = topics.named(name)
    stream = view.find(topic.layout, number) if topic is not None else Code.UNKNOWN_TOPIC_OR_PARTITION
    if topic is not None and topic.unserved is not None:
        raise Unsettled(Code.NOT_LEADER_OR_FOLLOWER)
    if topic is None or isinstance(stream, Code):
        raise Unsettled(Code.UNKNOWN_TOPIC_OR_PARTITION)
    return LocatedStream(topic, topic.layout, stream)


@dataclass(frozen=True, slots=True)
class SettlePlan:
    """How one row of a request is answered under a layout."""

    place: LocatedStream
    questions: Mapping[int, PartitionQuestion]
    """To the leaders of physical partitions, by partition."""
    read: Callable[[Mapping[int, Row]], FoundOffset]
    """Makes the answer of the brokers', by physical partition; raises Unsettled."""


async def settle(
    questions: PartitionLeaderRequests,
    form: Form,
    plans: Sequence[Callable[[], SettlePlan]],
    fields: Mapping[str, object],
    may_serve: Callable[[], bool],
) -> list[FoundOffset]:
    """Answers all rows of a request, with one request to each broker where all goes well.

    Args:
        plans: Each makes a row's plan under the layout in force; may raise Unsettled.
        fields: The fields of the requests to brokers, without their topics.
        may_serve: Whether this worker's lease lives. Without it others may have gone on to a layout that is not known
            here, in which brokers' answers mean other offsets. It is waited for, since each change of the proxies'
            group takes it away for a moment and librdkafka does not ask again; in vain, clients are to ask again.

    Returns:
        By row, what was found; its error code where nothing was.
    """
    found: dict[int, FoundOffset] = {}
    deadline = asyncio.get_running_loop().time() + HOLD_SECONDS
    for _ in range(_ROUNDS):
        if not await _lives(may_serve, deadline):
            return [found.get(number, FoundOffset(error=Code.UNKNOWN_LEADER_EPOCH)) for number in range(len(plans))]
        drawn: dict[int, SettlePlan] = {}
        for number in range(len(plans)):
            if number not in found:
                try:
                    drawn[number] = plans[number]()
                except Unsettled as error:
                    found[number] = FoundOffset(error=error.code)
        if not drawn:
            break
        rows = await questions.ask(form, {q for plan in drawn.values() for q in plan.questions.values()}, fields)
        if may_serve():
            found |= {number: _read(plan, rows) for number, plan in drawn.items() if plan.place.is_current}
    return [found.get(number, FoundOffset(error=Code.LEADER_NOT_AVAILABLE)) for number in range(len(plans))]


async def _lives(may_serve: Callable[[], bool], deadline: float) -> bool:
    while not may_serve():
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
    return True


def _read(plan: SettlePlan, rows: Mapping[PartitionQuestion, Row]) -> FoundOffset:
    try:
        return plan.read({partition: rows[question] for partition, question in plan.questions.items()})
    except Unsettled as error:
        return FoundOffset(error=error.code)


def found_in(row: Row, offset: str) -> FoundOffset:
    """Reads what a broker has found of a partition; `offset` is the field that has it."""
    if row["error_code"]:
        return FoundOffset(error=row["error_code"])
    return FoundOffset(row[offset], row.get("timestamp", -1), row.get("leader_epoch", -1))
