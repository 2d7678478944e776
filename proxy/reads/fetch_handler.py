"""Answers Fetch of managed topics: what a client asks of its partitions, read from the physical ones.

A request is answered as a broker answers it: at once if there is enough, else when `max_wait_ms` has passed. Each of
its partitions is carried on (`fetching.py`) through what the worker has read already (`logs.py`); what is missing is
waited for, and many readers wait for one read. What rests goes on resting in the connection's next request
(`fetch_sessions.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from kordon.codecs.bodies import FetchRequest, FetchResponse
from kordon.codecs.error_codes import Code
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.layout import NO_COUNT
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.reads.fetch_rows import AskedFetch, asked_by_table, found_topic, refuse_fetch
from kordon.proxy.reads.fetch_sessions import FetchSession, KeptFetches, ReaderMemory, whole_answer
from kordon.proxy.reads.fetching import FetchedRows, Fetching, GivenRow
from kordon.proxy.reads.gated_fetching import RequestGate
from kordon.proxy.reads.gating import Gates
from kordon.proxy.reads.resting import NamedTopic, Rests
from kordon.proxy.reads.worker_reads import WorkerReads

Complete: TypeAlias = Callable[[Sequence[GivenRow]], Awaitable[object]]
"""Adds to rows, in place, what consumers that want committed records only are told beside records."""
_BEGINS: int = 0
"""The session epoch of a request that begins a session."""


class FetchHandler:
    """Answers the Fetch requests of one kind of connections.

    Args:
        gates: The worker's gates, if clients speak the dialect and mean physical partitions. None: they mean virtual
            partitions.
        memory: The bound of the memory that is kept for all connections.
        complete: Called where a client gets committed records only, to complete the answer.
    """

    def __init__(
        self,
        reads: WorkerReads,
        gates: Gates | None = None,
        memory: ReaderMemory | None = None,
        *,
        complete: Complete | None = None,
    ) -> None:
        self._reads = reads
        self._gates = gates
        self._memory = memory or ReaderMemory()
        self._complete = complete

    async def serve(self, version: int, request: FetchRequest, client: Client) -> FetchResponse:
        """Answers a request that names managed topics only; returns the response."""
        asked = asked_by_table(version, request)._replace(session_epoch=-1)
        if self._gates is None:
            if any(row.get("undeleted_partition_count", NO_COUNT) != NO_COUNT for row in request.topics):
                return self._refuse_counts(asked, client)
            return await self.read(asked, client)
        self._reads.logs.prune()
        gate = RequestGate(self._reads, self._gates, request, client)
        rests = Rests(self._reads, version, is_committed=asked.is_committed, gate=gate)
        return whole_answer(rests, *await self._rows(asked, client, rests, gate))

    async def read(
        self, asked: AskedFetch, client: Client, kept: KeptFetches | None = None, session: FetchSession | None = None
    ) -> FetchResponse:
        """Answers a request that means virtual partitions; returns the response.

        Args:
            kept: The memory that is kept for the client's connection. None: nothing is kept.
            session: The session that the request continues. None: the request names all its partitions.
        """
        self._reads.logs.prune()
        if session is not None:
            async with session.lock:
                return await self._go_on(asked, client, kept or KeptFetches(), session)
        rests = kept.take_rests(asked) if kept is not None else None
        if rests is None or asked.session_epoch == _BEGINS:
            rests = Rests(self._reads, asked.version, is_committed=asked.is_committed)
        named, rows = await self._rows(asked, client, rests)
        if kept is None:
            return whole_answer(rests, named, rows)
        if not self._memory.has_room(kept, sum(len(each.rows) for each in asked.topics)):
            return whole_answer(rests, named, rows)
        if asked.session_epoch == _BEGINS:
            kept.session = FetchSession(asked, rests)
            return kept.session.first_answer(named, rows)
        kept.rests, kept.named = rests, asked.named
        return whole_answer(rests, named, rows)

    async def _go_on(
        self, asked: AskedFetch, client: Client, kept: KeptFetches, session: FetchSession
    ) -> FetchResponse:
        """Answers a request that says what has changed in a session."""
        asked = session.go_on(asked)
        if (session.rests.version, session.rests.is_committed) != (asked.version, asked.is_committed):
            session.rests = Rests(self._reads, asked.version, is_committed=asked.is_committed)
        _, rows = await self._rows(asked, client, session.rests)
        answer = session.answer(rows)
        if not session.count or not self._memory.has_room(kept, session.count):
            kept.drop()
        return answer

    async def _rows(
        self, asked: AskedFetch, client: Client, rests: Rests, gate: RequestGate | None = None
    ) -> tuple[list[NamedTopic], FetchedRows]:
        """Reads; returns what was named, and the rows of those that do not rest."""
        named = rests.name(asked.topics)
        if client.most_fetch_bytes is not None:
            asked = asked._replace(max_bytes=min(asked.max_bytes, client.most_fetch_bytes))
        fetching = Fetching(self._reads, asked, client, named, rests, gate=gate)
        rows = await fetching.run()
        if self._complete is not None and asked.is_committed and (given := fetching.given(rows)):
            await self._complete(given)
        return named, rows

    def _refuse_counts(self, asked: AskedFetch, client: Client) -> FetchResponse:
        """Refuses a client that counts, as it means physical partitions, on a connection where there are none."""
        for each in asked.topics:
            topic = found_topic(self._reads.topics, each)
            for partition, _, offset, _ in each.rows.values():
                stream = physical_stream(partition)
                self._reads.decisions.refused(client, topic, stream, offset, Code.INVALID_REQUEST)
        return refuse_fetch(asked, Code.INVALID_REQUEST)
