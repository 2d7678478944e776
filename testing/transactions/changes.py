"""The shell around the product's controller: it does what that asks for, and sometimes another one takes over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kordon.proxy.ordering.changes import (
    Abandoned,
    AskEnds,
    AskOpen,
    Change,
    Command,
    Commit,
    ConfirmMembers,
    Finished,
    OlderOpen,
    Prepare,
    Producers,
    ReadCuts,
    Stage,
)
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.records import AnnouncementRecord, FenceRecord, TopicRecord
from kordon.proxy.ordering.transactions.older_transactions import OpenAt
from kordon.proxy.ordering.transactions.open_answers import NOT_OPEN
from kordon.testing.transactions.cluster import FACE, MOST, TOPIC, Cluster
from kordon.testing.transactions.logs import Log
from kordon.testing.transactions.workers import Worker
from kordon.testing.transactions.world import Activity


class Changes:
    """Makes a topic's virtual partitions move."""

    def __init__(self, cluster: Cluster, workers: Sequence[Worker]) -> None:
        self._cluster, self._world, self._workers = cluster, cluster.world, workers
        self._wish: int | None = None
        """The partitions that somebody wants the topic to have."""
        self._terms = self._turns = self._heard = 0
        self._controller = Controller(self._members(), 0.0)
        self._lead()

    @property
    def is_over(self) -> bool:
        """Whether nothing is under way, and nothing announced."""
        announced = self._cluster.announced
        return not self._controller.changes and not (announced is not None and announced.coming)

    def live(self) -> Activity[None]:
        """Makes one change after the other until the simulation heals."""
        while not (self._world.is_healing and self.is_over):
            yield None
            self._turn()
            if self._world.is_healing:
                continue
            if not self._controller.changes and self._world.happens(0.05):
                self._begin()
            elif self._world.happens(0.005):
                self._do(self._controller.withdraw(TOPIC, "somebody wants none", self._world.seconds))
            elif self._world.happens(0.003):
                self._lead()

    def _lead(self) -> None:
        """Has another controller begin from what the layouts say; the former one is fenced."""
        self._terms += 1
        cluster, controller = self._cluster, Controller(self._members(), 0.0)
        self._controller, self._heard = controller, len(cluster.acknowledged)
        controller.known.know(TopicRecord(cluster.layout, FACE), {})
        if cluster.announced is not None:
            controller.announcing.announced.inherit([cluster.announced])
        if cluster.fence is not None:
            self._do(controller.found_fence(cluster.fence, self._world.seconds))
        elif self._wish is not None and self._world.happens(0.8):
            self._do(controller.begin(Change(TOPIC, self._wish), self._world.seconds))
        self._world.tell(f"controller {self._terms} begins")

    def _members(self) -> frozenset[str]:
        return frozenset(each.name for each in self._workers if each.has_lease)

    def _turn(self) -> None:
        """Lets the controller see who is there, what was acknowledged, and that time passes."""
        controller, now = self._controller, self._world.seconds
        self._turns += 1
        self._do(controller.on_members(self._members(), now, 0.0))
        heard, self._heard = self._heard, len(self._cluster.acknowledged)
        for name, worker in self._cluster.acknowledged[heard:]:
            self._do(controller.on_ack(name, worker, now))
        self._do(controller.on_tick(now, str(self._turns)))
        self._do(controller.announcing.withdraw_stale(lambda topic: topic not in controller.changes, now))

    def _begin(self) -> None:
        """Begins a change to another number of partitions, or a fence that moves nothing."""
        layout = self._cluster.layout
        change = Change(TOPIC, 1 + self._world.below(MOST))
        if change.target == layout.u:
            change.renewed = frozenset(layout.open_segments)
        else:
            self._wish = change.target
        self._do(self._controller.begin(change, self._world.seconds))

    def _do(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self._world.spawn(self._perform(command, self._terms))

    def _perform(self, command: Command, term: int) -> Activity[None]:
        """Does what the controller of a term asks for, and tells it, as long as it leads."""
        yield None
        if term != self._terms:
            return
        commands = yield from self._answer(command, term)
        if term == self._terms:
            self._do(commands)

    def _answer(self, command: Command, term: int) -> Activity[Sequence[Command]]:
        controller, cluster = self._controller, self._cluster
        announcing = controller.announcing
        match command:
            case Prepare(topic):
                return controller.on_prepared(topic, None, self._world.seconds)
            case Commit(topic, records):
                for key, value in records:
                    self._write(key.partition("/")[0], value)
                yield None
                return controller.on_committed(topic, self._world.seconds) if term == self._terms else []
            case ConfirmMembers(topic, announcement):
                known = controller.on_members(self._members(), self._world.seconds, 0.0)
                return [*known, *controller.on_confirmed(topic, self._world.seconds, announcement)]
            case AskEnds(topic, announcement, partitions):
                ends = {q: cluster.logs[q].end for q in partitions}
                yield None
                return announcing.on_ends(topic, announcement, ends, self._world.seconds)
            case AskOpen(topic, announcement, ends):
                at_leaders = [each for q in ends for each in _open_at(cluster.logs[q])]
                yield None
                known_open = self._known()
                yield None
                found = announcing.on_open(topic, announcement, at_leaders, known_open, self._world.seconds)
                self._judge_wait(at_leaders, ends)
                return found
            case ReadCuts(topic, fence, partitions):
                logs = [cluster.logs[q] for q in partitions]
                yield lambda: term != self._terms or all(log.high_watermark == log.end for log in logs)
                cluster.cuts |= {log.partition: log.end for log in logs}
                cuts = {log.partition: Producers(log.end, {}, leader_epoch=log.leader_epoch) for log in logs}
                return controller.on_cuts(topic, fence, cuts, self._world.seconds)
            case Finished() | Abandoned():
                self._wish = None
            case _:
                pass
        return []

    def _write(self, kind: str, value: object) -> None:
        """Makes a record of the layouts durable."""
        cluster = self._cluster
        match kind, value:
            case "topic", TopicRecord(layout):
                cluster.layout = layout
                self._world.tell(f"layout {layout.epoch}: {layout.homes}")
            case "announcement", AnnouncementRecord():
                cluster.announced = value
                self._world.tell(f"announces {dict(value.coming)} by {value.id}, ends {value.ends}")
            case "fence", FenceRecord() | None:
                cluster.fence = value
                self._world.tell(f"fence {sorted(value.sealed)}" if value is not None else "the fence ends")
            case _:
                pass

    def _known(self) -> list[OlderOpen]:
        return [
            OlderOpen(each.transactional_id, each.producer_id, frozenset(each.partitions), each.state.value, 0)
            for each in self._cluster.coordinators.values()
            if each.partitions
        ]

    def _judge_wait(self, at_leaders: Iterable[OpenAt], ends: Mapping[int, int]) -> None:
        """A change waits for what began before all knew of it, and for nothing else."""
        change = self._controller.changes.get(TOPIC)
        if change is None or change.stage is not Stage.OLDER:
            return
        later = {(each.partition, each.producer_id) for each in at_leaders if each.start_offset >= ends[each.partition]}
        if later & change.left:
            self._world.break_promise(f"a change waits for {later & change.left}, which began later")


def _open_at(log: Log) -> Iterator[OpenAt]:
    """Answers DescribeProducers: who has a transaction open."""
    for producer_id, each in log.producers.items():
        if each.start_offset != NOT_OPEN:
            yield OpenAt(log.partition, producer_id, each.start_offset)
