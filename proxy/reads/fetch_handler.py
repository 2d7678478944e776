"""Answers Fetch of managed topics: what a client asks of its partitions, read from the physical ones.

A request is answered as a broker answers it: at once if there is enough, else when `max_wait_ms` has passed. Each of
its partitions is carried on (`fetching.py`) through what the worker has read already (`logs.py`); what is missing is
waited for, and many readers wait for one read.
"""

from __future__ import annotations

from kordon.codecs.bodies import FetchRequest, FetchResponse
from kordon.codecs.error_codes import Code
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.layout import NO_COUNT
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.reads.fetch_rows import AskedFetch, asked_by_table, found_topic, refuse_fetch
from kordon.proxy.reads.fetching import Fetching
from kordon.proxy.reads.gated_fetching import RequestGate
from kordon.proxy.reads.gating import Gates
from kordon.proxy.reads.worker_reads import WorkerReads


class FetchHandler:
    """Answers the Fetch requests of one kind of connections.

    Args:
        gates: Of the worker, where clients speak the dialect and mean physical partitions; None: they mean virtual
            ones.
    """

    def __init__(self, reads: WorkerReads, gates: Gates | None = None) -> None:
        self._reads = reads
        self._gates = gates

    async def serve(self, version: int, request: FetchRequest, client: Client) -> FetchResponse:
        """Answers a request that names managed topics only; returns the response."""
        asked = asked_by_table(version, request)
        if self._gates is not None:
            self._reads.logs.prune()
            gate = RequestGate(self._reads, self._gates, request, client)
            return await Fetching(self._reads, asked, client, gate).run()
        if any(row.get("undeleted_partition_count", NO_COUNT) != NO_COUNT for row in request.topics):
            return self._refuse_counts(asked, client)
        return await self.read(asked, client)

    async def read(self, asked: AskedFetch, client: Client) -> FetchResponse:
        """Answers a request that means virtual partitions; returns the response."""
        self._reads.logs.prune()
        return await Fetching(self._reads, asked, client).run()

    def _refuse_counts(self, asked: AskedFetch, client: Client) -> FetchResponse:
        """Refuses a client that counts, as it means physical partitions, on a connection where there are none."""
        for each in asked.topics:
            topic = found_topic(self._reads.topics, each)
            for partition, _, offset, _ in each.rows:
                stream = physical_stream(partition)
                self._reads.decisions.refused(client, topic, stream, offset, Code.INVALID_REQUEST)
        return refuse_fetch(asked, Code.INVALID_REQUEST)
