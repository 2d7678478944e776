"""OffsetFetch with ranges: a member is told where its group stands offset by offset (individual commit).

The log of claims is read before the coordinator is asked, and again after it has answered. A commit without Kordon's
mark begins the group's progress again at its offset (MARKED-PUSH), for partitions that the request names, and if its
client may Read the group. Where it may not, or names none, it is only told what there is.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

from kordon.codecs import apis
from kordon.codecs.bodies import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopicPartition,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.ranges import MOST_RANGES, Ranges
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.core.interception import Ask
from kordon.proxy.handlers.api_handler import ApiHandler, ConferredRequest, Handled, HeldRequest, parse_request
from kordon.proxy.handlers.individual_commits import (
    FIRST_VERSION,
    TopicIds,
    may_read_group,
    opened,
)
from kordon.proxy.handlers.offset_fetch import DialectOffsetFetch, OffsetFetch
from kordon.proxy.ordering import claims
from kordon.proxy.ordering.claims import MOST_INCARNATION, NO_INCARNATION, Begun, PlaceKey, Seen, Start
from kordon.proxy.ordering.commit_marks import read_mark
from kordon.proxy.own_topics.claims_log import ClaimsLog
from kordon.proxy.own_topics.individual_commits import IndividualCommits
from kordon.proxy.topics.names import NO_ID
from kordon.proxy.topics.views import VIRTUAL, View

_LOOKS: Final = 4
"""At what the coordinator has, before a client is told to ask again."""
_UNSEEN: Final = Seen(NO_INCARNATION, ())
_Row: TypeAlias = OffsetFetchResponseTopicPartition
_Stock: TypeAlias = OffsetFetch | DialectOffsetFetch


class IndividualOffsetFetch(ApiHandler):
    """Tells what is done offset by offset; other requests are `stock`'s."""

    key = apis.OFFSET_FETCH
    is_always_wanted = True

    def __init__(self, stock: _Stock, logs: IndividualCommits, view: View = VIRTUAL) -> None:
        self.stock = stock
        self.logs = logs
        self.view = view

    def decide(self, held: HeldRequest) -> Handled:
        """Takes a request that asks for ranges."""
        if held.version >= FIRST_VERSION:
            value: OffsetFetchRequest = held.read()
            if value.with_ranges:
                return _Fetch(self, held, value)
        return self.stock.decide(held)


@dataclass(slots=True)
class _Found:
    """A partition of which the coordinator has told where it stands."""

    row: _Row
    place: PlaceKey
    mark: int | None
    text: str

    @property
    def primary(self) -> tuple[int, int | None]:
        """What the coordinator has."""
        return self.row.committed_offset, self.mark


