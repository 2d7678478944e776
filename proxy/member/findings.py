"""What is wrong with managed topics, as a worker knows it: what was found by controllers, what cannot be read here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

import structlog

from kordon.proxy.member.leadership import Leadership
from kordon.proxy.ordering.findings import layout_lost, layout_unreadable
from kordon.proxy.ordering.layouts_state import LayoutsState
from kordon.proxy.ordering.records import FindingRecord, Unreadable, Value, kind_of, topic_of
from kordon.proxy.runtime.clock import now_ms
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopics

log = structlog.get_logger(__name__)
told = client_log(__name__)
"""For events that anybody who can write to the layouts can cause."""
_LOST: Final = "__kordon.layouts has no layout of it, though it has a face"


class Findings:
    """Keeps what is wrong with topics, and serves no topic of which records cannot be read.

    Attributes:
        unserved: The topics that are not served here because their records cannot be read or are lost, by name.
        lost: The topics that have a face and had no layout when the layouts were read to their end.
        counted: The number of findings made while this worker led, since its start, by kind.
        unread: The records that could not be read.
    """

    def __init__(self, topics: ManagedTopics, state: LayoutsState, leadership: Leadership) -> None:
        self._topics = topics
        self._state = state
        self._member = state.member
        self._leadership = leadership
        self.unread = state.unread
        self.unserved: dict[str, FindingRecord] = {}
        self.counted: Counter[str] = Counter()
        self.lost: frozenset[str] = frozenset()

    def judge_again(self) -> None:
        """Serves what is not served, where all of it could be read this time."""
        for name in list(self._topics.unserved):
            self._judge(name)

    def on_faces(self, topics: Collection[str]) -> None:
        """Takes in which topics have a face, when the layouts have been read to their end (UNREAD-UNSERVED)."""
        before, coming = self.lost, {wish.topic for wish in self._state.wishes.values()}
        self.lost = frozenset(topics) - self._member.topics.keys() - self._member.fences.keys() - coming
        for name in sorted(before | self.lost):
            self._judge(name)

    @property
    def all_is_lost(self) -> bool:
        """Whether topics have faces, and the layouts know none at all."""
        return bool(self.lost) and not self._member.topics

    def standing(self) -> list[FindingRecord]:
        """Returns what is wrong with topics, by topic and in the order in which it was found."""
        return sorted((*self._state.findings, *self.unserved.values()), key=lambda each: (each.topic, each.found_ms))

    def on_finding(self, key: str, finding: FindingRecord | None) -> None:
        """Takes in what a controller has found of a topic; None: it is well again."""
        self._state.findings.take(key, finding)
        if finding is not None:
            self._count(finding)

    def on_record(self, key: str, value: Value | Unreadable | None, offset: int) -> None:
        """Takes in the outcome of a record of the layouts, after all other parts have."""
        if isinstance(value, Unreadable):
            told.error(
                "layouts_record_unreadable",
                key=value.key,
                offset=offset,
                error=value.why,
                topic=value.topic,
                cure="docs/runbook.md#kordontopicunserved",
            )
        self.unread.take(key, value)
        if (topic := topic_of(key)) is not None and (topic in self.unread or topic in self._topics.unserved):
            self._judge(topic)

    def count_forged(self, key: str) -> None:
        """Counts a record that is not by whom it says, with those that could not be read."""
        self.unread.counted[kind_of(key)] += 1

    def _judge(self, topic: str) -> None:
        """Serves a topic or not, by what could not be read of it; the controller begins anew with what it may touch."""
        known = topic in self._member.topics
        why = self.unread.why_unserved(topic, is_managed=known)
        is_lost = why is None and topic in self.lost and not (known or topic in self._member.fences)
        why = _LOST if is_lost else why
        was_served = topic not in self._topics.unserved
        self._topics.serve(topic, why)
        if was_served == (why is None):
            return
        if why is not None:
            make = layout_lost if is_lost else layout_unreadable
            self.unserved[topic] = finding = make(topic, why, now_ms())
            log.error("finding", kind=finding.kind, topic=topic, detail=finding.text)
            self._count(finding)
        else:
            del self.unserved[topic]
            log.info("topic_served_again", topic=topic)
        if (role := self._leadership.role) is not None:
            role.begin_anew(f"the readable records of {topic} have changed")

    def _count(self, finding: FindingRecord) -> None:
        self.counted[finding.kind] += self._leadership.role is not None
