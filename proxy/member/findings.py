"""What is wrong with managed topics, as a worker knows it: what was found by controllers, what cannot be read here."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import structlog

from kordon.proxy.controller.leading import Leading
from kordon.proxy.ordering.findings import layout_unreadable
from kordon.proxy.ordering.member import Member
from kordon.proxy.ordering.records import FindingRecord, Unreadable, Value, kind_of, topic_of
from kordon.proxy.ordering.unread import Unread
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopics

log = structlog.get_logger(__name__)
told = client_log(__name__)
"""For events that anybody who can write to the layouts can cause."""


class Findings:
    """Keeps them, and serves no topic of which records cannot be read.

    Args:
        topics: What is served.
        member: Knows which topics are managed.
        leading: Returns the controller's role, while it is this worker's.

    Attributes:
        by_topic: What a controller has found last of a topic, by its name.
        unserved: Topics that are not served here because records of them cannot be read, by name.
        counted: By kind, since this worker's start and while it led.
        unread: The records that could not be read.
    """

    def __init__(self, topics: ManagedTopics, member: Member, leading: Callable[[], Leading | None]) -> None:
        self._topics = topics
        self._member = member
        self._leading = leading
        self.by_topic: dict[str, FindingRecord] = {}
        self.unserved: dict[str, FindingRecord] = {}
        self.counted: Counter[str] = Counter()
        self.unread = Unread()

    def forget(self) -> None:
        """Forgets what was read, as the log is read again; what is not served stays so until it is judged again."""
        self.by_topic.clear()
        self.unread.clear()

    def judge_again(self) -> None:
        """Serves what is not served, where all of it could be read this time."""
        for name in list(self._topics.unserved):
            self._judge(name)

    def on_finding(self, topic: str, finding: FindingRecord | None) -> None:
        """Takes in what a controller has found of a topic; None: it is well again."""
        if finding is None:
            self.by_topic.pop(topic, None)
            return
        self.by_topic[topic] = finding
        self._count(finding)

    def on_record(self, key: str, value: Value | Unreadable | None, offset: int) -> None:
        """Takes in what a record of the layouts amounts to, when all else has been done with it."""
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
        why = self.unread.why_unserved(topic, is_managed=topic in self._member.topics)
        was_served = topic not in self._topics.unserved
        self._topics.serve(topic, why)
        if was_served == (why is None):
            return
        if why is not None:
            self.unserved[topic] = finding = layout_unreadable(topic, why, round(time.time() * 1000))
            log.error("finding", kind=finding.kind, topic=topic, detail=finding.text)
            self._count(finding)
        else:
            del self.unserved[topic]
            log.info("topic_served_again", topic=topic)
        if (leading := self._leading()) is not None:
            leading.begin_anew(f"the readable records of {topic} have changed")

    def _count(self, finding: FindingRecord) -> None:
        self.counted[finding.kind] += self._leading() is not None