class _Fetch(ConferredRequest):
    """A request for ranges, which Kordon answers."""

    def __init__(self, handler: IndividualOffsetFetch, held: HeldRequest, value: OffsetFetchRequest) -> None:
        self._handler = handler
        self._held = held
        self._body = bytes(held.body)
        self._named = {group.group_id for group in value.groups if group.topics is not None}
        """Groups of which partitions are named."""
        self._ids = TopicIds(held.topics, handler.view)
        self._logs: dict[str, ClaimsLog] = {}
        self._refused: dict[str, Code] = {}
        """By group, why it has no log: its partitions are refused."""
        self._lives: dict[str, int] = {}
        self._begun: dict[PlaceKey, Begun] = {}
        self._may_read: dict[str, bool] = {}

    async def answer(self, ask: Ask) -> OffsetFetchResponse:
        """Answers when the log has been read behind what the coordinator has said."""
        answer = await self._ask_coordinator(ask)  # whoever may not ask costs nothing more
        for group_id in {each.place.group_id for each in self._found(answer)}:
            found = await opened(self._handler.logs, group_id)
            if isinstance(found, Code):
                self._refused[group_id] = found
            else:
                self._logs[group_id], self._lives[group_id] = found, found.life
        for look in range(1, _LOOKS + 1):
            await self._read_logs()
            known = {each.place: self._seen(each.place) for each in self._found(answer)}
            answer = await self._ask_coordinator(ask)
            if not await self._begin_anew(answer, known, ask, is_last=look == _LOOKS):
                break
        await self._read_logs()
        for each in self._found(answer):
            self._tell(each)
            await asyncio.sleep(0)  # telling many ranges takes some 0.1 ms
        return answer

    async def _begin_anew(
        self, answer: OffsetFetchResponse, known: Mapping[PlaceKey, Seen], ask: Ask, *, is_last: bool
    ) -> bool:
        """Writes starts for what has no mark; returns whether the coordinator is to be asked again.

        Args:
            known: What was known before the coordinator was asked.
            is_last: Whether it is not asked again, and such partitions are refused.
        """
        starts = list[tuple[_Found, Start]]()
        for each in self._found(answer):
            start = self._start(each, known.get(each.place, _UNSEEN))
            if start is not None:
                starts.append((each, start))
        if is_last:
            for each, _ in starts:
                _refuse(each.row, Code.COORDINATOR_LOAD_IN_PROGRESS)
            return False
        written = await self._write(starts, ask)
        self._begun.update(written)
        return bool(written)

    async def _ask_coordinator(self, ask: Ask) -> OffsetFetchResponse:
        """Returns what it has, as the client sees topics."""
        held, stock = self._held, self._handler.stock
        asked: OffsetFetchRequest = parse_request(held.route, self._body)
        stock.request(held.version, asked, held.topics)
        asked.with_ranges = False
        answer: OffsetFetchResponse = await ask(held.route, held.build(asked))
        stock.response(held.version, answer, held.topics, parse_request(held.route, self._body))
        await self._ids.ask([topic for group in answer.groups for topic in group.topics], ask)
        return answer

    def _found(self, answer: OffsetFetchResponse) -> Iterator[_Found]:
        """Yields what the coordinator has told without an error, of topics that somebody knows."""
        for group in answer.groups:
            if not group.error_code:
                yield from self._found_of(group)

    def _found_of(self, group: OffsetFetchResponseGroup) -> Iterator[_Found]:
        for topic in group.topics:
            topic_id = self._ids.of(topic)
            for row in topic.partitions:
                if not row.error_code and topic_id != NO_ID:
                    place = PlaceKey(group.group_id, topic_id, row.partition_index)
                    text, mark = read_mark(row.metadata, place, row.committed_offset)
                    yield _Found(row, place, mark, text)

    async def _read_logs(self) -> None:
        """Reads all logs to their ends; one that cannot be read has its partitions refused."""

        async def read(group_id: str, known: ClaimsLog) -> None:
            try:
                await known.read_to_end()
            except UpstreamUnavailable:
                self._refuse_group(group_id, Code.COORDINATOR_LOAD_IN_PROGRESS)
            else:
                if known.life != self._lives[group_id]:
                    self._refuse_group(group_id, Code.COORDINATOR_LOAD_IN_PROGRESS)

        await asyncio.gather(*(read(group_id, each) for group_id, each in self._logs.items()))

    def _refuse_group(self, group_id: str, code: Code) -> None:
        del self._logs[group_id]
        self._refused[group_id] = code

    def _seen(self, place: PlaceKey) -> Seen:
        known = self._logs.get(place.group_id)
        return known.of(place).seen() if known is not None else _UNSEEN

    def _start(self, found: _Found, seen: Seen) -> Start | None:
        """Returns the start to write of a partition; None: what the coordinator has can be told."""
        if found.place.group_id not in self._logs or found.place.group_id not in self._named:
            return None
        name = 1 + secrets.randbelow(MOST_INCARNATION)
        return claims.found_start(seen, *found.primary, name, self._begun.get(found.place))

    async def _write(self, starts: Iterable[tuple[_Found, Start]], ask: Ask) -> dict[PlaceKey, Begun]:
        """Writes starts of those who may; returns what they were written for."""
        written: dict[PlaceKey, Begun] = {}
        by_group: dict[str, list[tuple[_Found, Start]]] = {}
        for found, start in starts:
            by_group.setdefault(found.place.group_id, []).append((found, start))
        for group_id, of_group in by_group.items():
            known = self._logs.get(group_id)
            if known is None or self._handler.logs.is_full or not await self._may_begin(group_id, ask):
                self._named.discard(group_id)
                continue
            try:
                await known.write([(found.place, start) for found, start in of_group], known.read_to)
            except UpstreamUnavailable:
                self._refuse_group(group_id, Code.COORDINATOR_NOT_AVAILABLE)
                continue
            written.update({found.place: Begun(*found.primary, start.name) for found, start in of_group})
        return written

    async def _may_begin(self, group_id: str, ask: Ask) -> bool:
        if group_id not in self._may_read:
            self._may_read[group_id] = await may_read_group(group_id, ask)
        return self._may_read[group_id]

    def _tell(self, found: _Found) -> None:
        """Changes a row to what the client is told."""
        row, group_id = found.row, found.place.group_id
        row.metadata = found.text if row.metadata is not None else None
        if row.error_code:
            return
        known = self._logs.get(group_id)
        if known is None:
            code = self._refused.get(group_id, Code.COORDINATOR_LOAD_IN_PROGRESS)
            if code is not Code.INDIVIDUAL_COMMIT_NOT_ALLOWED:
                _refuse(row, code)
            return
        place = known.of(found.place)
        begun = self._begun.get(found.place)
        knows_mark = found.mark is not None and place.seen().knows(found.mark)
        if place.incarnation == NO_INCARNATION or not (knows_mark or begun == (*found.primary, place.incarnation)):
            if group_id in self._named:
                _refuse(row, Code.COORDINATOR_LOAD_IN_PROGRESS)  # it began again since it was asked
            return
        told = claims.told(place, *found.primary)
        if told.done.stable != row.committed_offset:
            row.committed_leader_epoch = -1
        row.committed_offset = told.done.stable
        row.committed_range_offsets = Ranges(islice(told.done.ranges, MOST_RANGES)).dump()
        row.incarnation = told.incarnation


def _refuse(row: _Row, code: int) -> None:
    row.error_code = code
    row.committed_offset = -1
    row.committed_leader_epoch = -1
