"""A cooperative group in memory: members that die at any step, late commits, resets, topics made again, logs cut short.

Members are `InHand` and `ReadEpochs` of the SDK, and what they leave to the next ones is a leader epoch and the text
of `range_text.py`. What stands between (fetching, draining, fencing by generation) does here what `client/cooperative`
and a coordinator do. `run` checks after each step what must always be true, and at the end that nothing is lost.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kordon.client.cooperative.entry import RecordInHand
from kordon.client.cooperative.found import Found
from kordon.client.cooperative.in_hand import HandLimits, InHand
from kordon.client.cooperative.leader_epochs import NO_EPOCH, ReadEpochs
from kordon.client.cooperative.range_text import RangesOwner, UnreadRanges, build, parse
from kordon.codecs.ranges import NONE, Ranges
from kordon.testing.messages.batch_heads import batch_head

_PARTITIONS = 2
_KEYS = (b"a", b"b", b"c", b"d", None)
_FIRST_ID = UUID(int=1)
_ROOM = (68, 72, 4096)
"""Bytes of a commit's metadata; the small ones cut ranges off."""


class _Row(NamedTuple):
    """A record."""

    key: bytes | None
    number: int
    """No other record has it, whatever becomes of the log."""


Held: TypeAlias = RecordInHand[int, _Row]


@dataclass(slots=True)
class _Log:
    """One partition's records, and what has become of each."""

    topic_id: UUID = _FIRST_ID
    rows: dict[int, _Row] = field(default_factory=dict[int, _Row])
    """By offset; some offsets have no record."""
    end: int = 0
    epochs: list[int] = field(default_factory=lambda: [0])
    """Where each leader epoch begins."""
    finished: set[int] = field(default_factory=set[int])
    """Numbers of records, by anyone, since the last reset of the group."""
    covered: set[int] = field(default_factory=set[int])
    """Finished, and in the last commit that a coordinator has taken."""
    committed: tuple[int, int, str] | None = None
    """Offset, leader epoch and metadata."""

    def epoch_of(self, offset: int) -> int:
        """Returns the leader epoch in which an offset was written."""
        return bisect_right(self.epochs, offset) - 1

    def end_of(self, epoch: int) -> int:
        """Returns what a broker answers to OffsetForLeaderEpoch."""
        return self.epochs[epoch + 1] if epoch + 1 < len(self.epochs) else self.end


@dataclass(frozen=True, slots=True)
class _Commit:
    """One partition's part of an OffsetCommit."""

    generation: int
    partition: int
    committed: tuple[int, int, str]
    covered: frozenset[int]
    topic_id: UUID


@dataclass(slots=True)
class _Member:
    name: int
    generation: int
    hand: InHand[int, _Row]
    epochs: ReadEpochs[int] = field(default_factory=ReadEpochs[int])
    running: list[Held] = field(default_factory=list[Held])
    late: list[_Commit] = field(default_factory=list["_Commit"])
    """Commits that are under way."""


class BrokenError(AssertionError):
    """What must be true is not; the message has the seed."""


