"""What clients are told of the commits of groups on managed topics, as decisions.

There is the offset that the coordinator has of each stream, and where Kordon tells another one (OWN-END) that one too.
What a group has committed of the topic before it was managed is left out: that is another topic's to its coordinator.
So is what a group of the dialect inherits from its virtual partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kordon.codecs import apis
from kordon.codecs.bodies import OffsetFetchRequest, OffsetFetchResponse
from kordon.codecs.decision import Decision, Kind
from kordon.codecs.row import Row
from kordon.codecs.turns import rows_done
from kordon.proxy.decisions.events import ReadingMember, topic_fields
from kordon.proxy.decisions.room import RecordRoom
from kordon.proxy.handlers.api_handler import HeldRequest, Watch
from kordon.proxy.handlers.commit_decisions import MOST_OFFSET, managed_topic
from kordon.proxy.handlers.offset_fetch_rows import Commit, ToldTopic, answered_topic, asked_groups, told_groups
from kordon.proxy.ordering.reading import place_in
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.views import VIRTUAL, View

if TYPE_CHECKING:
    from kordon.proxy.decisions.journal import Journal

_NOWHERE: Final = (-1, -1, -1)


class ToldCommits:
    """Records what the clients of a view are answered about commits, as far as there is room.

    A small request may ask for all that a group has, as often as its client likes.

    Args:
        seconds: A clock that never goes back.
    """

    def __init__(self, journal: Journal, view: View = VIRTUAL, seconds: Callable[[], float] = time.monotonic) -> None:
        self.view = view
        self._journal = journal
        self.room = RecordRoom(journal, seconds)

    def watch(self, held: HeldRequest, value: OffsetFetchRequest) -> ToldWatch | None:
        """Returns what looks at the answer to a request; None: nothing is put on record."""
        if not self._journal.is_on:
            return None
        members = [_member(group) for group in asked_groups(value)]
        for each in members:
            self._journal.commits.end_group(each.group_id or "")
        return ToldWatch(self, held, members, self._journal.backlog.newest_number)

    def committed(self, row: ToldTopic, topics: ManagedTopics) -> ManagedTopic | None:
        """Returns the managed topic of which a coordinator's row has what clients of the view commit."""
        topic, is_face = answered_topic(row, topics)
        return topic if is_face is not self.view.is_physical else None


class ToldWatch(Watch[OffsetFetchResponse]):
    """Compares a client's answer with the coordinator's.

    Args:
        members: The groups that the client asks for, each with itself as a member if it says so.
        after: The number of the newest decision when it asked.
    """

    def __init__(self, to: ToldCommits, held: HeldRequest, members: Sequence[ReadingMember], after: int) -> None:
        self._to = to
        self._held = held
        self._members = {each.group_id: each for each in members}
        self._after = after
        self._committed: dict[tuple[ReadingMember, ManagedTopic], dict[int, int]] = {}
        """What the coordinator has of partitions, as clients know them; another topic may get the name meanwhile."""

    def answered(self, answer: OffsetFetchResponse) -> None:
        """Notes what the coordinator says."""
        for member, rows in self._told(answer):
            for row in rows:
                topic = self._to.committed(row, self._held.topics)
                if topic is not None:
                    self._committed[member, topic] = _offsets(row.partitions)

    def told(self, answer: OffsetFetchResponse) -> None:
        """Puts on record what the client is told of that."""
        for member, rows in self._told(answer):
            for row in rows:
                topic = managed_topic(row, self._held.topics)
                committed = self._committed.get((member, topic)) if topic is not None else None
                if topic is not None and committed:
                    self._note(topic, member, committed, _offsets(row.partitions))

    def _told(self, answer: OffsetFetchResponse) -> Iterator[tuple[ReadingMember, Sequence[ToldTopic]]]:
        """Yields the groups that were asked for; before version 8 the answer does not name its one."""
        only = next(iter(self._members), "")
        for group in told_groups(answer):
            member = self._members.get(Row.get(group, "group_id", only))
            if member is not None:
                yield member, group.topics or ()

    def _note(
        self, topic: ManagedTopic, member: ReadingMember, committed: Mapping[int, int], told: Mapping[int, int]
    ) -> None:
        stream = self._to.view.stream
        offsets = [(stream(number), committed[number]) for number in told if number in committed]
        changed = [
            (stream(number), committed[number], offset, *_place(topic, stream(number), committed[number]))
            for number, offset in told.items()
            if committed.get(number, offset) != offset
        ]
        evidence = {"offsets": offsets, "asked_after": self._after} | ({"told": changed} if changed else {})
        self._to.room.note(
            Decision(
                kind=Kind.OFFSET_FETCH,
                **self._held.client.fields(),
                **topic_fields(topic),
                api_key=apis.OFFSET_FETCH,
                **member._asdict(),
                evidence=evidence,
            ),
            len(offsets),
        )


def _member(group: Row) -> ReadingMember:
    member_id = group.get("member_id", None)
    generation = group.get("member_epoch", None) if member_id else None
    return ReadingMember(group.get("group_id", ""), generation, member_id)


def _offsets(partitions: Iterable[Commit]) -> dict[int, int]:
    """Returns the commits that there are, by partition."""
    found: dict[int, int] = {}
    for row in partitions:
        rows_done(1)
        if not row.error_code and 0 <= row.committed_offset <= MOST_OFFSET:
            found[row.partition_index] = row.committed_offset
    return found


def _place(topic: ManagedTopic, stream: int, offset: int) -> tuple[int, int, int]:
    """Returns the physical partition where an offset of a stream lies, the stream's moves, and the offset there."""
    place = place_in(topic.layout, stream, offset)
    return _NOWHERE if place is None else (place.stay.partition, place.stay.move, place.position)
