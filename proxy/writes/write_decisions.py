"""Tells a worker's journal what is decided about writes to managed topics.

Every method returns at once where nothing is recorded; whoever calls them for each batch asks `is_on` before.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kordon.codecs.decision import Decision, Kind
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.produce import WriteOutcome
from kordon.proxy.decisions.events import NOTHING, OwnError, topic_fields
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.decisions.runs import Client, last_sequence, next_sequence
from kordon.proxy.kafka.producer import PRODUCE
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import client_id_of
from kordon.proxy.ordering.images import WhyNotWritten
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.write_sequencer import NO_PRODUCER
from kordon.proxy.ordering.writers import WhyUnfit
from kordon.proxy.topics.managed_topics import ManagedTopic, Why
from kordon.proxy.writes.client_writes import ClientWrite
from kordon.proxy.writes.stream_queue import StreamQueue

_VERDICTS: Final[Mapping[WhyNotWritten | WhyUnfit, str]] = MappingProxyType(
    {
        WhyNotWritten.FENCED: "SEQ-IMAGE",
        WhyUnfit.GAP: "OPENER-ALONE",
        WhyUnfit.UNKNOWN: "OPENER-ALONE",
        WhyUnfit.OUTDATED: "COUNT-FENCE",
    }
)
"""The rule behind each verdict on an identity; a duplicate is no error."""
_REPEATED: Final[Mapping[str, object]] = {"repeated": True}


_RULES: Final[Mapping[Why | None, str]] = MappingProxyType({Why.FENCE: "FENCE-BARRIER", Why.LEASE: "LIVE-LEASE"})


class WriteDecisions:
    """Makes decisions of what happens to writes."""

    def __init__(self, journal: Journal) -> None:
        self.is_on = journal.is_on
        self._journal = journal

    def answered(
        self, queue: StreamQueue, write: ClientWrite, outcome: WriteOutcome | None, answer: WriteOutcome
    ) -> None:
        """Records the client's answer for a write that was sent.

        What is written is noted though its client may have gone meanwhile: it stands in the log, and is delivered.

        Args:
            write: The write, as it was sent.
            outcome: The broker's answer. None: there is none.
        """
        if not answer.error_code:
            if outcome is not None and outcome.base_offset >= 0:
                self._journal.admitted(write.pending.client, queue.topic, queue.stream, write, outcome.base_offset)
            else:
                self._repeated(queue, write, "LENT-IDENTITY")  # DUPLICATE_SEQUENCE_NUMBER: brokers forgot where
            return
        if outcome is not None and outcome.error_code == answer.error_code:
            return  # it is the broker's error
        rule, evidence = _own_error(write, outcome)
        self._refused(queue, write, answer.error_code, rule=rule, evidence=evidence)

    def _repeated(self, queue: StreamQueue, write: ClientWrite, rule: str) -> None:
        """Records that a client is told that its write exists, though not where: as a record of its own.

        A client repeats what it had no answer to, so there are few. Nothing of a place is said, but for the home in
        which the broker has found it: rules that hold offsets against the topic have nothing to hold.
        """
        bound = write.bound
        decision = Decision(
            kind=Kind.ADMIT,
            **write.pending.client.fields(),
            **topic_fields(queue.topic),
            stream=queue.stream,
            partition=bound.partition if bound is not None else None,
            move=bound.move if bound is not None else None,
            producer_id=client_id_of(write.producer_id),
            producer_epoch=write.producer_epoch,
            first_sequence=write.base_sequence,
            last_sequence=last_sequence(next_sequence(write)),
            records=write.records,
            bytes=write.size,
            rule=rule,
            reason="duplicate",
            evidence=_REPEATED,
        )
        self._journal.note(decision)

    def judged(
        self, queue: StreamQueue, write: ClientWrite, why: WhyNotWritten | WhyUnfit, answer: WriteOutcome
    ) -> None:
        """Notes the verdict on a write's identity, or on the count by which its partition was chosen."""
        if not self.is_on:
            return
        if why is WhyNotWritten.DUPLICATE:
            self._repeated(queue, write, "SEQ-IMAGE")
            return
        evidence: dict[str, object] = {}
        if why is WhyUnfit.OUTDATED:
            count = queue.topic.layout.count_in_force
            evidence = {
                "undeleted_partition_count": write.undeleted_partition_count,
                "layout_epoch": write.layout_epoch,
                "in_force": count,
            }
        elif write.producer_id != NO_PRODUCER:
            evidence = {
                "producer_id": client_id_of(write.producer_id),
                "producer_epoch": write.producer_epoch,
                "base_sequence": write.base_sequence,
            }
        rule = _VERDICTS.get(why)
        self._refused(queue, write, answer.error_code, rule=rule, evidence=evidence)

    def given_up(self, queue: StreamQueue, write: ClientWrite, code: int, why: Why | None) -> None:
        """Notes that a write is not sent, as it waited for too long or too much does (SHORT-FENCE)."""
        if self.is_on:
            evidence = {"waited_for": why.value} if why is not None else NOTHING
            self._refused(queue, write, code, rule="SHORT-FENCE", evidence=evidence)

    def unfit(self, client: Client, topic: ManagedTopic | None, name: str, stream: Stream, code: int) -> None:
        """Notes that a part of a Produce request is refused before it is queued.

        Args:
            topic: The topic; None: it is not known.
            name: The topic's name, as far as the request names it.
            stream: The stream that the part names.
            code: The error that the client is told.
        """
        if not self.is_on:
            return
        is_count = topic is not None and code == Code.INVALID_PARTITION_METADATA
        rule = "COUNT-FENCE" if is_count else None
        error = OwnError.about(topic, PRODUCE, code, name=name or None, stream=stream, rule=rule)
        self._journal.refused(client, error)

    def redirected(self, topic: ManagedTopic, stream: Stream, left: tuple[int, int], home: Stay) -> None:
        """Notes that a stream's writes go elsewhere from now on, when the first one does.

        Args:
            left: The partition and the move that the writes before went to.
        """
        partition, move = left
        self._journal.note(
            Decision(
                kind=Kind.REDIRECT,
                api_key=PRODUCE,
                **topic_fields(topic),
                stream=stream,
                partition=home.partition,
                move=home.move,
                rule="LATE-BINDING",
                reason="moved",
                evidence={"from_partition": partition, "from_move": move},
            )
        )

    def held(self, queue: StreamQueue, why: Why) -> None:
        """Notes that a stream's writes wait from now on."""
        if self.is_on:
            self._journal.note(self._of_queue(queue, Kind.HOLD, why, NOTHING))

    def released(self, queue: StreamQueue, seconds: float, *, given_up: bool) -> None:
        """Notes that they wait no longer.

        Args:
            seconds: How long they have waited.
            given_up: Whether they were refused in the end.
        """
        if self.is_on:
            evidence = {"held_ms": round(seconds * 1000), "given_up": given_up}
            self._journal.note(self._of_queue(queue, Kind.RELEASE, queue.held_for, evidence))

    def _of_queue(self, queue: StreamQueue, kind: Kind, why: Why | None, evidence: Mapping[str, object]) -> Decision:
        topic = queue.topic
        home = topic.layout.chain(queue.stream).home
        return Decision(
            kind=kind,
            api_key=PRODUCE,
            **topic_fields(topic),
            stream=queue.stream,
            partition=home.partition if home is not None else None,
            move=home.move if home is not None else None,
            fence=topic.fence.id if topic.fence is not None and why is Why.FENCE else None,
            rule=_RULES.get(why),
            reason=why.value if why is not None else None,
            evidence=evidence,
        )

    def _refused(
        self, queue: StreamQueue, write: ClientWrite, code: int, *, rule: str | None, evidence: Mapping[str, object]
    ) -> None:
        error = OwnError.about(queue.topic, PRODUCE, code, stream=queue.stream, rule=rule, evidence=evidence)
        self._journal.refused(write.pending.client, error)


def _own_error(write: ClientWrite, outcome: WriteOutcome | None) -> tuple[str, Mapping[str, object]]:
    """Returns the rule by which a sent write is answered by an error that no broker gave, and what that rests on."""
    if outcome is None:
        return "LENT-IDENTITY", {"broker": "no answer"}
    if outcome.error_code:
        return "LENT-IDENTITY", {"broker": name_of(outcome.error_code)}
    bound = write.bound
    assert bound is not None, "it was sent"
    return "LATE-ANSWER", {"partition": bound.partition, "move": bound.move, "base_offset": outcome.base_offset}
