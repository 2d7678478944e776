"""Fetch is decided on, and asks its readers, in the same way whether it is read where it lies or by the table."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs import apis
from kordon.codecs.bodies import FetchRequest, FetchResponse
from kordon.codecs.messages import response
from kordon.proxy.core.answers import body_of
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.api_handler import Handled, ServedRequest
from kordon.proxy.handlers.fetch import Fetch, WalkedFetch
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.reads.fetch_handler import FetchHandler
from kordon.proxy.reads.fetch_rows import AskedFetch, asked_by_table, refuse_fetch
from kordon.proxy.reads.fetch_sessions import FetchSession, KeptFetches
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.handled import held

NAMES = ("orders", "bills", "clicks")
IDS = {name: UUID(int=number + 1) for number, name in enumerate(NAMES)}
VERSIONS = st.sampled_from([4, 6, 7, 11, 12, 13, 17])
TOPICS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3)), max_size=3)


class Readers(FetchHandler):
    """Notes what it is asked for, and answers with an error for each partition."""

    def __init__(self) -> None:
        self.asked: list[AskedFetch] = []

    async def serve(self, version: int, request: FetchRequest, client: Client) -> FetchResponse:
        return await self.read(asked_by_table(version, request), client)

    async def read(
        self,
        asked: AskedFetch,
        client: Client,
        kept: KeptFetches | None = None,
        session: FetchSession | None = None,
    ) -> FetchResponse:
        self.asked.append(asked._replace(forgotten=(), named={}))
        return refuse_fetch(asked, 1)


def some_managed() -> ManagedTopics:
    """Two of the topics are managed."""
    topics = ManagedTopics()
    for name in NAMES[:2]:
        topics.add(ManagedTopic(Layout.created(name, UUID(int=IDS[name].int + 100), 1, 4), IDS[name]))
    return topics


def decided(walks: bool, version: int, fields: dict[str, Any]) -> tuple[Handled, Readers]:
    readers = Readers()
    return Fetch(readers, walks=walks).decide(held(some_managed(), apis.FETCH, version, fields)), readers


def asking(version: int, topics: list[tuple[str, int]], session_epoch: int, isolation_level: int = 0) -> dict[str, Any]:
    """A request for so many partitions of topics."""
    rows = [
        {
            "topic": name,
            "topic_id": IDS[name],
            "partitions": [
                {"partition": each, "fetch_offset": 7 + each, "partition_max_bytes": 9} for each in range(count)
            ],
        }
        for name, count in topics
    ]
    fields: dict[str, Any] = {"max_wait_ms": 5, "min_bytes": 2, "max_bytes": 3, "isolation_level": isolation_level}
    fields |= {"topics": rows, "forgotten_topics_data": [], "rack_id": ""}
    return fields | ({"session_id": 4, "session_epoch": session_epoch} if version >= 7 else {})


async def outcome(walks: bool, version: int, fields: dict[str, Any], refused: set[str]) -> tuple[Any, ...] | None:
    """What the broker is asked, which topics are judged, what readers are asked, and the bytes of the answer."""
    handled, readers = decided(walks, version, fields)
    if handled is None:
        return None
    assert isinstance(handled, ServedRequest)
    names = [*handled.names()]
    if refused & set(names):
        handled = handled.refuse(dict.fromkeys(refused & set(names), 29))
    part = None
    if handled.rest is not None:
        part = asyncio.get_running_loop().create_future()
        part.set_result(FetchResponse(responses=[]))
    answer = body_of(await handled.answer(part))
    return handled.rest, names, handled.right, readers.asked, response(apis.FETCH).parse(version, answer)


@given(VERSIONS, TOPICS, st.integers(-1, 1), st.integers(0, 1), st.sets(st.sampled_from(NAMES)))
def test_both_ways_say_the_same(
    version: int, topics: list[tuple[str, int]], session_epoch: int, isolation_level: int, refused: set[str]
) -> None:
    """Whatever is named, with a session or without, by clients with rights or without."""
    fields = asking(version, topics, session_epoch, isolation_level)

    async def both() -> None:
        walked, by_table = [await outcome(walks, version, fields, refused) for walks in (True, False)]
        assert walked == by_table

    asyncio.run(both())


@pytest.mark.parametrize("version", [4, 11, 12, 13, 17])
def test_nearly_all_requests_are_read_where_they_lie(version: int) -> None:
    """Those that name managed topics only; the others need the table, which builds what the broker is asked."""
    managed = [(NAMES[0], 2), (NAMES[1], 1)]
    assert isinstance(decided(True, version, asking(version, managed, 0))[0], WalkedFetch)
    assert not isinstance(decided(True, version, asking(version, [*managed, (NAMES[2], 1)], 0))[0], WalkedFetch)
    assert decided(True, version, asking(version, [(NAMES[2], 1)], 0))[0] is None
