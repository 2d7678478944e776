"""What a worker decides about writes to managed topics, told to its journal.

Every method returns at once where nothing is recorded; whoever calls them for each batch asks `is_on` before.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.decision import Decision, Kind
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.produce import Outcome
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.decisions.runs import Client, last_sequence
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.images import WhyNotWritten
from kordon.proxy.ordering.line import NO_PRODUCER, Write
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.writers import WhyUnfit
from kordon.proxy.topics.managed_topics import ManagedTopic, Why
from kordon.proxy.writes.lane import Course
from kordon.proxy.writes.tickets import client_of

_VERDICTS: Final[Mapping[WhyNotWritten | WhyUnfit, str]] = MappingProxyType(
    {
        WhyNotWritten.FENCED: "SEQ-IMAGE",
        WhyUnfit.GAP: "OPENER-ALONE",
        WhyUnfit.UNKNOWN: "OPENER-ALONE",
        WhyUnfit.OUTDATED: "COUNT-FENCE",
    }
)
"""By the verdict on an identity, the rule it stands on; a duplicate is no error."""
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_REPEATED: Final[Mapping[str, Any]] = {"repeated": True}


_RULES: Final[Mapping[Why | None, str]] = MappingProxyType({Why.FENCE: "FENCE-BARRIER", Why.LEASE: "LIVE-LEASE"})


class WriteDecisions:
    """Tells a journal of writes.

    Args:
        journal: Of the worker.
    """

    def __init__(self, journal: Journal) -> None:
        self.is_on = journal.is_on
        self._journal = journal

    def answered(self, course: Course, write: Write, outcome: Outcome | None, answer: Outcome) -> None:
        """Notes what the client is told of a write that was sent.

        What is written is noted though its client may have gone meanwhile: it stands in the log, and is delivered.

        Args:
            course: Its stream.
            write: As it was sent.
            outcome: The broker's; None: there is none.
            answer: The client's.
        """
        if not answer.error_code:
            if outcome is not None and outcome.base_offset >= 0:
                self._admitted(course, write, outcome.base_offset)
            else:
                self._repeated(course, write, "LENT-IDENTITY")  # DUPLICATE_SEQUENCE_NUMBER: brokers forgot where
            return
        if outcome is not None and outcome.error_code == answer.error_code:
            return  # it is the broker's error
        rule, evidence = _own_error(write, outcome)
        self._refused(client_of(write), course.topic, course.stream, answer.error_code, rule=rule, evidence=evidence)

    def _admitted(self, course: Course, write: Write, base_offset: int) -> None:
        topic, bound = course.topic, write.bound
        assert bound is not None, "it was sent"
        self._journal.admitted(
            client_of(write),
            topic=topic.name,
            stream=course.stream,
            partition=bound.partition,
            move=bound.move,
            layout_epoch=topic.layout.epoch,
            layouts_offset=topic.layouts_offset,
            producer_id=write.producer_id,
            producer_epoch=write.producer_epoch,
            base_sequence=write.base_sequence,
            records=write.records,
            base_offset=base_offset,
            size=write.size,
            count=write.undeleted_partition_count,
            sent_epoch=write.sent_epoch,
        )

    def _repeated(self, course: Course, write: Write, rule: str) -> None:
        """Notes that a client is told of a write that it is there, though nobody knows where: a record of its own.

        A client repeats what it had no answer to, so there are few. Nothing of a place is said, but for the home in
        which the broker has found it: rules that hold offsets against the topic have nothing to hold.
        """
        topic, bound = course.topic, write.bound
        decision = client_of(write).decision(
            Kind.ADMIT,
            topic=topic.name,
            stream=course.stream,
            partition=bound.partition if bound is not None else None,
            move=bound.move if bound is not None else None,
            layout_epoch=topic.layout.epoch,
            layouts_offset=topic.layouts_offset,
            producer_id=write.producer_id,
            producer_epoch=write.producer_epoch,
            first_sequence=write.base_sequence,
            last_sequence=last_sequence(write.base_sequence + write.records),
            records=write.records,
            bytes=write.size,
            rule=rule,
            reason="duplicate",
            evidence=_REPEATED,
        )
        self._journal.note(decision)

    def judged(self, course: Course, write: Write, why: WhyNotWritten | WhyUnfit, answer: Outcome) -> None:
        """Notes the verdict on a write's identity, or on the count by which its partition was chosen."""
        if not self.is_on:
            return
        if why is WhyNotWritten.DUPLICATE:
            self._repeated(course, write, "SEQ-IMAGE")
            return
        evidence: dict[str, Any] = {}
        if why is WhyUnfit.OUTDATED:
            count = course.topic.layout.count_in_force
            evidence = {
                "undeleted_partition_count": write.undeleted_partition_count,
                "layout_epoch": write.layout_epoch,
                "in_force": count,
            }
        elif write.producer_id != NO_PRODUCER:
            evidence = {
                "producer_id": write.producer_id,
                "producer_epoch": write.producer_epoch,
                "base_sequence": write.base_sequence,
            }
        rule = _VERDICTS.get(why)
        self._refused(client_of(write), course.topic, course.stream, answer.error_code, rule=rule, evidence=evidence)

    def given_up(self, course: Course, write: Write, code: int, why: Why | None) -> None:
        """Notes that a write is not sent, as it waited for too long or too much does (SHORT-FENCE)."""
        if self.is_on:
            evidence = {"waited_for": why.value} if why is not None else NOTHING
            self._refused(client_of(write), course.topic, course.stream, code, rule="SHORT-FENCE", evidence=evidence)

    def unfit(self, client: Client, topic: ManagedTopic | None, name: str, stream: Stream, code: int) -> None:
        """Notes that a part of a Produce request is refused before it has a line.

        Args:
            client: Whose it is.
            topic: None: it is not known.
            name: Of the topic, if it was named.
            stream: Which the part names.
            code: The error.
        """
        if not self.is_on:
            return
        if topic is not None:
            rule = "COUNT-FENCE" if code == Code.INVALID_PARTITION_METADATA else None
            self._refused(client, topic, stream, code, rule=rule)
        else:
            self._journal.refused(client, api_key=apis.PRODUCE, reason=name_of(code), topic=name or None, stream=stream)

    def redirected(self, topic: ManagedTopic, stream: Stream, left: tuple[int, int], home: Stay) -> None:
        """Notes that a stream's writes go elsewhere from now on, when the first one does.

        Args:
            topic: The stream's.
            stream: Which.
            left: Where those before went: partition and move.
            home: Where it lives now.
        """
        partition, move = left
        self._journal.note(
            Decision(
                kind=Kind.REDIRECT,
                api_key=apis.PRODUCE,
                topic=topic.name,
                stream=stream,
                partition=home.partition,
                move=home.move,
                layout_epoch=topic.layout.epoch,
                layouts_offset=topic.layouts_offset,
                rule="LATE-BINDING",
                reason="moved",
                evidence={"from_partition": partition, "from_move": move},
            )
        )

    def held(self, course: Course, why: Why) -> None:
        """Notes that a stream's writes wait from now on."""
        if self.is_on:
            self._journal.note(self._of_course(course, Kind.HOLD, why, NOTHING))

    def released(self, course: Course, seconds: float, *, given_up: bool) -> None:
        """Notes that they wait no longer.

        Args:
            course: The stream.
            seconds: How long they have waited.
            given_up: Whether they were refused in the end.
        """
        if self.is_on:
            evidence = {"held_ms": round(seconds * 1000), "given_up": given_up}
            self._journal.note(self._of_course(course, Kind.RELEASE, course.held_for, evidence))

    def _of_course(self, course: Course, kind: Kind, why: Why | None, evidence: Mapping[str, Any]) -> Decision:
        topic, layout = course.topic, course.topic.layout
        home = layout.chain(course.stream).home
        return Decision(
            kind=kind,
            api_key=apis.PRODUCE,
            topic=topic.name,
            stream=course.stream,
            partition=home.partition if home is not None else None,
            move=home.move if home is not None else None,
            layout_epoch=layout.epoch,
            layouts_offset=topic.layouts_offset,
            fence=topic.fence.id if topic.fence is not None and why is Why.FENCE else None,
            rule=_RULES.get(why),
            reason=why.value if why is not None else None,
            evidence=evidence,
        )

    def _refused(
        self,
        client: Client,
        topic: ManagedTopic,
        stream: Stream,
        code: int,
        *,
        rule: str | None,
        evidence: Mapping[str, Any] = NOTHING,
    ) -> None:
        self._journal.refused(
            client,
            api_key=apis.PRODUCE,
            reason=name_of(code),
            topic=topic.name,
            stream=stream,
            rule=rule,
            layout_epoch=topic.layout.epoch,
            layouts_offset=topic.layouts_offset,
            evidence=evidence,
        )


def _own_error(write: Write, outcome: Outcome | None) -> tuple[str, Mapping[str, Any]]:
    """Returns the rule by which a sent write is answered by an error that no broker gave, and what that rests on."""
    if outcome is None:
        return "LENT-IDENTITY", {"broker": "no answer"}
    if outcome.error_code:
        return "LENT-IDENTITY", {"broker": name_of(outcome.error_code)}
    bound = write.bound
    assert bound is not None, "it was sent"
    return "LATE-ANSWER", {"partition": bound.partition, "move": bound.move, "base_offset": outcome.base_offset}
