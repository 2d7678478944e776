"""What a worker decides about Fetch of managed topics, told to its journal: what was given, held, refused.

What is given is a range of the physical partition, of one stay: all that the stream has there, and what the client was
moved over. Records are counted by the headers of their batches, nothing is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple

from kordon.codecs import apis
from kordon.codecs.decision import Kind
from kordon.codecs.error_codes import Code, name_of
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.reads.chunks import PassedRange, ServedBatch
from kordon.proxy.topics.managed_topics import ManagedTopic

_RULES: Final[Mapping[int, str]] = {
    Code.OFFSET_OUT_OF_RANGE: "NO-FALSE-END",
    Code.FENCED_LEADER_EPOCH: "RISING-EPOCH",
    Code.UNKNOWN_LEADER_EPOCH: "RISING-EPOCH",
    Code.INVALID_PARTITION_METADATA: "COUNT-FENCE",
}
"""By error, on what it stands."""
_GATE: Final = "PARENT-FIRST"


class Given(NamedTuple):
    """What one answer gives of one stream."""

    stay: Stay
    layout_epoch: int
    asked: int
    """For which offset the client asked, as it counts."""
    told: int
    """At which it stands behind it."""
    entries: list[ServedBatch]
    size_bytes: int
    """Of these."""
    holes: list[tuple[int, int]]
    """Offsets [from, to) of the physical partition that are gone, and that the client was moved over."""
    passed: Sequence[PassedRange] = ()
    """What it was moved over because it cannot be opened."""


class ReadingMember(NamedTuple):
    """For whom a client of the dialect reads."""

    group_id: str | None = None
    generation_id: int | None = None
    member_id: str | None = None


NO_GROUP: Final = ReadingMember()


class ReadDecisions:
    """Tells a journal of reads.

    Args:
        journal: Of the worker.
    """

    def __init__(self, journal: Journal) -> None:
        self.is_on = journal.is_on
        self._journal = journal

    def gave(
        self,
        client: Client,
        topic: ManagedTopic,
        stream: Stream,
        given: Given,
        *,
        group: ReadingMember = NO_GROUP,
        evidence: Mapping[str, Any] | None = None,
    ) -> None:
        """Notes what an answer gives of a stream; nothing where its reader stays where it is.

        Args:
            client: Whose it is.
            topic: The stream's.
            stream: A virtual partition, or ~q.
            given: What.
            group: For whom, where the client has said so.
            evidence: Why its reader may have it.
        """
        if given.told <= given.asked:
            return
        stay = given.stay
        first, behind = given.asked - stay.delta, given.told - stay.delta
        if given.holes:
            holes = [(start, min(end, behind) - 1) for start, end in given.holes if start < behind]
            evidence = {**(evidence or {}), "holes": holes}
        if passed := [(start, end - 1, reason) for start, end, reason in given.passed if start < behind]:
            evidence = {**(evidence or {}), "passed_over": passed}
        self._journal.delivered(
            client,
            topic=topic.name,
            stream=stream,
            partition=stay.partition,
            move=stay.move,
            layout_epoch=given.layout_epoch,
            layouts_offset=topic.layouts_offset,
            asked=given.asked,
            told=given.told,
            first_offset=first,
            last_offset=behind - 1,
            records=records_in(given.entries, first),
            size=given.size_bytes,
            group_id=group.group_id,
            member_id=group.member_id,
            evidence=evidence,
        )

    def begins(self, client: Client, topic: ManagedTopic, stream: Stream, given: Given) -> bool:
        """Whether that is the first that a connection is given of a stay, or again behind a rewind."""
        run = client.reads.get((topic.name, stream))
        return run is None or run.move != given.stay.move or run.told != given.asked

    def refused(self, client: Client, topic: ManagedTopic | None, stream: Stream, asked: int, code: int) -> None:
        """Notes that a partition of a Fetch is answered by an error.

        Args:
            client: Whose it is.
            topic: None: nobody knows it.
            stream: Which was meant.
            asked: The offset.
            code: The error.
        """
        self._journal.refused(
            client,
            api_key=apis.FETCH,
            reason=name_of(code),
            topic=topic.name if topic is not None else None,
            stream=stream,
            rule=_RULES.get(code),
            layout_epoch=topic.layout.epoch if topic is not None else None,
            layouts_offset=topic.layouts_offset if topic is not None else None,
            evidence={"asked": asked},
        )

    def held(
        self,
        client: Client,
        topic: ManagedTopic,
        stream: Stream,
        *,
        stay: Stay,
        group: ReadingMember,
        asks: Mapping[int, int],
    ) -> None:
        """Notes, once, that a reader waits for what its keys were in earlier.

        Args:
            client: Whose it is.
            topic: The stream's.
            stream: The physical partition as such.
            stay: Of which nothing is given yet.
            group: For whom it is read.
            asks: By physical partition, up to where it has to be read first.
        """
        if (topic.name, stream) not in client.held:
            client.held[topic.name, stream] = monotonic()
            self._gated(Kind.HOLD, client, topic, stream, stay=stay, group=group, evidence={"asks": dict(asks)})

    def released(
        self,
        client: Client,
        topic: ManagedTopic,
        stream: Stream,
        *,
        stay: Stay,
        group: ReadingMember,
        by: Mapping[str, Any],
    ) -> None:
        """Notes that it waits no longer, if it did.

        Args:
            client: Whose it is.
            topic: The stream's.
            stream: The physical partition as such.
            stay: Of which it is given now.
            group: For whom it is read.
            by: What opened the gate.
        """
        since = client.held.pop((topic.name, stream), None)
        if since is not None:
            evidence = {**by, "held_ms": round((monotonic() - since) * 1000)}
            self._gated(Kind.RELEASE, client, topic, stream, stay=stay, group=group, evidence=evidence)

    def _gated(
        self,
        kind: Kind,
        client: Client,
        topic: ManagedTopic,
        stream: Stream,
        *,
        stay: Stay,
        group: ReadingMember,
        evidence: Mapping[str, Any],
    ) -> None:
        decision = client.decision(
            kind,
            api_key=apis.FETCH,
            topic=topic.name,
            stream=stream,
            partition=stay.partition,
            move=stay.move,
            layout_epoch=topic.layout.epoch,
            layouts_offset=topic.layouts_offset,
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=group.member_id,
            rule=_GATE,
            reason="gate",
            evidence=evidence,
        )
        self._journal.note(decision)


def records_in(entries: Sequence[ServedBatch], first: int) -> int:
    """Counts the records of batches, as their headers do.

    Args:
        entries: In order.
        first: Offset of the physical partition at which the reader stood: what a batch has below that is not for it.
    """
    if not entries:
        return 0
    below = min(max(first - entries[0].base_offset, 0), entries[0].records)
    return sum([entry.records for entry in entries]) - below
