"""What groups commit, as runs: one record for all that a member commits of a topic within half a minute.

A run has the first and the last offset of each stream. It ends when it is old, when an offset falls, and before a
client asks what the group has committed. So what a worker has seen accepted by then has a lower number than what that
client is told. A run may have thousands of rows, and is written down at once. So not many rows may be in open runs, and
the oldest run ends where there are more.

A commit counts when its answer says so. Those whose answer is lost are not here, nor those that reach the brokers
without Kordon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from kordon.codecs.decision import Decision, Kind
from kordon.proxy.decisions.backlog import Backlog
from kordon.proxy.decisions.events import topic_fields
from kordon.proxy.decisions.runs import Client
from kordon.proxy.topics.managed_topics import ManagedTopic

RUN_MS: Final = 30_000
"""How long a run lasts: most consumers commit once in five seconds."""
MOST_ROWS: Final = 50_000
"""The most rows in open runs, of some 200 bytes each."""
_ROWS_AT_ONCE: Final = 2_000
"""So many rows that have grown old end at a time, which takes a millisecond; a longer run ends alone."""


class Committer(NamedTuple):
    """The member in whose name a request commits."""

    group_id: str
    generation_id: int
    member_id: str
    api_key: int


_Key: TypeAlias = tuple[int, str, Committer]
"""The connection's number, the topic, and who commits."""


class CommitRun:
    """The commits of one member for a topic on one connection."""

    __slots__ = ("began_ms", "client", "commits", "committer", "first", "last", "where")

    def __init__(self, client: Client, topic: ManagedTopic, committer: Committer, began_ms: int) -> None:
        self.client = client.fields()
        self.where = topic_fields(topic)
        self.committer = committer
        self.first: dict[int, int] = {}
        """The first next offset that was committed, by stream."""
        self.last: dict[int, int] = {}
        """The last next offset that was committed, by stream."""
        self.commits = 0
        self.began_ms = began_ms

    def goes_on(self, client: Client, topic: ManagedTopic, offsets: Mapping[int, int]) -> bool:
        """Whether a commit may be taken in: nothing is different about it, and no offset falls."""
        last = self.last
        return (
            self.where["layouts_offset"] == topic.layouts_offset
            and self.client["client_id"] == client.client_id
            and self.client["principal"] == client.principal
            and all(last.get(stream, offset) <= offset for stream, offset in offsets.items())
        )

    def take(self, offsets: Mapping[int, int]) -> None:
        """Takes a commit in."""
        self.last.update(offsets)
        if len(self.last) > len(self.first):
            self.first = {**offsets, **self.first}
        self.commits += 1

    def decision(self) -> Decision:
        """Returns what the run stands for, once it has ended."""
        return Decision(
            kind=Kind.OFFSET_COMMIT,
            **self.client,
            **self.where,
            **self.committer._asdict(),
            batches=self.commits,
            evidence={"offsets": [(stream, self.first[stream], last) for stream, last in self.last.items()]},
        )


class Commits:
    """The open runs of one worker.

    Args:
        now_ms: The time of day, in milliseconds since 1970.
    """

    def __init__(self, backlog: Backlog, now_ms: Callable[[], int]) -> None:
        self._backlog = backlog
        self._now_ms = now_ms
        self._open: dict[_Key, CommitRun] = {}
        """The open runs, the oldest first."""
        self._of_group: dict[str, dict[_Key, None]] = {}
        self._rows = 0

    def accepted(self, client: Client, topic: ManagedTopic, committer: Committer, offsets: Mapping[int, int]) -> None:
        """Notes that a coordinator has accepted a commit.

        Args:
            offsets: The next offset, as the client counts, by stream.
        """
        key = (client.number, topic.name, committer)
        run = self._open.get(key)
        if run is not None and not run.goes_on(client, topic, offsets):
            self._end(key)
            run = None
        if run is None:
            run = self._open[key] = CommitRun(client, topic, committer, self._now_ms())
            self._of_group.setdefault(committer.group_id, {})[key] = None
        self._rows -= len(run.last)
        run.take(offsets)
        self._rows += len(run.last)
        while self._rows > MOST_ROWS:
            self._end(next(iter(self._open)))

    def end_group(self, group_id: str) -> None:
        """Ends the runs of a group."""
        for key in tuple(self._of_group.get(group_id, ())):
            self._end(key)

    def end_old(self) -> None:
        """Ends runs that have lasted long enough, as far as that is short work. Call it a few times a second."""
        until, most = self._now_ms() - RUN_MS, self._rows - _ROWS_AT_ONCE
        while self._open and self._rows > most:
            key, run = next(iter(self._open.items()))
            if run.began_ms > until:
                return
            self._end(key)

    def end_all(self) -> None:
        """Ends all runs."""
        while self._open:
            self._end(next(iter(self._open)))

    def _end(self, key: _Key) -> None:
        run = self._open.pop(key)
        self._rows -= len(run.last)
        of_group = self._of_group[run.committer.group_id]
        del of_group[key]
        if not of_group:
            del self._of_group[run.committer.group_id]
        self._backlog.add(run.decision(), run.began_ms)