class Group:
    """One history, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.repeats = 0
        """Records that were started though they were finished, and covered by no commit."""
        self._seed = seed
        self._chance = Random(seed)  # noqa: S311 - chance that can be repeated
        self._logs = [_Log() for _ in range(_PARTITIONS)]
        self._members: list[_Member] = []
        self._generation = 0
        self._names = 0
        self._records = 0
        self._now = 0.0

    def run(self, steps: int = 120) -> None:
        """Plays it through; raises BrokenError."""
        actions = (
            [self._append] * 4
            + [self._fetch] * 6
            + [self._start] * 12
            + [self._end] * 12
            + [self._commit] * 3
            + [self._arrive] * 3
            + [self._die, self._join, self._reset, self._make_again, self._elect]
        )
        for _ in range(steps):
            self._chance.choice(actions)()
            self._check_commits()
        self._until_all_is_done()

    # --- what happens

    def _append(self) -> None:
        log = self._chance.choice(self._logs)
        for _ in range(self._chance.randrange(1, 8)):
            if self._chance.random() < 0.85:
                self._records += 1
                log.rows[log.end] = _Row(self._chance.choice(_KEYS), self._records)
            log.end += 1

    def _fetch(self) -> None:
        for member in self._some_member():
            for partition in member.hand.wanted():
                log, begin = self._logs[partition], member.hand.position(partition)
                until = min(log.end, begin + self._chance.randrange(1, 9))
                if begin > log.end:  # out of range: it asks again where the group stands
                    self._rebalance()
                    return
                rows = [(o, log.rows[o]) for o in range(begin, until) if o in log.rows]
                # of offsets without a record there is a batch, too: of markers, or emptied by compaction
                batches = b"".join(batch_head(offset, log.epoch_of(offset)) for offset in range(begin, until))
                member.epochs.fetched(partition, batches, member.epochs.assignment)
                if self._is_cut(member, partition):
                    self._rebalance()
                    return
                member.hand.take(partition, [(offset, row.key, 1, row) for offset, row in rows], until)

    def _is_cut(self, member: _Member, partition: int) -> bool:
        while asked := member.epochs.doubts([partition]).get(partition):
            if self._logs[partition].end_of(asked[0].epoch) < asked[0].reach:
                return True
            member.epochs.settle(partition)
        return False

    def _start(self) -> None:
        for member in self._some_member():
            entry = member.hand.start(self._now)
            if entry is not None:
                self._check_start(member, entry)
                member.running.append(entry)

    def _end(self) -> None:
        for member in self._some_member():
            if not member.running:
                continue
            entry = member.running.pop(self._chance.randrange(len(member.running)))
            if self._chance.random() < 0.2:
                member.hand.release(entry, self._now + self._chance.randrange(5))
            elif member.hand.finish(entry):
                self._logs[entry.partition].finished.add(entry.record.number)
        self._now += 1

    def _commit(self) -> None:
        """A commit leaves a member; whether and when it arrives is another step."""
        for member in self._some_member():
            self._send_commits(member)

    def _send_commits(self, member: _Member) -> None:
        for partition in member.hand.partitions:
            log, progress = self._logs[partition], member.hand.progress(partition)
            text, told = build(self._owner(partition), progress.stable, progress.ranges, self._chance.choice(_ROOM))
            reach = max(progress.stable, progress.ranges.end)
            committed = progress.stable, member.epochs.at(partition, reach), text
            covered = {row.number for o, row in log.rows.items() if o < progress.stable or o in told} & log.finished
            member.late.append(_Commit(member.generation, partition, committed, frozenset(covered), log.topic_id))

    def _arrive(self) -> None:
        for member in self._some_member():
            if member.late:
                self._take_commit(member.late.pop(0))
            if member.late and self._chance.random() < 0.2:
                member.late.clear()  # lost with the connection

    def _take_commit(self, commit: _Commit) -> None:
        if commit.generation != self._generation:
            return  # ILLEGAL_GENERATION
        log = self._logs[commit.partition]
        log.committed = commit.committed
        if commit.topic_id == log.topic_id:
            log.covered = set(commit.covered)

    def _die(self) -> None:
        """Nothing that it has in hand, and nothing under way, is heard of again."""
        for member in self._some_member():
            self._members.remove(member)
            self._rebalance()

    def _join(self) -> None:
        if len(self._members) < 3:
            self._names += 1
            self._members.append(_Member(self._names, -1, InHand("key", HandLimits(12, 12, 4))))
            self._rebalance()

    def _reset(self) -> None:
        """An operator goes back while the group is empty; some tools leave the metadata as it was."""
        if self._members:
            return
        for partition, log in enumerate(self._logs):
            stands_at = self._found(partition).offset
            if log.committed is not None and stands_at > 0:
                offset = self._chance.randrange(stands_at)
                text = self._chance.choice(["", log.committed[2], "a tool's own text"])
                log.committed = offset, NO_EPOCH, text
                before = {row.number for o, row in log.rows.items() if o < offset}
                log.finished, log.covered = log.finished & before, log.finished & before

    def _elect(self) -> None:
        """A leader comes up with less than was acknowledged, or with all of it."""
        for partition, log in enumerate(self._logs):
            log.end = self._chance.randrange(self._blind(partition), log.end + 1)
            log.rows = {o: row for o, row in log.rows.items() if o < log.end}
            log.epochs.append(log.end)
            log.epochs = [min(begin, log.end) for begin in log.epochs]

    def _blind(self, partition: int) -> int:
        """Returns the offset before which nobody could tell that the log was cut: a tool tells no leader epoch."""
        log = self._logs[partition]
        known = [log.committed or (0, NO_EPOCH, "")]
        for member in self._members:
            known += [commit.committed for commit in member.late if commit.partition == partition]
            if partition in member.hand.partitions:
                stable = member.hand.progress(partition).stable
                known.append((stable, member.epochs.at(partition, stable), ""))
        return min(log.end, max(offset if epoch == NO_EPOCH else 0 for offset, epoch, _ in known))

    def _make_again(self) -> None:
        """The topic is deleted and made again; the ranges of its former life come back with offset 0."""
        if self._members or self._chance.random() < 0.5:
            return
        for partition, log in enumerate(self._logs):
            text, _ = build(self._owner(partition), 0, Ranges([(1, max(log.end, 2))]))
            self._logs[partition] = _Log(UUID(int=log.topic_id.int + 1), committed=(0, NO_EPOCH, text))

    def _rebalance(self) -> None:
        """All members drain and give up; those that are asleep cannot, and what they have sent arrives too late."""
        asleep = self._chance.random() < 0.3
        for member in self._members:
            if not asleep:
                while member.running:
                    entry = member.running.pop()
                    if self._chance.random() < 0.7 and member.hand.finish(entry):  # the others are cancelled
                        self._logs[entry.partition].finished.add(entry.record.number)
                self._send_commits(member)
                for commit in member.late:
                    self._take_commit(commit)
                member.late.clear()
        self._generation += 1
        for number, member in enumerate(self._members):
            self._drop(member, member.hand.revoke(list(member.hand.partitions)))
            member.generation = self._generation
            member.epochs.forget()
            for partition in range(number, _PARTITIONS, len(self._members)):
                found = self._found(partition)
                member.hand.assign(partition, found.offset, found.ranges)
                member.epochs.begin(partition, found.reach, found.epoch)

    def _found(self, partition: int) -> Found:
        log = self._logs[partition]
        offset, epoch, text = log.committed or (0, NO_EPOCH, "")
        try:
            found = Found(offset, parse(self._owner(partition), offset, text), epoch)
        except UnreadRanges:
            found = Found(offset, NONE, epoch)
        if epoch != NO_EPOCH:
            found = found.as_of(log.end_of(epoch))
        return found.behind(log.end) or Found(0)

    @staticmethod
    def _drop(member: _Member, started: list[Held]) -> None:
        member.running = [entry for entry in member.running if entry not in started]

    # --- what must be true

    def _check_start(self, member: _Member, entry: Held) -> None:
        log = self._logs[entry.partition]
        key, number = entry.record
        if log.rows.get(entry.offset) != entry.record:
            return  # it was cut off, and its member does not know that yet
        before = {row.number for o, row in log.rows.items() if row.key == key is not None and o < entry.offset}
        if missing := before - log.finished:
            raise BrokenError(f"seed {self._seed}: {entry.offset} is started before {sorted(missing)} of its key")
        for other in self._members:
            for busy in other.running:
                if busy.partition == entry.partition and busy.record.key == key is not None:
                    raise BrokenError(f"seed {self._seed}: {busy.offset} and {entry.offset} of one key run at once")
        if number in log.covered:
            raise BrokenError(f"seed {self._seed}: {entry.offset} is started again though a commit covers it")
        self.repeats += number in log.finished

    def _check_commits(self) -> None:
        """What a member would leave out now was finished."""
        for partition, log in enumerate(self._logs):
            found = self._found(partition)
            left_out = {row.number for o, row in log.rows.items() if o < found.offset or o in found.ranges}
            if lost := left_out - log.finished:
                raise BrokenError(f"seed {self._seed}: {sorted(lost)} of partition {partition} would be lost")

    def _until_all_is_done(self) -> None:
        self._join()
        for log in self._logs:  # what was cut is noticed when there is more to fetch
            log.end += 1
        for _ in range(2_000):
            for action in (self._fetch, self._start, self._end):
                action()
        for number, log in enumerate(self._logs):
            if lost := {row.number for row in log.rows.values()} - log.finished:
                raise BrokenError(f"seed {self._seed}: {sorted(lost)} of partition {number} was never finished")

    def _some_member(self) -> list[_Member]:
        return [self._chance.choice(self._members)] if self._members else []

    def _owner(self, partition: int) -> RangesOwner:
        return RangesOwner("group", "topic", partition, self._logs[partition].topic_id)
