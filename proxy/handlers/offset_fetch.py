"""OffsetFetch: commits on managed topics are the face's (FACE-COMMITS), earlier ones the topic's own (COMMITS-FOUND).

A group's commits from before its topic was managed stand under the topic's own name. They are not copied: OffsetFetch
asks for both at once, and takes the old commit where there is no new one. Groups that have nothing left to read are
shown at the end (`caught_up.py`).

In the dialect the commits on physical partitions stand under the topic's own name, those on virtual ones under its
face's. A group that has changed to the dialect has none of the former yet: then the latter say where it continues
(`ordering.inherited_positions`). Once it has committed a partition, that is what counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from kordon.codecs import apis
from kordon.codecs.bodies import OffsetFetchRequest as Request
from kordon.codecs.bodies import OffsetFetchRequestTopic
from kordon.codecs.bodies import OffsetFetchResponse as Response
from kordon.codecs.error_codes import Code
from kordon.proxy.handlers.api_handler import HeldRequest, TranslatedApi, Watch
from kordon.proxy.handlers.caught_up import CaughtUp
from kordon.proxy.handlers.face_rows import show_id
from kordon.proxy.handlers.offset_fetch_rows import (
    AskedTopic,
    Commit,
    ToldTopic,
    answered_topic,
    asked_groups,
    told_groups,
)
from kordon.proxy.handlers.shown_topics import NO_TOPICS
from kordon.proxy.handlers.told_commits import ToldCommits
from kordon.proxy.ordering.commit_marks import without_mark
from kordon.proxy.ordering.inherited_positions import inherited_positions
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.topics.managed_topics import OWN_PREFIX, ManagedTopic, ManagedTopics, face_of
from kordon.proxy.topics.names import NO_ID, asked_by_real_id, with_real_id

_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1


class OffsetFetch(TranslatedApi[Request, Response]):
    """Returns commits of one or several groups, for some topics or for all.

    Args:
        caught_up: Raises the commits of groups that have read all; None: nobody does.
        told: Puts on record what is told; None: nobody does.
        takes_marks_off: Whether commits may have Kordon's marks behind their metadata (`ordering/commit_marks.py`).
    """

    key = apis.OFFSET_FETCH
    answers_always = True  # all topics may be asked for

    def __init__(
        self, caught_up: CaughtUp | None = None, told: ToldCommits | None = None, *, takes_marks_off: bool = False
    ) -> None:
        self._caught_up = caught_up
        self._takes_marks_off = takes_marks_off
        self._told = told

    def watch(self, held: HeldRequest, value: Request) -> Watch[Response] | None:
        """Returns what puts the answer on record."""
        return self._told.watch(held, value) if self._told is not None else None

    def request(self, version: int, value: Request, topics: ManagedTopics) -> bool:
        """Asks for the commits of faces in place of managed topics, and for those from before."""
        changed = False
        for group in asked_groups(value):
            rows: Sequence[AskedTopic] = group.topics or ()
            managed = [_asked_topic(row, topics) for row in rows]
            if any(managed):
                pairs = zip(rows, managed, strict=True)
                group["topics"] = [each for row, topic in pairs for each in (_both(row, topic) if topic else (row,))]
                changed = True
        return changed

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Shows each managed topic once; Kordon's own topics are not shown."""
        real_ids = asked_by_real_id((row for group in asked_groups(asked) for row in group.topics or ()), topics)
        for group in told_groups(value):
            group["topics"] = merged(group.topics or (), topics)
            for row in group.topics:
                show_id(row, real_ids)
                if self._takes_marks_off and not asked.get("with_ranges", False):
                    _take_marks_off(row)

    def takes_time(self, topics: ManagedTopics) -> bool:
        """Whether commits may have to be raised."""
        return self._caught_up is not None

    async def complete(self, answer: Response) -> None:
        """Raises the commits of groups that have read all."""
        if self._caught_up is not None:
            await self._caught_up.complete(answer)


class DialectOffsetFetch(TranslatedApi[Request, Response]):
    """Tells commits on physical partitions; those on virtual ones are looked up for topics that a request names.

    Args:
        told: As for `OffsetFetch`.
        takes_marks_off: As for `OffsetFetch`.
    """

    key = apis.OFFSET_FETCH
    answers_always = True

    def __init__(self, told: ToldCommits | None = None, *, takes_marks_off: bool = False) -> None:
        self._hidden = OffsetFetch(told=told, takes_marks_off=takes_marks_off)

    def watch(self, held: HeldRequest, value: Request) -> Watch[Response] | None:
        """Returns what puts the answer on record."""
        return self._hidden.watch(held, value)

    def request(self, version: int, value: Request, topics: ManagedTopics) -> bool:
        """Asks for what was committed on virtual partitions besides."""
        changed = False
        for group in asked_groups(value):
            rows: Sequence[AskedTopic] = group.topics or ()
            named = (topics.named(row.get("name", "")) for row in rows)
            if faces := [_face_row(topic) for topic in named if topic is not None]:
                group["topics"] = [*rows, *faces]
                changed = True
        return changed

    def response(self, version: int, value: Response, topics: ManagedTopics, asked: Request) -> None:
        """Fills in what has no commit of its own, and hides what is Kordon's own."""
        for group in told_groups(value):
            rows: dict[str, ToldTopic] = {row.get("name", ""): row for row in group.topics}
            for topic in topics:
                row, face = rows.get(topic.name), rows.get(face_of(topic.name))
                if row is not None and face is not None:
                    _fill(topic, row.partitions, face.partitions)
        self._hidden.response(version, value, NO_TOPICS, asked)


