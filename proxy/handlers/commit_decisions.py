"""What groups commit of managed topics, as decisions: what a coordinator has accepted, by its answer.

In the dialect OffsetCommit and TxnOffsetCommit pass, and are looked at only for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from kordon.codecs.bodies import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from kordon.codecs.row import Row
from kordon.proxy.core.interception import Translate
from kordon.proxy.decisions.commits import Committer
from kordon.proxy.decisions.journal import NO_JOURNAL, Journal
from kordon.proxy.handlers.api_handler import ApiHandler, Handled, HeldRequest, Watch
from kordon.proxy.handlers.face_rows import FaceRows
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.names import NO_ID
from kordon.proxy.topics.views import PHYSICAL, VIRTUAL, View

CommitRequest: TypeAlias = OffsetCommitRequest | TxnOffsetCommitRequest
CommitResponse: TypeAlias = OffsetCommitResponse | TxnOffsetCommitResponse
MOST_OFFSET: Final = 1 << 62
"""Clients may commit any offset; up to this one, all that is reckoned with it has 64 bits."""


class CommitWatch(Watch[CommitResponse]):
    """Puts on record what is accepted of a commit.

    Args:
        offsets: The offsets that the request commits, by topic and partition as its client knows them.
    """

    def __init__(
        self,
        journal: Journal,
        held: HeldRequest,
        view: View,
        committer: Committer,
        offsets: Mapping[str, Mapping[int, int]],
    ) -> None:
        self._commits = journal.commits
        self._held = held
        self._view = view
        self._committer = committer
        self._offsets = offsets

    def told(self, answer: CommitResponse) -> None:
        """Looks at the partitions that have no error."""
        for row in answer.topics:
            topic = managed_topic(row, self._held.topics)
            asked = self._offsets.get(topic.name) if topic is not None else None
            if topic is None or asked is None:
                continue
            partitions: list[Any] = row.partitions
            taken = [each["partition_index"] for each in partitions if not each["error_code"]]
            if accepted := {self._view.stream(number): asked[number] for number in taken if number in asked}:
                self._commits.accepted(self._held.client, topic, self._committer, accepted)


def watch_commit(journal: Journal, held: HeldRequest, value: CommitRequest, view: View = VIRTUAL) -> CommitWatch | None:
    """Returns what puts a commit on record; None: nothing is, or it is about no managed topic."""
    if not journal.is_on:
        return None
    offsets: dict[str, dict[int, int]] = {}
    for row in value.topics:
        topic = managed_topic(row, held.topics)
        if topic is not None:
            offsets.setdefault(topic.name, {}).update(_offsets(row.partitions))
    if not offsets:
        return None
    generation, member = value.get("generation_id_or_member_epoch", -1), value.get("member_id", "")
    committer = Committer(value.group_id, generation, member, held.route.api.key)
    return CommitWatch(journal, held, view, committer, offsets)


def _offsets(partitions: Sequence[Any]) -> dict[int, int]:
    """Returns what rows of a request commit, by partition; fields are looked up as is quickest."""
    return {
        each["partition_index"]: offset
        for each in partitions
        if 0 <= (offset := each["committed_offset"]) <= MOST_OFFSET
    }


def managed_topic(row: Row, topics: ManagedTopics) -> ManagedTopic | None:
    """Returns the managed topic that a row names to a client, by its name or by one of its ids."""
    if name := row.get("name", ""):
        return topics.named(name)
    topic = topics.served_by_id(row.get("topic_id", NO_ID))
    return topic if topic is not None and topics.named(topic.name) is topic else None


class FaceCommits(FaceRows):
    """Renames the topics of commits, and puts these on record."""

    def __init__(self, journal: Journal = NO_JOURNAL) -> None:
        self._journal = journal

    def watch(self, held: HeldRequest, value: Any) -> Watch[Any] | None:
        """Returns what puts the commit on record."""
        return watch_commit(self._journal, held, value)


class DialectCommits(ApiHandler):
    """Lets commits of the dialect pass, and puts them on record."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def decide(self, held: HeldRequest) -> Handled:
        """Has the answer looked at if there is something to put on record."""
        watch = watch_commit(self._journal, held, held.read(), PHYSICAL)
        return Translate(None, watch.told) if watch is not None else None
