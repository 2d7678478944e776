"""What is kept between the Fetch requests of one connection: who rests, and the session of a client that asks for one.

A client with a session (KIP-227) names in each request only what has changed since the one before, and is told only
what has changed. A session belongs to its connection: nobody else can go on with it, and it ends with that.

What is kept has a bound for all connections of a worker. Whoever has not asked for two minutes makes room; where there
is none, a client gets no session, and names all its partitions each time. Brokers do the same.

Source: KIP-227; FetchSession.scala (Kafka 4.3): which partitions an answer has, and that those with records take turns.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import filterfalse
from typing import Final, TypeAlias, cast
from uuid import UUID

from kordon.codecs.bodies import FetchResponse, FetchResponsePartition, FetchResponseTopic
from kordon.codecs.fetch_answers import build_answer, build_topic
from kordon.codecs.fetch_requests import OWN_SESSIONS
from kordon.codecs.primitives import Built
from kordon.proxy.reads.fetch_rows import IDS_SINCE, AskedFetch, AskedTopic, pieces_of, written
from kordon.proxy.reads.fetching import FetchedRows
from kordon.proxy.reads.named_rows import NamedRows
from kordon.proxy.reads.resting import NamedTopic, RestingTopic, Rests

MOST_ROWS: Final = 200_000
"""Partitions that are kept of all connections of a worker; each takes some 800 bytes."""
IDLE_SECONDS: Final = 120.0
"""After which a connection that does not ask makes room (min.incremental.fetch.session.eviction.ms)."""
_LAST_EPOCH: Final = 2**31 - 1
_COPIED_BYTES: Final = 64 * 1024
"""Records of a topic that are copied, so that its rows are written at once."""

_Key: TypeAlias = str | UUID


class FetchSession:
    """A session of one connection.

    Args:
        asked: The request that begins it.
        rests: The reader's partitions at rest.

    Attributes:
        epoch: The epoch that the next request must have.
        lock: Held while a request is answered: the next one begins where that ends.
    """

    def __init__(self, asked: AskedFetch, rests: Rests) -> None:
        self.id = OWN_SESSIONS.start + secrets.randbelow(len(OWN_SESSIONS))
        self.epoch = 1
        self.has_ids = asked.version >= IDS_SINCE
        self.lock = asyncio.Lock()
        self.rests = rests
        self._topics: dict[_Key, AskedTopic] = {}
        self._told: dict[tuple[_Key, int], tuple[int, int]] = {}
        """By partition, the end and the start that were told last; nothing of one that had an error."""
        self._take_in(asked)

    @property
    def topics(self) -> list[AskedTopic]:
        """All that it names, in the order in which partitions get what there is room for."""
        return [*self._topics.values()]

    @property
    def count(self) -> int:
        """The number of partitions that the session names."""
        return sum(len(each.rows) for each in self._topics.values())

    def advance(self) -> None:
        """Takes note that a request has come."""
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def go_on(self, asked: AskedFetch) -> AskedFetch:
        """Takes in what a request changes; returns what the session asks for now."""
        self._take_in(asked)
        for key, partitions in asked.forgotten:
            for each in partitions if key in self._topics else ():
                self._topics[key].rows.pop(each, None)
                self._told.pop((key, each), None)
            if key in self._topics and not self._topics[key].rows:
                del self._topics[key]
        return asked._replace(topics=self.topics)

    def first_answer(self, named: Sequence[NamedTopic], rows: FetchedRows) -> FetchResponse:
        """Returns the answer to the request that begins it, which has all rows."""
        self._changed(rows)
        answer = whole_answer(self.rests, named, rows)
        answer.session_id = self.id
        return answer

    def answer(self, rows: FetchedRows) -> FetchResponse:
        """Returns the answer to a request that goes on with it: rows with records, errors, another end or start."""
        changed = self._changed(rows)
        version = self.rests.version
        topics = [_topic(version, topic, partitions) for topic, partitions in changed.items()]
        return FetchResponse(session_id=self.id if self._topics else 0, responses=topics)

    def _changed(self, rows: FetchedRows) -> dict[RestingTopic, list[FetchResponsePartition]]:
        """Returns what is not as it was told last, and takes note of it."""
        changed: dict[RestingTopic, list[FetchResponsePartition]] = {}
        for (topic, partition), row in rows.items():
            place, bounds = (topic.key, partition), (row.high_watermark, row.get("log_start_offset", -1))
            if row.error_code:
                self._told.pop(place, None)
            elif self._told.get(place) == bounds and not row["records"]:
                continue
            else:
                self._told[place] = bounds
            changed.setdefault(topic, []).append(row)
            if row["records"]:
                self._let_others_go_first(*place)
        for each in self.rests.tell():
            place, bounds = (each.topic.key, each.partition), (each.end, each.start)
            if self._told.get(place) != bounds:
                self._told[place] = bounds
                changed.setdefault(each.topic, []).append(_built_row(each.topic.told[each.partition]))
        return changed

    def _let_others_go_first(self, key: _Key, partition: int) -> None:
        """Puts a partition that has got records behind the others, so that room is shared by turns."""
        topic = self._topics.pop(key)
        topic.rows[partition] = topic.rows.pop(partition)
        self._topics[key] = topic

    def _take_in(self, asked: AskedFetch) -> None:
        for each in asked.topics:
            key = each.name or each.topic_id
            known = self._topics.setdefault(key, AskedTopic(each.name, each.topic_id, {}))
            known.rows.update(each.rows)


class KeptFetches:
    """The fetch state that is kept for one connection."""

    __slots__ = ("__weakref__", "named", "rests", "session")

    def __init__(self) -> None:
        self.rests: Rests | None = None
        """The rests of the last request that names all its partitions; None while one is under way."""
        self.named: Mapping[str | UUID, NamedRows] | None = None
        """The rows by which that request has named them, by topic; None while one is under way."""
        self.session: FetchSession | None = None

    def take_rests(self, asked: AskedFetch) -> Rests | None:
        """Returns who has rested when the last request was answered, for one that nobody else has; None: it is over."""
        rests, self.rests = self.rests, None
        is_same = rests is not None and (rests.version, rests.is_committed) == (asked.version, asked.is_committed)
        return rests if is_same else None

    def take_named(self) -> Mapping[str | UUID, NamedRows] | None:
        """Returns how the last request has named its partitions, for one that nobody else has."""
        named, self.named = self.named, None
        return named

    def drop(self) -> None:
        """Keeps nothing any more."""
        self.rests = self.session = self.named = None


class ReaderMemory:
    """Bounds what is kept of all connections of a worker."""

    def __init__(self, most_rows: int = MOST_ROWS, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_rows = most_rows
        self._clock = clock
        self._rows = 0
        self._kept: dict[weakref.ref[KeptFetches], tuple[int, float]] = {}
        """Partitions, and when they were named last; who has asked longest ago comes first."""

    def has_room(self, kept: KeptFetches, rows: int) -> bool:
        """Whether a connection may keep so many partitions; if not, it keeps nothing any more."""
        self._forget(weakref.ref(kept))
        now = self._clock()
        while self._kept and self._is_too_much(rows):
            oldest, (_, asked) = next(iter(self._kept.items()))
            if now - asked < IDLE_SECONDS:
                break
            if (other := oldest()) is not None:
                other.drop()
            self._forget(oldest)
        if self._is_too_much(rows):
            kept.drop()
            return False
        self._kept[weakref.ref(kept, self._forget)] = rows, now
        self._rows += rows
        return True

    def _is_too_much(self, rows: int) -> bool:
        return self._rows + rows > self._most_rows

    def _forget(self, kept: weakref.ref[KeptFetches]) -> None:
        rows, _ = self._kept.pop(kept, (0, 0.0))
        self._rows -= rows


def whole_answer(rests: Rests, named: Sequence[NamedTopic], rows: FetchedRows) -> FetchResponse:
    """Returns an answer that has all rows, in the order of the request; it belongs to no session."""
    rests.tell()
    return FetchResponse(session_id=0, responses=[_whole_topic(rests.version, each, rows) for each in named])


def built_answer(version: int, answer: FetchResponse) -> bytes | None:
    """Writes an answer whose topics are written already, all of them; None: they are not, or it has an error."""
    topics = [each.data for each in answer.responses if isinstance(each, Built)]
    if answer.get("error_code", 0) or len(topics) < len(answer.responses):
        return None
    return build_answer(version, answer.session_id, topics)


def _whole_topic(version: int, named: NamedTopic, rows: FetchedRows) -> FetchResponseTopic:
    topic, told = named.topic, named.topic.told
    awake = {each: rows[topic, each] for each in filterfalse(told.__contains__, named.rows)}
    if _are_small(awake.values()):
        data = told | {each: written(version, row) for each, row in awake.items()}
        return _built_topic(version, topic, [*map(data.__getitem__, named.rows)])
    partitions = [_built_row(told[each]) if each in told else awake[each] for each in named.rows]
    return FetchResponseTopic(topic=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _topic(version: int, topic: RestingTopic, rows: Sequence[FetchResponsePartition]) -> FetchResponseTopic:
    if _are_small(row for row in rows if not isinstance(row, Built)):
        data = [row.data if isinstance(row, Built) else written(version, row) for row in rows]
        return _built_topic(version, topic, data)
    return FetchResponseTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[*rows])


def _are_small(rows: Iterable[FetchResponsePartition]) -> bool:
    """Whether the records of rows are copied."""
    return sum(len(piece) for row in rows for piece in pieces_of(row)) <= _COPIED_BYTES


def _built_topic(version: int, topic: RestingTopic, rows: Sequence[bytes]) -> FetchResponseTopic:
    data = build_topic(version, topic.name, topic.topic_id, rows)
    fields = FetchResponseTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[])
    return cast("FetchResponseTopic", Built(fields, data))


def _built_row(data: bytes) -> FetchResponsePartition:
    return cast("FetchResponsePartition", Built({}, data))
