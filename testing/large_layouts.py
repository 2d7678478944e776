"""The largest layouts that proxies go by, as somebody may write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID


def forged(n: int, v_count: int, counts: Sequence[int], segments: Sequence[tuple[int, int]], **fields: Any) -> bytes:
    """Returns the record of a layout in as few bytes as can be.

    Args:
        counts: By epoch, the partitions that are written to.
        segments: As (partition, epoch).
    """
    layout = {
        "topic": "orders",
        "topic_id": str(UUID(int=1)),
        "n": n,
        "v_count": v_count,
        "epochs": [{"number": number, "u": u} | fields for number, u in enumerate(counts)],
        "segments": [{"id": {"partition": q, "epoch": epoch}, "start": 0} for q, epoch in segments],
    }
    return json.dumps({"layout": layout, "face_id": str(UUID(int=2))}, separators=(",", ":")).encode()


LARGEST: Final = {
    "many epochs of one partition": forged(1, 16_384, [2, *([1] * 1_000)], [(0, epoch) for epoch in range(1_001)]),
    "many partitions": forged(1, 16_384, [4_000], [(q, 0) for q in range(6_000)]),
    "many steps": forged(1, 16_384, [1_000, *([1] * 38)], [(0, epoch) for epoch in range(39)]),
    "many epochs of many partitions": forged(1, 16_384, [4_000] * 1_001, [(q, 0) for q in range(6_000)]),
}
"""Each is as large as it may be in one way at least (`ordering/soundness.py`)."""
