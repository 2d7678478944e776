"""What a worker decides about Fetch of managed topics, told to its journal: what was given, held, refused.

What is given is a range of the physical partition, of one stay: all that the stream has there, and what the client was
moved over. Records are counted by the headers of their batches, nothing is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Final

from kordon.codecs.decision import Decision, Kind
from kordon.codecs.error_codes import Code
from kordon.proxy.decisions.events import NO_GROUP, NOTHING, Given, OwnError, ReadingMember, topic_fields
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.kafka.fetch_requests import FETCH
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.reads.segment_views import ServedBatch
from kordon.proxy.topics.managed_topics import ManagedTopic

_RULES: Final[Mapping[int, str]] = {
    Code.OFFSET_OUT_OF_RANGE: "NO-FALSE-END",
    Code.FENCED_LEADER_EPOCH: "RISING-EPOCH",
    Code.UNKNOWN_LEADER_EPOCH: "RISING-EPOCH",
    Code.INVALID_PARTITION_METADATA: "COUNT-FENCE",
}
"""By error, the rule that asks for it."""
_GATE: Final = "PARENT-FIRST"


class ReadDecisions:
    """Reports reads to a journal."""

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
        evidence: Mapping[str, object] = NOTHING,
    ) -> None:
        """Notes what an answer gives of a stream; nothing where its reader stays where it is.

        Args:
            stream: A virtual partition, or ~q.
            group: The group for which the client reads, if it has named one.
            evidence: The reason why the reader may have the records.
        """
        if given.told <= given.asked:
            return
        if given.holes or given.passed:
            evidence = {**evidence, **_moved_over(given)}
        self._journal.delivered(client, topic, stream, given, group=group, evidence=evidence)

    def begins(self, client: Client, topic: ManagedTopic, stream: Stream, given: Given) -> bool:
        """Whether it is the first that a connection is given of a stay, or the first after a rewind."""
        run = client.reads.get((topic.name, stream))
        return run is None or run.first.stay.move != given.stay.move or run.told != given.asked

    def refused(self, client: Client, topic: ManagedTopic | None, stream: Stream, asked: int, code: int) -> None:
        """Notes that a partition of a Fetch is answered by an error.

        Args:
            topic: The topic; None: nobody knows it.
            stream: The stream that the client meant.
            asked: The offset from which on the client wanted to read.
        """
        rule, evidence = _RULES.get(code), {"asked": asked}
        self._journal.refused(client, OwnError.about(topic, FETCH, code, stream=stream, rule=rule, evidence=evidence))

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
            stay: The stay of which nothing is given yet.
            asks: The offset up to which each physical partition must be read first.
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
        by: Mapping[str, object],
    ) -> None:
        """Notes that a reader that has waited is given records of a stay now; `by` is what opened the gate."""
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
        evidence: Mapping[str, object],
    ) -> None:
        decision = Decision(
            kind=kind,
            **client.fields(),
            api_key=FETCH,
            **topic_fields(topic),
            stream=stream,
            partition=stay.partition,
            move=stay.move,
            **group._asdict(),
            rule=_GATE,
            reason="gate",
            evidence=evidence,
        )
        self._journal.note(decision)


def _moved_over(given: Given) -> Mapping[str, object]:
    """Returns the evidence of what a client was moved over, up to where it stands now."""
    behind = given.next_offset
    holes = [(start, min(end, behind) - 1) for start, end in given.holes if start < behind]
    passed = [(start, end - 1, reason) for start, end, reason in given.passed if start < behind]
    return ({"holes": holes} if given.holes else {}) | ({"passed_over": passed} if passed else {})


def records_in(entries: Sequence[ServedBatch], first: int) -> int:
    """Counts the records of batches, as their headers do.

    Args:
        entries: The batches in order.
        first: The offset of the physical partition at which the reader stood. Records of a batch below it are not for
            the reader.
    """
    if not entries:
        return 0
    below = min(max(first - entries[0].base_offset, 0), entries[0].records)
    return sum([entry.records for entry in entries]) - below
