"""The journal of one worker: decisions come in, records go to the backlog, and traffic never waits for either.

`note` takes one decision. `admitted`, `delivered` and `refused` take one batch, answer or error each, and merge it into
a run (`runs.py`). A run ends when the next event does not go on with it, when it is older than `run_ms`, and when its
connection ends. It also ends before a decision that changes the rules for its topic. So what was admitted under a
layout stands before the worker's acknowledgement of the next fence. What groups commit has runs of its own
(`commits.py`), which last longer and say nothing about layouts.

`NoJournal` has the same methods and does nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Final

from kordon.codecs.decision import Decision, Kind
from kordon.proxy.decisions.backlog import Backlog
from kordon.proxy.decisions.commits import Commits
from kordon.proxy.decisions.crossed_answers import CrossedAnswers
from kordon.proxy.decisions.events import NO_GROUP, NOTHING, Given, OwnError, ReadingMember
from kordon.proxy.decisions.runs import Client, ReadRun, RefusalRun, Run, WriteRun
from kordon.proxy.ordering.write_sequencer import Write
from kordon.proxy.runtime.clock import now_ms
from kordon.proxy.topics.managed_topics import ManagedTopic

MOST_RUNS: Final = 100_000
"""The most open runs, of some 300 bytes each; beyond that the oldest ends."""
_RULES_CHANGE: Final = frozenset({Kind.ACKNOWLEDGE, Kind.ADOPT, Kind.FORGET})


class Journal:
    """Takes in what a worker decides.

    Args:
        backlog: The backlog, which keeps records until they are written.
        run_ms: The least time for which a run lasts if nothing else ends it.
        now_ms: The time of day, in milliseconds since 1970.
    """

    is_on = True
    """Whether decisions are recorded. Ask it before you collect evidence only for them."""

    def __init__(self, backlog: Backlog, run_ms: int, now_ms: Callable[[], int] = now_ms) -> None:
        self.backlog = backlog
        self._run_ms = run_ms
        self._now_ms = now_ms
        self._numbers = itertools.count(1)
        self._open: dict[Run, None] = {}
        """Open runs, the oldest first."""
        self.commits = Commits(backlog, self._now_ms)
        self.crossed = CrossedAnswers()

    def connected(self, principal: str | None = None) -> Client:
        """Numbers a connection."""
        return Client(next(self._numbers), None, principal)

    def named(self, client: Client, client_id: str | None, principal: str | None = None) -> None:
        """Notes a connection's client id and user, if either has changed."""
        if client.client_id != client_id or client.principal != principal:
            self._end_of(client, at_once=True)
            client.client_id, client.principal = client_id, principal

    def closed(self, client: Client, reason: str) -> None:
        """Ends the runs of a connection. Its end is a record if others name it; the reason is the metrics' cause."""
        self._end_of(client)
        if client.recorded:
            self.note(Decision(kind=Kind.CLOSE, **client.fields(), reason=reason))
        client.reads.clear()

    def note(self, decision: Decision) -> None:
        """Records a decision; never blocks, never raises."""
        if decision.kind in _RULES_CHANGE:
            self._end_all(decision.topic)
        self.backlog.add(decision)

    def admitted(self, client: Client, topic: ManagedTopic, stream: int, write: Write, base_offset: int) -> None:
        """Notes that a batch is written and acknowledged; called for each batch.

        The stream is a virtual partition or ~q, the offset that of the physical partition.
        """
        key = (topic.name, stream, write.producer_id)
        run = client.writes.get(key)
        if run is not None:
            if run.merge(topic, write, base_offset):
                return
            self._end(run)
        client.writes[key] = run = WriteRun(
            client, topic, stream, write, base_offset=base_offset, began_ms=self._now_ms()
        )
        self._begin(run)

    def delivered(
        self,
        client: Client,
        topic: ManagedTopic,
        stream: int,
        given: Given,
        *,
        group: ReadingMember = NO_GROUP,
        evidence: Mapping[str, object] = NOTHING,
    ) -> None:
        """Notes what an answer gives of one stay of a stream; called for each partition of each answer.

        A reader that asks for another offset than the next one is on record by this, too (REWIND). Evidence says why
        the client may have what it is given, and begins a record of its own.
        """
        before = client.reads.get((topic.name, stream))
        if before is not None and before.merge(topic, given, group, evidence):
            return
        run = ReadRun(client, topic, stream, given, group=group, evidence=evidence, began_ms=self._now_ms())
        client.reads[topic.name, stream] = run
        if before is not None:
            if before.is_open:
                self._end(before)
            if before.told != given.asked:
                self.note(before.rewind(run))
        self._begin(run)

    def refused(self, client: Client, error: OwnError) -> None:
        """Notes an error of Kordon's own; the same error again and again is one record."""
        key = (error.api_key, error.topic, error.stream, error.reason)
        run = client.refusals.get(key)
        if run is not None:
            if run.merge(error):
                return
            self._end(run)
        client.refusals[key] = run = RefusalRun(client, error, self._now_ms())
        self._begin(run)

    def end_old_runs(self, most: int) -> None:
        """Ends runs that have lasted long enough, the oldest first. Call it a few times a second.

        Args:
            most: The most runs to end. A record costs as much as fifty merged batches, so with very many runs each
                lasts longer, and traffic keeps its time.
        """
        until = self._now_ms() - self._run_ms
        oldest = list(itertools.islice(self._open, most))
        for run in itertools.takewhile(lambda each: each.began_ms <= until, oldest):
            self._end(run)
        self.commits.end_old()

    def end_runs(self) -> None:
        """Ends all runs, because no event follows."""
        self._end_all(None)
        self.commits.end_all()

    def _begin(self, run: Run) -> None:
        run.client.recorded = True
        self._open[run] = None
        if len(self._open) > MOST_RUNS:
            self._end(next(iter(self._open)))

    def _end(self, run: Run, *, at_once: bool = False) -> None:
        """Ends a run. It is written down later, because a fence may wait for the ends of thousands."""
        del self._open[run]
        run.end()
        if at_once or not run.is_plain:
            self.backlog.add(run.decision(), run.began_ms)
        else:
            self.backlog.add_later(run.kind, run.decision, run.began_ms)

    def _end_of(self, client: Client, *, at_once: bool = False) -> None:
        """Ends all open runs of a connection."""
        reads = [run for run in client.reads.values() if run.is_open]
        ending: list[Run] = [*client.writes.values(), *reads, *client.refusals.values()]
        for run in ending:
            self._end(run, at_once=at_once)

    def _end_all(self, topic: str | None) -> None:
        """Ends all open runs of a topic; None: of all topics."""
        ending: list[Run] = [run for run in self._open if topic is None or run.topic == topic]
        for run in ending:
            self._end(run)


class NoJournal(Journal):
    """Records nothing. Who is called for each batch asks `is_on` first, and saves the call."""

    is_on = False

    def __init__(self) -> None:
        super().__init__(Backlog("", "", 0, now_ms), run_ms=0)

    def named(self, client: Client, client_id: str | None, principal: str | None = None) -> None:
        """Notes a connection's client id and user: quotas look at them, too."""
        client.client_id, client.principal = client_id, principal

    def closed(self, client: Client, reason: str) -> None:
        """Does nothing."""

    def note(self, decision: Decision) -> None:
        """Does nothing."""

    def admitted(self, client: Client, topic: ManagedTopic, stream: int, write: Write, base_offset: int) -> None:
        """Does nothing."""

    def delivered(
        self,
        client: Client,
        topic: ManagedTopic,
        stream: int,
        given: Given,
        *,
        group: ReadingMember = NO_GROUP,
        evidence: Mapping[str, object] = NOTHING,
    ) -> None:
        """Does nothing."""

    def refused(self, client: Client, error: OwnError) -> None:
        """Does nothing."""


NO_JOURNAL: Final = NoJournal()
"""The journal of whoever is given none."""
