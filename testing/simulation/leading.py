"""The hands of the controller on a simulated proxy: the real controller decides, this does what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kordon.codecs.producers import ProducerRow, ProducerRows
from kordon.proxy.control.ends import Ends, Snapshot
from kordon.proxy.ordering import changes as steps
from kordon.proxy.ordering import takeover as rules
from kordon.proxy.ordering.changes import Producers
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.next_images import NextImages
from kordon.proxy.ordering.records import TopicRecord, Value
from kordon.proxy.ordering.takeover import Step, Takeover
from kordon.testing.simulation.clients import DELIVERY_SECONDS, METADATA_SECONDS
from kordon.testing.simulation.writing_ahead import WritingAhead

if TYPE_CHECKING:
    from kordon.testing.simulation.proxies import Proxy

LEASE_SECONDS: Final = 6.0
FACE_ID: Final = UUID(int=2)
GROUPS_SECONDS: Final = 3.0
REMEMBERED_SECONDS: Final = 30.0
"""For how long a producer that is silent is known (producer.id.expiration.ms)."""
_TRANSITION_SECONDS: Final = METADATA_SECONDS * 1.2 + DELIVERY_SECONDS + 1.0


class Leading:
    """The role, from one taking over to the loss of it.

    Args:
        proxy: That leads.
        writer_epoch: By which it writes, until another one takes over.
    """

    def __init__(self, proxy: Proxy, writer_epoch: int) -> None:
        self._proxy = proxy
        self._world = proxy.world
        self._cluster = proxy.cluster
        self._writer_epoch = writer_epoch
        self._fence_count = 0
        self._next_look = 0.0
        self._records: dict[str, TopicRecord] = dict(proxy.member.topics)
        self.controller = Controller(frozenset(proxy.members), proxy.presence.alone_from)
        for name, record in self._records.items():
            self.controller.know(record, proxy.member.images(name))
        self._ahead = WritingAhead(self._cluster, self, self._write, self._tell)
        for fence in proxy.member.fences.values():
            self._do(self.controller.found_fence(fence, self._world.now))

    def on_members(self, members: frozenset[str]) -> None:
        """The group has another generation."""
        self._do(self.controller.on_members(members, self._world.now, self._proxy.presence.alone_from))

    def on_ack(self, fence: str, incarnation: str) -> None:
        """A proxy holds what a fence names."""
        self._do(self.controller.on_ack(fence, incarnation, self._world.now))

    def tick(self) -> None:
        """Time has passed."""
        self._fence_count += 1
        now, topic = self._world.now, self._cluster.topic
        self._do(self.controller.on_tick(now, f"{self._proxy.name}-{self._writer_epoch}-{self._fence_count}"))
        if topic in self.controller.changes:
            return
        record = self._records.get(topic)
        if record is None:
            self._manage()
        elif record.takeover is not None:
            self._carry_on(record, record.takeover)
        elif record.layout.u != self._cluster.wanted:
            self._do(self.controller.resize(topic, self._cluster.wanted, now))

    # --- taking over a topic with data (TAKEOVER-WAITS)

    def _manage(self) -> None:
        if self._cluster.is_wished:
            cluster = self._cluster
            layout = Layout.unmanaged(cluster.topic, UUID(int=1), cluster.n, cluster.v_count)
            record = TopicRecord(layout, FACE_ID, Takeover(None, transition_ms=_ms(_TRANSITION_SECONDS)))
            placement = rules.first_placement(layout, quiesced=False)
            self._do(self.controller.take_over(record, placement, self._world.now))

    def _carry_on(self, record: TopicRecord, takeover: Takeover) -> None:
        step = rules.next_step(record.layout, takeover, _ms(self._world.now))
        if step is Step.CUT:
            self._do(self.controller.resize(record.layout.topic, record.layout.n, self._world.now))
        elif step is Step.SHOWN and self._world.now >= self._next_look:
            self._next_look = self._world.now + GROUPS_SECONDS
            self._renew(replace(record, takeover=rules.shown(takeover, _ms(self._world.now))))
        elif step is Step.LOOK and self._world.now >= self._next_look:
            self._next_look = self._world.now + GROUPS_SECONDS
            self._proxy.ask(self._behind, lambda behind: self._looked(record, takeover, behind))

    def _behind(self) -> list[str]:
        """Asks for the commits of groups, and where logs begin."""
        takeover = self._records[self._cluster.topic].takeover
        starts = {p: self._cluster.partition(p).start for p in range(self._cluster.n)}
        committed = {v: offset for v, offset in self._cluster.committed.items() if v < self._cluster.n}
        return [] if takeover is None or rules.has_passed(takeover, committed, starts) else ["group"]

    def _looked(self, record: TopicRecord, takeover: Takeover, behind: list[str]) -> None:
        topic = record.layout.topic
        left = rules.looked_at(takeover, behind)
        if left == takeover or self._records[topic] is not record or topic in self.controller.changes:
            return
        layout = record.layout if left is not None else replace(record.layout, withheld=False)
        self._renew(replace(record, layout=layout, takeover=left))

    def _renew(self, record: TopicRecord) -> None:
        self._write(((f"topic/{record.layout.topic}", record),), lambda: None)

    # --- what the controller says

    def _do(self, commands: list[steps.Command]) -> None:
        for command in commands:
            self._perform(command)

    def _perform(self, command: steps.Command) -> None:
        controller = self.controller

        def now() -> float:
            return self._world.now

        match command:
            case steps.Prepare(topic, _):
                self._proxy.ask(lambda: None, lambda _: self._tell(self._prepared(topic)))
            case steps.ConfirmMembers(topic):
                generation = self._proxy.generation
                self._proxy.ask(
                    lambda: self._cluster.group.commit(self._proxy.name, generation),
                    lambda fine: self._tell(lambda: controller.on_confirmed(topic, now()) if fine else []),
                )
            case steps.WriteAhead():
                self._ahead.begin(command)
            case steps.Commit(topic, records):
                self._write(records, lambda: self._tell(lambda: controller.on_committed(topic, now())))
            case steps.ReadCuts(topic, fence, partitions, images):
                self._proxy.later_there(lambda: self._read_cuts(topic, fence, partitions, images))
            case steps.Finished():
                self._world.say(f"{self._proxy.name}: layout is changed")
            case steps.Abandoned(_, problem):
                self._world.say(f"{self._proxy.name}: gives the change up: {problem}")

    def _prepared(self, topic: str) -> Callable[[], list[steps.Command]]:
        has_many = self._ahead.has_many
        return lambda: self.controller.on_prepared(
            topic, None, self._world.now, _ms(REMEMBERED_SECONDS), has_many=has_many
        )

    def _tell(self, what: Callable[[], list[steps.Command]]) -> None:
        if self._proxy.leading is self:
            self._do(what())

    def _write(self, records: tuple[tuple[str, Value | None], ...], then: Callable[[], None]) -> None:
        """Commits a transaction; another controller may have taken over."""

        def there() -> bool:
            fine = self._cluster.layouts.commit(self._writer_epoch, records)
            if fine:
                self._world.say(f"{self._proxy.name} commits {[key for key, _ in records]}")
                self._cluster.on_commit(self._proxy, records)
            return fine

        def back(fine: bool) -> None:
            if self._proxy.leading is not self:
                return
            if not fine:
                self._proxy.stand_down()
                return
            for value in (value for _, value in records if isinstance(value, TopicRecord)):
                self._records[value.layout.topic] = value
                if value.layout.topic not in self.controller.changes:
                    self.controller.know_again(value)
                self._proxy.take_layout(records)
            then()

        self._proxy.ask(there, back)

    def _read_cuts(self, topic: str, fence: str, partitions: frozenset[int], images: NextImages | None) -> None:
        if images is None:
            self._cut(topic, fence, partitions)
        else:
            self._cut_ahead(topic, fence, images)

    def _cut(self, topic: str, fence: str, partitions: frozenset[int]) -> None:
        """Reads log ends, producers and both ends again, until they belong together (STILL-CUT) or nobody asks."""
        change = self.controller.changes.get(topic)
        if self._proxy.leading is not self or change is None or change.fence is None or change.fence.id != fence:
            return
        before = {q: self._cluster.partition(q).end for q in partitions}
        self._cluster.nemesis.on_cut()
        self._world.soon(lambda: self._describe(topic, fence, before))

    def _describe(self, topic: str, fence: str, before: dict[int, int]) -> None:
        states = {
            q: ProducerRows.of(
                ProducerRow(pid, epoch, last_sequence, -1, -1, -1)
                for pid, (epoch, last_sequence) in self._cluster.partition(q).producers().items()
            )
            for q in before
        }
        self._world.soon(lambda: self._compare(topic, fence, before, states))

    def _compare(self, topic: str, fence: str, before: dict[int, int], states: dict[int, ProducerRows]) -> None:
        ends = {q: self._cluster.partition(q).end for q in before}
        found = {q: Snapshot(before[q], states[q], Ends(ends[q], ends[q], 0)) for q in before}
        if not all(each.is_cut for each in found.values()):
            self._cut(topic, fence, frozenset(before))
            return
        cuts = {
            q: Producers(
                each.log_end_before,
                {row.producer_id: (row.producer_epoch, row.last_sequence) for row in each.producers},
                read_ms=_ms(self._world.now),
            )
            for q, each in found.items()
        }
        controller = self.controller
        self._proxy.later(lambda: self._tell(lambda: controller.on_cuts(topic, fence, cuts, self._world.now)))

    def _cut_ahead(self, topic: str, fence: str, images: NextImages) -> None:
        """Reads log ends, what was written since images were written ahead, and the ends again (STILL-CUT)."""
        change = self.controller.changes.get(topic)
        if self._proxy.leading is not self or change is None or change.fence is None or change.fence.id != fence:
            return
        tails = self._ahead.tails(images)
        controller = self.controller
        if tails is None:
            self._proxy.later(lambda: self._tell(lambda: controller.on_cuts(topic, fence, None, self._world.now)))
            return
        before = {q: tail.position for q, tail in tails.items()}
        self._cluster.nemesis.on_cut()

        def compare() -> None:
            ends = {q: self._cluster.partition(q).end for q in before}
            found = {q: Snapshot(before[q], ProducerRows.of(()), Ends(ends[q], ends[q], 0)) for q in before}
            if not all(each.is_cut for each in found.values()):
                self._cut_ahead(topic, fence, images)
                return
            cuts = {q: Producers(before[q], dict(tails[q].written), read_ms=_ms(self._world.now)) for q in before}
            self._proxy.later(lambda: self._tell(lambda: controller.on_cuts(topic, fence, cuts, self._world.now)))

        self._world.soon(compare)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
