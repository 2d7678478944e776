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
from kordon.proxy.reads.fetch_rows import asked_partitions, refuse_fetch
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
        self._reads.logs.prune()
        if self._gates is not None:
            gate = RequestGate(self._reads, self._gates, request, client)
            return await Fetching(self._reads, version, request, client, gate).run()
        if any(row.get("undeleted_partition_count", NO_COUNT) != NO_COUNT for row in request.topics):
            return self._refuse_counts(request, client)
        return await Fetching(self._reads, version, request, client).run()

    def _refuse_counts(self, request: FetchRequest, client: Client) -> FetchResponse:
        """Refuses a client that counts, as it means physical partitions, on a connection where there are none."""
        refused = self._reads.decisions.refused
        for asked in asked_partitions(self._reads.topics, request, means_physical=True):
            refused(client, asked.topic, asked.stream, asked.offset, Code.INVALID_REQUEST)
        return refuse_fetch(request, Code.INVALID_REQUEST)
