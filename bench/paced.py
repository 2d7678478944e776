"""How long requests take that come at a fixed pace, far below what is possible, by a clock of nanoseconds.

One connection sends a thousand Produce requests a second, with acks=all. Their bytes are made before, so the sender
takes little of the machine. If an answer is late, those behind it count from when they were due.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any, Final

from kordon.bench.loads import ToolError
from kordon.bench.plan import Latency
from kordon.codecs import apis
from kordon.codecs.headers import build_request_header, parse_response_header
from kordon.codecs.messages import request, response
from kordon.testing.managed_writes import a_batch
from kordon.testing.plain_connection import PlainConnection

REQUESTS_PER_SECOND: Final = 1_000
_VERSION: Final = 9
_CORRELATION_ID: Final = 1
_LEADER_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.05


def latency(case: Latency, bootstrap: str, topic: str, partitions: int) -> dict[str, float]:
    """Sends to the partitions in turn; returns milliseconds from send to acknowledgement by percentile.

    Args:
        bootstrap: Leads to the only broker of the cluster.

    Raises:
        ToolError: A record was not acknowledged.
    """
    frames = [_frame(case, topic, q) for q in range(partitions)]
    warm_up, seconds = case.warmup_seconds * REQUESTS_PER_SECOND, case.run_seconds * REQUESTS_PER_SECOND
    with PlainConnection(bootstrap) as connection:
        for frame in frames:
            _acknowledged(connection, frame)
        taken = list(_sent(connection, frames, warm_up + seconds))[warm_up:]
        _acknowledged(connection, frames[0])
    return percentiles(taken)


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Returns milliseconds by percentile."""
    ordered = sorted(seconds)
    at = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
    return {name: ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000 for name, share in at.items()}


def _sent(connection: PlainConnection, frames: list[bytes], count: int) -> Iterator[float]:
    began = time.perf_counter()
    for number, frame in enumerate(islice(cycle(frames), count)):
        due = began + number / REQUESTS_PER_SECOND
        early = due - time.perf_counter()
        if early > 0:
            time.sleep(early)
            due = time.perf_counter()  # that a sleep was too long is not the answer's fault
        connection.ask_frame(frame)
        yield time.perf_counter() - due


def _frame(case: Latency, topic: str, partition: int) -> bytes:
    records = a_batch(*["x" * case.record_bytes] * (case.records_per_second // REQUESTS_PER_SECOND))
    rows: list[Any] = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    asked = {"transactional_id": None, "acks": -1, "timeout_ms": 30_000, "topic_data": rows}
    header = build_request_header(apis.PRODUCE, _VERSION, _CORRELATION_ID, "bench")
    return header + request(apis.PRODUCE).build(_VERSION, asked)


def _acknowledged(connection: PlainConnection, frame: bytes) -> None:
    """Sends a request until its record is acknowledged: a partition that is new has no leader yet."""
    deadline = time.monotonic() + _LEADER_SECONDS
    while code := _code(connection.ask_frame(frame)):
        if time.monotonic() > deadline:
            raise ToolError(f"latency: a record was refused with {code}")
        time.sleep(_PAUSE_SECONDS)


def _code(answer: bytes) -> int:
    _, consumed = parse_response_header(apis.PRODUCE, _VERSION, answer)
    told = response(apis.PRODUCE).parse(_VERSION, answer[consumed:])
    code: int = told.responses[0].partition_responses[0].error_code
    return code
