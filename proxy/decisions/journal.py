"""The journal of one worker: decisions come in, records go to the backlog, and traffic never waits for it.

`note` takes one decision. `admitted`, `delivered` and `refused` are called for each batch, answer or refusal, and merge
them into runs (`runs.py`). A run ends when something does not go on with it, some time after it is `run_ms` old, when
its connection ends, and in front of a decision that changes the rules for its topic, so that what was admitted under a
layout stands before the worker's acknowledgement of the next fence.

`NoJournal` has the same methods and does nothing, so that no caller need ask whether decisions are recorded.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from time import time
from typing import Any, Final

from kordon.codecs.decision import Decision, Kind
from kordon.proxy.decisions.backlog import Backlog
from kordon.proxy.decisions.runs import Client, ReadRun, RefusalRun, Run, WriteRun

MOST_RUNS: Final = 100_000
"""Open at a time, some 300 bytes each; beyond, the oldest ends."""
_RULES_CHANGE: Final = frozenset({Kind.ACKNOWLEDGE, Kind.ADOPT, Kind.FORGET})


class Journal:
    """Takes in what a worker decides.

    Args:
        backlog: Where records wait to be written.
        run_ms: How long a run lasts at least, if nothing else ends it.
        now_ms: The time of day, in milliseconds since 1970.
    """

    is_on = True
    """Whether anything is recorded; for whoever would collect evidence only for that."""

    def __init__(self, backlog: Backlog, run_ms: int, now_ms: Callable[[], int] | None = None) -> None:
        self.backlog = backlog
        self._run_ms = run_ms
        self._now_ms = now_ms or wall_clock_ms
        self._numbers = itertools.count(1)
        self._open: dict[Run, None] = {}
        """Open runs, the oldest first."""

    def connected(self, principal: str | None = None) -> Client:
        """Numbers a connection."""
        return Client(next(self._numbers), None, principal)

    def named(self, client: Client, client_id: str | None, principal: str | None = None) -> None:
        """Notes how a connection calls itself, and as whom it is logged in, if either has changed."""
        if client.client_id != client_id or client.principal != principal:
            self._end_of(client, at_once=True)
            client.client_id, client.principal = client_id, principal

    def closed(self, client: Client, reason: str) -> None:
        """Ends the runs of a connection; that it ended is a record if there are others of it.

        Args:
            client: The connection.
            reason: The cause, as in metrics and the log.
        """
        self._end_of(client)
        if client.recorded:
            self.note(client.decision(Kind.CLOSE, reason=reason))
        client.reads.clear()

    def note(self, decision: Decision) -> None:
        """Records a decision; never blocks, never raises."""
        if decision.kind in _RULES_CHANGE:
            self._end_all(decision.topic)
        self.backlog.add(decision)

    def admitted(
        self,
        client: Client,
        *,
        topic: str,
        stream: int,
        partition: int,
        move: int,
        layout_epoch: int,
        layouts_offset: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        records: int,
        base_offset: int,
        size: int,
        count: int | None = None,
        sent_epoch: int | None = None,
    ) -> None:
        """Notes that a batch is written and acknowledged; called for each one.

        Args:
            client: Who wrote it.
            topic: Its topic.
            stream: A virtual partition, or ~q.
            partition: The physical one.
            move: Of the stay in which it lies.
            layout_epoch: Under which it was acknowledged.
            layouts_offset: Of the newest record of layouts on which that rests.
            producer_id: As the client knows it; -1 without idempotence.
            producer_epoch: Likewise.
            base_sequence: Likewise.
            records: How many.
            base_offset: In the physical partition.
            size: In bytes.
            count: By which its client chose the physical partition (undeleted_partition_count), if it says so.
            sent_epoch: The layout epoch in force when that count was judged.
        """
        run = client.writes.get((topic, stream, producer_id))
        if (
            run is not None
            and run.next_sequence == base_sequence
            and run.last_offset < base_offset
            and run.partition == partition
            and run.move == move
            and run.layout_epoch == layout_epoch
            and run.layouts_offset == layouts_offset
            and run.producer_epoch == producer_epoch
            and run.count == count
            and run.sent_epoch == sent_epoch
        ):
            run.last_offset = base_offset + records - 1
            if base_sequence >= 0:
                run.next_sequence = base_sequence + records
            run.batches += 1
            run.records += records
            run.size += size
            return
        if run is not None:
            self._end(run)
        run = client.writes[topic, stream, producer_id] = WriteRun(
            client,
            topic,
            stream,
            partition,
            move,
            layout_epoch,
            layouts_offset,
            producer_id,
            producer_epoch,
            base_sequence,
            base_sequence + records if base_sequence >= 0 else -1,
            base_offset,
            base_offset + records - 1,
            1,
            records,
            size,
            self._now_ms(),
            count,
            sent_epoch,
        )
        self._begin(run)

    def delivered(
        self,
        client: Client,
        *,
        topic: str,
        stream: int,
        partition: int,
        move: int,
        layout_epoch: int,
        layouts_offset: int,
        asked: int,
        told: int,
        first_offset: int,
        last_offset: int,
        records: int,
        size: int,
        group_id: str | None = None,
        member_id: str | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> None:
        """Notes what an answer gives of one stay of a stream; called for each partition of each answer.

        That the reader asked for something else than what goes on with what it had is noted by this, too (REWIND).

        Args:
            client: Who is given it.
            topic: Its topic.
            stream: A virtual partition, or ~q.
            partition: The physical one.
            move: Of the stay.
            layout_epoch: Under which it is given.
            layouts_offset: Of the newest record of layouts on which that rests.
            asked: For which offset the client asked, as it counts: of the stream. In the second and later stays of
                one answer, what was `told` of the one before.
            told: At which it stands behind this, as it counts.
            first_offset: In the physical partition, from where on it has all of the stream by this answer.
            last_offset: In the physical partition, up to where, inclusive.
            records: How many of the stream lie there.
            size: In bytes.
            group_id: For whom it is read, where that is known.
            member_id: Likewise.
            evidence: Why it may be given; begins a record of its own.
        """
        run = client.reads.get((topic, stream))
        if (
            run is not None
            and run.told == asked
            and run.last_offset + 1 == first_offset
            and run.is_open
            and run.partition == partition
            and run.move == move
            and run.layout_epoch == layout_epoch
            and run.layouts_offset == layouts_offset
            and run.group_id == group_id
            and run.member_id == member_id
            and evidence is None
        ):
            run.told = told
            run.last_offset = last_offset
            run.answers += 1
            run.records += records
            run.size += size
            return
        before = run
        run = client.reads[topic, stream] = ReadRun(
            client,
            topic,
            stream,
            partition,
            move,
            layout_epoch,
            layouts_offset,
            told,
            first_offset,
            last_offset,
            1,
            records,
            size,
            self._now_ms(),
            group_id,
            member_id,
            evidence,
        )
        if before is not None:
            if before.is_open:
                self._end(before)
            if before.told != asked:
                self.note(before.rewind(asked, run))
        self._begin(run)

    def refused(
        self,
        client: Client,
        *,
        api_key: int,
        reason: str,
        topic: str | None = None,
        stream: int | None = None,
        rule: str | None = None,
        layout_epoch: int | None = None,
        layouts_offset: int | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> None:
        """Notes an error of Kordon's own; the same again and again is one record.

        Args:
            client: Who is answered so.
            api_key: Of the request.
            reason: The error's name.
            topic: Of the part that is refused; None: all of it.
            stream: Likewise.
            rule: Which one says so.
            layout_epoch: Under which it was decided.
            layouts_offset: Of the newest record of layouts on which that rests.
            evidence: What it was taken from; of a run, that of the first time is kept.
        """
        run = client.refusals.get((api_key, topic, stream, reason))
        if run is not None and run.layout_epoch == layout_epoch and run.rule == rule:
            run.times += 1
            return
        if run is not None:
            self._end(run)
        run = RefusalRun(client, api_key, topic, stream, reason, rule, layout_epoch, layouts_offset, self._now_ms())
        run.evidence = evidence or {}
        client.refusals[api_key, topic, stream, reason] = run
        self._begin(run)

    def end_old_runs(self, most: int) -> None:
        """Ends runs that have lasted long enough, the oldest first; to be called now and then.

        Args:
            most: How many at most. A record costs as much as fifty batches that go on with a run: where very many
                are under way, they last longer rather than take the time of traffic.
        """
        until = self._now_ms() - self._run_ms
        oldest = list(itertools.islice(self._open, most))
        for run in itertools.takewhile(lambda each: each.began_ms <= until, oldest):
            self._end(run)

    def end_runs(self) -> None:
        """Ends all runs: nothing comes any more."""
        self._end_all(None)

    def _begin(self, run: Run) -> None:
        run.client.recorded = True
        self._open[run] = None
        if len(self._open) > MOST_RUNS:
            self._end(next(iter(self._open)))

    def _end(self, run: Run, *, at_once: bool = False) -> None:
        """Ends a run; it is written down later, as a fence may wait for the ends of thousands."""
        del self._open[run]
        run.end()
        if at_once or not run.is_plain:
            self.backlog.add(run.decision(), run.began_ms)
        else:
            self.backlog.add_later(run.kind, run.decision, run.began_ms)

    def _end_of(self, client: Client, *, at_once: bool = False) -> None:
        """Ends all that is open of a connection."""
        reads = [run for run in client.reads.values() if run.is_open]
        ending: list[Run] = [*client.writes.values(), *reads, *client.refusals.values()]
        for run in ending:
            self._end(run, at_once=at_once)

    def _end_all(self, topic: str | None) -> None:
        """Ends all that is open of a topic; None: of all."""
        ending: list[Run] = [run for run in self._open if topic is None or run.topic == topic]
        for run in ending:
            self._end(run)


class NoJournal(Journal):
    """Records nothing: what would be noted costs a call, and whoever is called for each batch asks `is_on` before."""

    is_on = False

    def __init__(self) -> None:
        super().__init__(Backlog("", "", 0, wall_clock_ms), run_ms=0)

    def named(self, client: Client, client_id: str | None, principal: str | None = None) -> None:
        """Does nothing."""

    def closed(self, client: Client, reason: str) -> None:
        """Does nothing."""

    def note(self, decision: Decision) -> None:
        """Does nothing."""

    def admitted(self, *_: Any, **__: Any) -> None:
        """Does nothing."""

    def delivered(self, *_: Any, **__: Any) -> None:
        """Does nothing."""

    def refused(self, *_: Any, **__: Any) -> None:
        """Does nothing."""


def wall_clock_ms() -> int:
    """Returns the time of day, in milliseconds since 1970."""
    return int(time() * 1000)
