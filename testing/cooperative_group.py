"""A cooperative group in memory: members that die at any step, late commits, rebalances, resets, a topic made again.

Members are `InHand` of the SDK, and what they leave to the next ones is the text of `range_text.py`. What stands
between (fetching, draining, fencing by generation) does here what `client/cooperative` and a coordinator do. `run`
checks after each step what must always be true, and at the end that nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias
from uuid import UUID

from kordon.client.cooperative.entry import Entry
from kordon.client.cooperative.in_hand import InHand, Limits
from kordon.client.cooperative.range_text import Owner, UnreadRanges, build, parse

Held: TypeAlias = Entry[int, bytes | None]

_PARTITIONS = 2
_KEYS = (b"a", b"b", b"c", b"d", None)
_FIRST_ID = UUID(int=1)
_ROOM = (60, 64, 4096)
"""Bytes of a commit's metadata; the small ones cut ranges off."""


@dataclass(slots=True)
class _Log:
    """One partition's records, and what has become of each."""

    topic_id: UUID = _FIRST_ID
    rows: dict[int, bytes | None] = field(default_factory=dict[int, bytes | None])
    """Keys by offset; some offsets have no record."""
    end: int = 0
    finished: set[int] = field(default_factory=set[int])
    """By anyone, since the last reset of the group."""
    covered: set[int] = field(default_factory=set[int])
    """Finished, and in the last commit that a coordinator has taken."""
    committed: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class _Commit:
    """One partition's part of an OffsetCommit."""

    generation: int
    partition: int
    offset: int
    text: str
    covered: frozenset[int]
    topic_id: UUID


@dataclass(slots=True)
class _Member:
    name: int
    generation: int
    hand: InHand[int, bytes | None]
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
            + [self._die, self._join, self._reset, self._make_again]
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
                log.rows[log.end] = self._chance.choice(_KEYS)
            log.end += 1

    def _fetch(self) -> None:
        for member in self._some_member():
            for partition in member.hand.wanted():
                log, begin = self._logs[partition], member.hand.position(partition)
                until = min(log.end, begin + self._chance.randrange(1, 9))
                if begin > log.end:  # out of range: the log is another one
                    self._drop(member, member.hand.revoke([partition]))
                    member.hand.assign(partition, 0)
                    continue
                rows = [(o, log.rows[o], 1, log.rows[o]) for o in range(begin, until) if o in log.rows]
                member.hand.take(partition, rows, until)

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
                self._logs[entry.partition].finished.add(entry.offset)
        self._now += 1

    def _commit(self) -> None:
        """A commit leaves a member; whether and when it arrives is another step."""
        for member in self._some_member():
            self._send_commits(member)

    def _send_commits(self, member: _Member) -> None:
        for partition in member.hand.partitions:
            log, progress = self._logs[partition], member.hand.progress(partition)
            text, count = build(self._owner(partition), progress.stable, progress.ranges, self._chance.choice(_ROOM))
            ranges = progress.ranges[:count]
            covered = {o for o in log.rows if o < progress.stable or any(b <= o < e for b, e in ranges)}
            member.late.append(
                _Commit(member.generation, partition, progress.stable, text, frozenset(covered), log.topic_id)
            )

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
        log.committed = commit.offset, commit.text
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
            self._members.append(_Member(self._names, -1, InHand("key", Limits(12, 12, 4))))
            self._rebalance()

    def _reset(self) -> None:
        """An operator goes back while the group is empty; some tools leave the metadata as it was."""
        if self._members:
            return
        for log in self._logs:
            if log.committed is not None and log.committed[0] > 0:
                offset = self._chance.randrange(log.committed[0])
                log.committed = offset, self._chance.choice(["", log.committed[1], "a tool's own text"])
                log.finished = log.covered = {o for o in log.finished if o < offset}

    def _make_again(self) -> None:
        """The topic is deleted and made again; the ranges of its former life come back with offset 0."""
        if self._members or self._chance.random() < 0.5:
            return
        for partition, log in enumerate(self._logs):
            text, _ = build(self._owner(partition), 0, [(1, max(log.end, 2))])
            self._logs[partition] = _Log(UUID(int=log.topic_id.int + 1), committed=(0, text))

    def _rebalance(self) -> None:
        """All members drain and give up; those that are asleep cannot, and what they have sent arrives too late."""
        asleep = self._chance.random() < 0.3
        for member in self._members:
            if not asleep:
                while member.running:
                    entry = member.running.pop()
                    if self._chance.random() < 0.7 and member.hand.finish(entry):  # the others are cancelled
                        self._logs[entry.partition].finished.add(entry.offset)
                self._send_commits(member)
                for commit in member.late:
                    self._take_commit(commit)
                member.late.clear()
        self._generation += 1
        for number, member in enumerate(self._members):
            self._drop(member, member.hand.revoke(list(member.hand.partitions)))
            member.generation = self._generation
            for partition in range(number, _PARTITIONS, len(self._members)):
                offset, ranges = self._found(partition)
                member.hand.assign(partition, offset, ranges)

    def _found(self, partition: int) -> tuple[int, list[tuple[int, int]]]:
        log = self._logs[partition]
        offset, text = log.committed or (0, "")
        try:
            ranges = parse(self._owner(partition), offset, text)
        except UnreadRanges:
            return offset, []
        return offset, ranges if not ranges or ranges[-1][1] <= log.end else []

    @staticmethod
    def _drop(member: _Member, started: list[Held]) -> None:
        member.running = [entry for entry in member.running if entry not in started]

    # --- what must be true

    def _check_start(self, member: _Member, entry: Held) -> None:
        log = self._logs[entry.partition]
        before = {o for o, key in log.rows.items() if key == entry.record is not None and o < entry.offset}
        if missing := before - log.finished:
            raise BrokenError(f"seed {self._seed}: {entry.offset} is started before {sorted(missing)} of its key")
        for other in self._members:
            for busy in other.running:
                if busy.partition == entry.partition and busy.record == entry.record is not None:
                    raise BrokenError(f"seed {self._seed}: {busy.offset} and {entry.offset} of one key run at once")
        if entry.offset in log.covered:
            raise BrokenError(f"seed {self._seed}: {entry.offset} is started again though a commit covers it")
        self.repeats += entry.offset in log.finished

    def _check_commits(self) -> None:
        """What a member would leave out now was finished."""
        for partition, log in enumerate(self._logs):
            offset, ranges = self._found(partition)
            left_out = {o for o in log.rows if o < offset or any(b <= o < e for b, e in ranges)}
            if lost := left_out - log.finished:
                raise BrokenError(f"seed {self._seed}: {sorted(lost)} of partition {partition} would be lost")

    def _until_all_is_done(self) -> None:
        self._join()
        for _ in range(2_000):
            for action in (self._fetch, self._start, self._end):
                action()
        for number, log in enumerate(self._logs):
            if lost := log.rows.keys() - log.finished:
                raise BrokenError(f"seed {self._seed}: {sorted(lost)} of partition {number} was never finished")

    def _some_member(self) -> list[_Member]:
        return [self._chance.choice(self._members)] if self._members else []

    def _owner(self, partition: int) -> Owner:
        return Owner("group", "topic", partition, self._logs[partition].topic_id)