def _take_marks_off(row: ToldTopic) -> None:
    for each in row.partitions:
        each.metadata = without_mark(each.metadata)


def partitions_before(layout: Layout) -> int:
    """Returns how many of the first virtual partitions are what the topic's partitions were before it was managed."""
    return layout.n if layout.epochs[0].placement is Placement.UNMANAGED else 0


def _asked_topic(row: AskedTopic, topics: ManagedTopics) -> ManagedTopic | None:
    if "topic_id" in row:
        topic_id = row.get("topic_id", NO_ID)
        return topics.with_face_id(topic_id) or with_real_id(topics, topic_id)
    return topics.named(row.name)


def _both(row: AskedTopic, topic: ManagedTopic) -> Iterable[AskedTopic]:
    """Returns what to ask: the face, and the topic itself for partitions that may have commits from before."""
    _rename(row, face_of(topic.name), topic.face_id)
    yield row
    before = [v for v in row.partition_indexes if v < partitions_before(topic.layout)]
    if before:
        old = row.copy()
        _rename(old, topic.name, topic.layout.topic_id)
        old.partition_indexes = before
        yield old


def _rename(row: AskedTopic | ToldTopic, name: str, topic_id: UUID) -> None:
    if "topic_id" in row:
        row["topic_id"] = topic_id
    else:
        row.name = name


def merged(rows: Iterable[ToldTopic], topics: ManagedTopics) -> list[ToldTopic]:
    """Merges the rows of a face and of its topic, and puts them after those of other topics.

    Args:
        rows: The rows of one group, as its coordinator answers them; they are changed in place.

    Returns:
        The rows as clients see them: topics by their names, and none that is Kordon's own.
    """
    left: list[ToldTopic] = []
    of_faces: dict[str, ToldTopic] = {}
    from_before: dict[str, ToldTopic] = {}
    for row in rows:
        topic, is_face = answered_topic(row, topics)
        if topic is not None:
            _rename(row, topic.name, topic.face_id)
            if not is_face:
                limit = partitions_before(topic.layout)
                rows_before: list[Commit] = [
                    each for each in row.partitions if each.partition_index < limit and _tells(each)
                ]
                row["partitions"] = rows_before
                for each in row.partitions:
                    _take_back(topic.layout, each)
            (of_faces if is_face else from_before)[topic.name] = row
        elif not row.get("name", "").startswith(OWN_PREFIX):
            left.append(row)
    for name, row in {**from_before, **of_faces}.items():
        if name in from_before and name in of_faces:
            row["partitions"] = _newest(row.partitions, from_before[name].partitions)
        left += (row,) if row.partitions else ()
    return left


def _newest(face: Iterable[Commit], before: Iterable[Commit]) -> list[Commit]:
    rows = {row.partition_index: row for row in face}
    for row in before:
        known = rows.get(row.partition_index)
        if known is None or (known.committed_offset == _NO_OFFSET and not known.error_code):
            rows[row.partition_index] = row
    return list(rows.values())


def _take_back(layout: Layout, row: Commit) -> None:
    """Takes an old commit back to where the virtual partition left the partition of its number, if it is behind that.

    Only a group of the dialect commits there: what it has read of that partition since is other virtual partitions'.
    """
    end: int | None = None
    for stay in layout.chains[row.partition_index].stays:
        if stay.partition != row.partition_index or stay.delta:
            break
        end = stay.end
        if end is None:
            return
    if end is not None and row.committed_offset > end:
        row.committed_offset, row.committed_leader_epoch = end, _NO_EPOCH


def _tells(row: Commit) -> bool:
    """Whether there is a commit or will be soon; a topic that is gone or hidden has none."""
    return row.error_code == Code.UNSTABLE_OFFSET_COMMIT or (not row.error_code and row.committed_offset != _NO_OFFSET)


def _face_row(topic: ManagedTopic) -> OffsetFetchRequestTopic:
    return OffsetFetchRequestTopic(name=face_of(topic.name), partition_indexes=list(range(topic.layout.v_count)))


def _fill(topic: ManagedTopic, partitions: Iterable[Commit], of_face: Iterable[Commit]) -> None:
    """Gives partitions without a commit what follows from those of virtual ones, or why these are not known."""
    rows = list(of_face)
    error = next((row.error_code for row in rows if row.error_code), Code.NONE)
    if error == Code.TOPIC_AUTHORIZATION_FAILED:
        error = Code.COORDINATOR_LOAD_IN_PROGRESS  # who may describe the topic may soon describe its face (`AclMirror`)
    committed = {row.partition_index: row.committed_offset for row in rows if row.committed_offset != _NO_OFFSET}
    inherited = inherited_positions(topic.layout, committed) if committed else {}
    for row in partitions:
        if not row.error_code and row.committed_offset == _NO_OFFSET:
            row.committed_offset = inherited.get(row.partition_index, _NO_OFFSET)
            row.committed_leader_epoch = _NO_EPOCH
            row.error_code = error
