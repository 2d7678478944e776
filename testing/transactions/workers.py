"""A worker: what it remembers, what it sees of layout, leaders and announcements, and how it serves transactions.

What it knows of its topic, and what may be written and shown of that, is the product's: `ManagedTopic`, `ReadLimits`.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from kordon.client.homes import NO_STAMP, Stamp
from kordon.proxy.ordering import write_sequencer
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import FenceRecord
from kordon.proxy.ordering.streams import Stream, is_physical, shown_partition
from kordon.proxy.ordering.transactions.adds import Announcement, Course, course, plan
from kordon.proxy.ordering.transactions.beliefs import Beliefs, Ground, Inquiry, ProducerClaim, Step, after_leader
from kordon.proxy.ordering.transactions.events import Batch, Protocol
from kordon.proxy.ordering.transactions.open_answers import LeaderAnswer, LeaderSays, leader_says, witness_sequence
from kordon.proxy.reads.worker_reads import ReadLimits
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic, Why
from kordon.testing.transactions.cluster import FACE, Cluster
from kordon.testing.transactions.codes import Code
from kordon.testing.transactions.logs import Entry, Record, Txn
from kordon.testing.transactions.world import Activity, Slot

LEASE_STEPS: Final = 80
FORGER: Final = "mallory"
_TRIES: Final = 12


class Sent(NamedTuple):
    """A record as it comes in a Produce request."""

    record: Record
    stream: Stream
    stamp: Stamp = NO_STAMP
    """The layout by which a client of the dialect has chosen its partition."""


class Worker:
    """One of several.

    Args:
        cluster: What they share.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.is_stopped = False
        self.topic = ManagedTopic(cluster.layout, FACE)
        self.limits = ReadLimits(lambda: self.has_lease, None)
        self.lease_until = LEASE_STEPS
        self._cluster, self._world = cluster, cluster.world
        self._leaders = {q: log.leader_epoch for q, log in cluster.logs.items()}
        self._in_flight: Counter[int] = Counter()
        self._beliefs = Beliefs()
        self._terms = 0
        """How often its lease had ended: a fence that stands does not wait for what it has sent before."""
        self._shown: dict[int, tuple[int, int]] = {}
        """By physical partition, the leader epoch and the offset up to which its readers may know that leader's log."""
        self._landed: dict[int, int] = {}
        """By physical partition, the offset behind what clients were told to be written since a fence was raised."""
        self._misled: set[int] = set()
        """Producers that it believes open by the transaction before."""

    @property
    def layout(self) -> Layout:
        return self.topic.layout

    @property
    def has_lease(self) -> bool:
        return self._world.now <= self.lease_until

    def renew(self) -> None:
        """Renews the lease; if it had ended, reads the layouts first."""
        if not self.has_lease:
            self.follow()
            self._terms += 1
        self.lease_until = self._world.now + LEASE_STEPS

    def follow(self) -> None:
        """Reads the layouts to their end, and acknowledges announcements and fences."""
        cluster, topic = self._cluster, self.topic
        if cluster.layout is not topic.layout:
            topic.adopt(cluster.layout, {})
        if cluster.fence is None and topic.fence is not None:
            topic.cancel_fence()
        if cluster.fence is not None and self._standing(cluster.fence) is None:
            topic.raise_fence(Fence(cluster.fence.id, cluster.fence.sealed, is_late=not self.has_lease))
            self._landed = {}
            self._world.spawn(self._hold(cluster.fence), self)
        announced = cluster.announced
        if announced is not None:
            topic.announce(Announcement(announced.number, announced.coming))
            if announced.coming:
                cluster.acknowledge(announced.id, self.name)

    def _standing(self, record: FenceRecord) -> Fence | None:
        fence = self.topic.fence
        return fence if fence is not None and fence.id == record.id else None

    def _hold(self, record: FenceRecord) -> Activity[None]:
        """Acknowledges a fence, once nothing is under way and readers are shown nothing more (FROZEN-READS)."""
        topic, logs, terms = self.topic, self._cluster.logs, self._terms
        if (standing := self._standing(record)) is None:
            return
        topic.narrow_fence(standing.freezing({q: self._shown[q][1] for q in record.sealed & self._shown.keys()}))
        yield self._world.journey()
        ends = {q: logs[q].high_watermark for q in record.sealed}
        yield lambda: not any(self._in_flight[q] for q in record.sealed)
        if (standing := self._standing(record)) is not None:
            has_served = terms == self._terms and self.has_lease
            topic.narrow_fence(standing.frozen(ends, self._landed, has_served=has_served))
            self._cluster.acknowledge(record.id, self.name)

    def note_shown(self, partition: int, leader_epoch: int, end: int) -> None:
        """Notes up to where a reader knows a log; what was known of a former leader's does not count any more."""
        self._shown[partition] = max(self._shown.get(partition, (-1, 0)), (leader_epoch, end))

    def refresh(self, partition: int) -> None:
        """Reads metadata anew."""
        self._leaders[partition] = self._cluster.logs[partition].leader_epoch

    def add(self, claim: ProducerClaim, txn: Txn, streams: frozenset[Stream], slot: Slot[Code]) -> Activity[None]:
        """Serves AddPartitionsToTxn of v1, of virtual partitions or (by the dialect) of physical ones."""
        for _ in range(_TRIES):
            if not self.has_lease:
                break
            homes = {each: self._named_home(each) for each in streams}
            planned = plan(streams, homes, self.layout.epoch, self._announced(streams))
            code = yield from self._add(claim, txn, sorted(planned.partitions))
            next_course = course(planned, self.layout.epoch, self._announced(streams), has_lease=self.has_lease)
            if code is not Code.OK or next_course is Course.GO_ON:
                return slot.put(code)
            if next_course is Course.LATER:
                break
        return slot.put(Code.CONCURRENT)

    def _named_home(self, stream: Stream) -> int:
        home = shown_partition(stream) if is_physical(stream) else self.layout.homes[stream]
        assert home is not None, "all are born at first"
        return home

    def _announced(self, streams: Iterable[Stream]) -> Announcement:
        """Returns what is announced of streams; physical partitions go nowhere."""
        announced = self.topic.announcement
        return Announcement(announced.number) if any(map(is_physical, streams)) else announced

    def _add(self, claim: ProducerClaim, txn: Txn, partitions: list[int]) -> Activity[Code]:
        yield None
        code = self._cluster.coordinators[claim.transactional_id].add(txn, partitions)
        if code is not Code.OK:
            self._beliefs.drop(claim.producer_id)
            return code
        self._beliefs.allow(claim, self._world.seconds)
        for q in partitions:
            code = yield from self._open(claim, txn, q)
            if code is not Code.OK:
                return code
        return Code.OK

    def _open(self, claim: ProducerClaim, txn: Txn, q: int) -> Activity[Code]:
        """Sees to it that a producer of v1 is open on a partition, once the coordinator has taken that."""
        for _ in range(_TRIES):
            yield None
            leader_epoch = self._leaders[q]
            inquiry = self._beliefs.inquire(claim, q, Ground(self.layout.epoch, leader_epoch))
            code = yield from self._open_under(leader_epoch, claim, txn, q)
            if code is Code.OK:
                self._believe(inquiry, txn)
                return code
            self._beliefs.close(inquiry)
            if code is not Code.NOT_LEADER:
                self._beliefs.drop(claim.producer_id)
                return Code.CONCURRENT if code is Code.INVALID_TXN_STATE else code
            self.refresh(q)
        return Code.CONCURRENT

    def _believe(self, inquiry: Inquiry, txn: Txn) -> None:
        """Takes a producer of v1 for open; a copy that came late, before the marker, is of the transaction before."""
        self._beliefs.confirm(inquiry)
        if txn.outcome is not None:
            self._misled.add(txn.producer_id)

    def _open_under(self, leader_epoch: int, claim: ProducerClaim, txn: Txn, q: int) -> Activity[Code]:
        answer = yield from self._ask(q, claim.producer_id, leader_epoch)
        says = leader_says(answer, claim.epoch, leader_epoch)
        if says is not LeaderSays.NOT_OPEN:
            return Code.OK if says is LeaderSays.OPEN else Code.NOT_LEADER
        sequence = witness_sequence(answer, claim.epoch)
        return (yield from self._witness(txn, q, leader_epoch, (sequence, sequence)))

    def _ask(self, q: int, producer_id: int, leader_epoch: int) -> Activity[LeaderAnswer]:
        yield None
        answer = self._cluster.logs[q].ask(producer_id, leader_epoch)
        yield None
        return self._cluster.logs[q].ask_again(answer)

    def _witness(self, txn: Txn, q: int, leader_epoch: int, sequences: tuple[int, int]) -> Activity[Code]:
        slot = Slot[Code]()
        self._world.spawn(self._append_witness(txn, q, leader_epoch, sequences, slot))
        yield lambda: slot.is_filled
        is_unsure = slot.value in {Code.UNSURE, Code.OUT_OF_ORDER}
        return Code.NOT_LEADER if is_unsure or slot.value is None else slot.value

    def _append_witness(
        self, txn: Txn, q: int, leader_epoch: int, sequences: tuple[int, int], slot: Slot[Code]
    ) -> Activity[None]:
        """Is a request on its way: whoever sent it may be stopped."""
        yield self._world.journey()
        log, coordinator = self._cluster.logs[q], self._cluster.coordinators[txn.transactional_id]
        if log.leader_epoch != leader_epoch:
            return slot.put(Code.NOT_LEADER)
        verified = coordinator.verify(txn, q) if txn.is_v1 else coordinator.add(txn, [q])
        if verified is not Code.OK:
            return slot.put(verified)
        offset = log.append_witness(txn.producer_id, txn.epoch, sequences)
        if isinstance(offset, Code):
            return slot.put(offset)
        yield log.replicated(offset)
        return slot.put(Code.OK if log.leader_epoch == leader_epoch else Code.UNSURE)

    def produce(self, claim: ProducerClaim, protocol: Protocol, sent: Sent, slot: Slot[Code]) -> Activity[None]:
        """Serves a batch of Produce."""
        code = yield from self._produce(claim, protocol, sent)
        if code not in {Code.OK, Code.NOT_LEADER}:
            self._beliefs.drop(claim.producer_id)
        return slot.put(code)

    def _produce(self, claim: ProducerClaim, protocol: Protocol, sent: Sent) -> Activity[Code]:
        record = sent.record
        for _ in range(_TRIES):
            home = self.topic.open_home(sent.stream, may_serve=self.has_lease)
            if isinstance(home, Why):
                return Code.NOT_LEADER
            q = home.partition
            ground = Ground(self.layout.epoch, self._leaders[q])
            step = self._beliefs.step(claim, protocol, q, ground, self._world.seconds)
            if step is Step.WRITE:
                code = yield from self._write(claim, protocol, sent, home, ground)
                if code in {Code.OK, Code.OUTDATED}:
                    return code
                self.refresh(q)
                continue
            code = yield from self._learn(step, claim, record, q, ground)
            if code is not Code.OK:
                return code
        return Code.NOT_LEADER

    def _learn(self, step: Step, claim: ProducerClaim, record: Record, q: int, ground: Ground) -> Activity[Code]:
        """Does what comes before data are written."""
        if step is Step.ASK_RIGHT:
            yield None
            asked = self._world.seconds
            if claim.principal == FORGER:
                return Code.DENIED
            self._beliefs.allow(claim, asked)
            return Code.OK
        if step is Step.WITNESS:
            return (yield from self._open_v2(claim, record, q, ground))
        inquiry = self._beliefs.inquire(claim, q, ground)
        answer = yield from self._ask(q, claim.producer_id, ground.leader_epoch)
        step = after_leader(leader_says(answer, claim.epoch, ground.leader_epoch))
        if step is Step.WRITE:
            self._believe(inquiry, record.txn)
            return Code.OK
        self._beliefs.close(inquiry)
        if step is Step.REFUSE:
            self._judge_refusal(record, q)
            return Code.INVALID_TXN_STATE
        self.refresh(q)
        return Code.NOT_LEADER

    def _open_v2(self, claim: ProducerClaim, record: Record, q: int, ground: Ground) -> Activity[Code]:
        if claim.principal == FORGER:
            return Code.DENIED
        inquiry = self._beliefs.inquire(claim, q, ground)
        code = yield from self._witness(record.txn, q, ground.leader_epoch, (0, 1))
        if code is Code.OK:
            self._beliefs.confirm(inquiry)
            return code
        self._beliefs.close(inquiry)
        self.refresh(q)
        return Code.NOT_LEADER if code is Code.CONCURRENT else code

    def _write(
        self, claim: ProducerClaim, protocol: Protocol, sent: Sent, home: Stay, ground: Ground
    ) -> Activity[Code]:
        record, q = sent.record, home.partition
        if is_outdated(sent.stamp, home, self.layout.count_in_force):
            return self._earlier(sent, home)
        record.is_misled |= record.txn.is_native and claim.producer_id in self._misled
        self._in_flight[q] += 1
        term = self._terms
        slot = Slot[Code]()
        batch = Batch(-1, claim.producer_id, claim.epoch, protocol)
        entry = Entry(batch, stream=sent.stream, move=home.move, record=record)
        self._world.spawn(self._append(entry, record, q, ground.leader_epoch, slot))
        yield lambda: slot.is_filled
        self._in_flight[q] -= 1
        is_same = self.has_lease and self.layout.epoch == ground.layout_epoch
        is_cut = self.topic.is_sealed(q) and self._terms > term
        if slot.value is not Code.OK or not is_same or is_cut:
            return Code.UNSURE
        places = self._cluster.places_of(record, sent.stream)
        self._landed[q] = max([self._landed.get(q, 0), *(at + 1 for where, at in places if where == q)])
        return Code.OK

    def _earlier(self, sent: Sent, home: Stay) -> Code:
        """Tells of what is not to be written any more whether an earlier segment has it, as images do (SEQ-IMAGE)."""
        logs = self._cluster.logs
        places = self._cluster.places_of(sent.record, sent.stream)
        moves = {logs[q].entries[offset].move for q, offset in places}
        return Code.OK if moves - ({home.move} if home.end is None else set()) else Code.OUTDATED

    def _append(self, entry: Entry, record: Record, q: int, leader_epoch: int, slot: Slot[Code]) -> Activity[None]:
        """Is a request on its way, which a fence waits for as long as its worker has a lease."""
        yield self._world.journey()
        log = self._cluster.logs[q]
        if log.leader_epoch != leader_epoch:
            return slot.put(Code.NOT_LEADER)
        place = next(iter(self._cluster.places_of(record, entry.stream)), None)
        if place is None:
            if record.txn.is_v1 and record.txn.outcome is not None and log.is_open(record.txn):
                record.may_show = True
            assert isinstance(entry.what, Batch)
            entry.what = entry.what._replace(offset=log.end)
            place = q, log.append(entry)
        where, offset = self._cluster.logs[place[0]], place[1]
        epoch = where.leader_epoch
        yield where.replicated(offset)
        return slot.put(Code.OK if where.leader_epoch == epoch else Code.UNSURE)

    def end(self, claim: ProducerClaim, txn: Txn, slot: Slot[Code], *, is_commit: bool) -> Activity[None]:
        """Passes EndTxn on."""
        yield None
        code = self._cluster.coordinators[claim.transactional_id].end(txn, is_commit=is_commit)
        self._beliefs.drop(claim.producer_id)
        self._misled.discard(claim.producer_id)
        yield None
        return slot.put(code)

    def _judge_refusal(self, record: Record, q: int) -> None:
        """A transaction is refused when a witness of it was lost, not for what Kordon does itself."""
        txn = record.txn
        is_open = self._cluster.coordinators[txn.transactional_id].is_open_for(txn) and not record.is_forged
        is_shaken = any(log.shaken >= txn.began for log in self._cluster.logs.values())
        hangs = self._cluster.logs[q].hangs(txn.producer_id)  # an answer tells the older witness, not the one of now
        if is_open and not is_shaken and not txn.is_native and not hangs:
            self._world.break_promise(f"transaction {txn.number} was refused on {q} though it was open")


def is_outdated(stamp: Stamp, home: Stay, count: int) -> bool:
    """Whether a client of the dialect has chosen a partition by a layout that is over (COUNT-FENCE)."""
    if stamp == NO_STAMP:
        return False
    write = write_sequencer.Write(0, 0, 0, 1, 0, -1, 0.0, *stamp)
    return write_sequencer._is_outdated(write, home, count)
