"""The folder of an audit as it could be: ten minutes of one topic that goes 3 → 6 → 4, and one writer round Kordon.

`python -m kordon.testing.audits.report_sample DIR` writes it, for whoever changes the page and wants to look at it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

START = 1_795_300_000_000
TOPIC = "orders"
V_COUNT = 24
SECONDS = 600
WIDTH = 4
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
CHANGES = ((0, 0, 3), (1, 150, 4), (2, 153, 5), (3, 156, 6), (4, 400, 5), (5, 404, 4))
"""Layout epoch, second, and the count from then on."""
RULES = (
    (0, "GAPS", "No decision is missing between the first and the last number of each worker."),
    (1, "COUNT-FENCE", "Every batch in a segment belongs there under the layout in which the segment was opened."),
    (2, "FENCE-BARRIER", "Acknowledgements, cut, commit and the first write under a layout come in this order."),
    (3, "PARENT-FIRST", "Each delivery from a segment was preceded by evidence that all its predecessors were done."),
    (4, "KEY-ORDER", "First deliveries follow the order of segments and offsets, but for rewinds on record."),
    (5, "NO-SKIP", "What was delivered since a reader's start is all there was."),
    (6, "SEQ-IMAGE", "Each acknowledged sequence stands in the topic exactly once over all segments."),
    (7, "EPOCH-LADDER", "A producer's epoch never falls."),
    (8, "HAND-OVER", "Whoever reads on for a group is told where the group had left off."),
    (9, "KEY-HOME", "In opened batches, each key lies in the virtual partition to which its producer sent it."),
    (10, "TXN-WITNESS", "What is committed stands behind a witness of its own transaction, and is not hidden."),
    (11, "IC-ALGEBRA", "What coordinators got of groups that commit offset by offset follows from their commits."),
    (12, "SOURCE-OWNER", "No source partition had two owners at once, and no restart point went back."),
)
FINDING: Mapping[str, Any] = {
    "finding_id": "5f0c8a7be1" * 6 + "a1b2",
    "rule": 1,
    "name": "COUNT-FENCE",
    "verdict": "fail",
    "kind": "bypass",
    "topic": TOPIC,
    "partition": 4,
    "stream": None,
    "group_id": None,
    "connection": None,
    "layout_epoch": 3,
    "first_offset": 48_211,
    "last_offset": 48_230,
    "text": "Producer 4007 wrote 20 records to orders-4, offsets 48211 to 48230, without Kordon's mark: it reached a "
    f"broker directly. Give it Kordon's address, or take its right to write. Client id near by: {HOSTILE}",
    "decisions": ["kordon-1-7f3a:8812", "kordon-1-7f3a:8840"],
    "found_ms": START + 252_000,
}


def write(folder: Path, *, findings: Iterable[Mapping[str, Any]] = (FINDING,)) -> None:
    found = list(findings)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "about.json").write_text(json.dumps(_about()))
    progress = {"batch_id": 61, "newest_ms": START + 600_000, "decisions": 42_306, "unreadable": 0}
    (folder / "progress.json").write_text(json.dumps(progress))
    _table(folder / "findings" / "batch=0", [])
    # Found in one micro-batch, and again with wider offsets in a later one.
    _table(folder / "findings" / "batch=30", [{**each, "last_offset": each["first_offset"]} for each in found])
    _table(folder / "findings" / "batch=31", found)
    failed = {each["rule"] for each in found}
    for batch in (0, 1):
        _table(
            folder / "checked" / f"batch={batch}",
            [_checked(rule, batch) for rule, *_ in RULES if rule not in failed or batch],
        )
    summaries = {
        "traffic": _traffic(),
        "fences": _fences(),
        "layouts": _layouts(),
        "pauses": _pauses(),
        "workers": _workers(),
        "reasons": _reasons(),
        "read_decisions": _read_decisions(),
        "read_batches": _read_batches(),
        "proofs": _proofs(),
    }
    for name, rows in summaries.items():
        _table(folder / "summaries" / name / "60", [])
        _table(folder / "summaries" / name / "61", rows)
        (folder / "summaries" / name / "62").mkdir()  # the micro-batch that is being written


def _table(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    folder.mkdir(parents=True)
    told = list(rows)
    if told:
        pq.write_table(pa.Table.from_pylist([dict(row) for row in told]), folder / "part-00000.parquet")
    (folder / "_SUCCESS").touch()


def _about() -> dict[str, Any]:
    rules: list[dict[str, Any]] = [{"number": number, "name": name, "proves": proves} for number, name, proves in RULES]
    return {"version": "0.1.0", "rules": rules, "bootstrap": "broker-1:9092", "files": None, "late_ms": 600_000}


def _checked(rule: int, batch: int) -> dict[str, Any]:
    row = {"topic": TOPIC, "partition": 0, "stream": None, "first_offset": 0, "last_offset": 100, "verdict": "pass"}
    return {**row, "rule": rule, "count": 9000 + 700 * rule + batch}


def _home(stream: int, count: int) -> int:
    low = 3 * 2 ** int(math.log2(count / 3))
    slot = stream // 8 + 3 * int(f"{stream % 8:03b}"[::-1], 2)
    wide = int(slot % (2 * low))
    return wide if wide < count else int(slot % low)


def _count_at(second: int) -> int:
    return next(count for _, since, count in reversed(CHANGES) if since <= second)


def _traffic() -> list[dict[str, Any]]:
    """Two groups read: one follows, with a stop of half a minute; each stream is as busy as its number lets it be."""
    rows: list[dict[str, Any]] = []
    ends = [0] * 6
    moves, homes, waiting = [0] * V_COUNT, [_home(v, 3) for v in range(V_COUNT)], [0] * V_COUNT
    for second in range(0, SECONDS, WIDTH):
        count = _count_at(second)
        for v in range(V_COUNT):
            home = _home(v, count)
            moves[v] += home != homes[v]
            homes[v] = home
            wave = 1 + 0.5 * math.sin(second / 47 + v / 3) + 0.25 * math.sin(second / 7 + v)
            written = round(WIDTH * (40 + 9 * (v * 7 % 11)) * wave)
            ends[home] += written
            stopped = 290 <= second < 320
            read = 0 if stopped else min(waiting[v] + written, round(3.2 * written))
            waiting[v] += written - read
            rows.append(
                {
                    "topic": TOPIC,
                    "stream": v,
                    "move": moves[v],
                    "partition": home,
                    "bucket_ms": START + 1000 * second,
                    "width_ms": 1000 * WIDTH,
                    "admitted_batches": written // 20,
                    "admitted_records": written,
                    "admitted_bytes": written * 180,
                    "repeated": int(second in {152, 404} and v % 5 == 0),
                    "admitted_to": ends[home] - 1,
                    "delivered_records": 2 * read or None,
                    "delivered_bytes": 2 * read * 180 or None,
                    "delivered_to": ends[home] - 1 - waiting[v] if read else None,
                    "refused": 0,
                }
            )
    return rows


def _fences() -> list[dict[str, Any]]:
    rows = []
    for epoch, second, count in CHANGES[1:]:
        at = START + 1000 * second
        row = {
            "topic": TOPIC,
            "fence": f"f-{epoch}",
            "kind": "change",
            "layout_epoch": epoch,
            "sealed": f"[{count - 3}]",
        }
        times = {"fenced_ms": at, "acknowledged_ms": at + 3, "cut_ms": at + 6, "committed_ms": at + 9 + epoch}
        rows.append(
            {**row, **times, "cancelled_ms": None, "members": 2, "acknowledged": 2, "layouts_offset": 40 + epoch}
        )
    question = {"fence": "q-1", "kind": "question", "layout_epoch": 3, "fenced_ms": START + 200_000, "members": 2}
    return [*rows, {**rows[0], **question, "committed_ms": None, "cancelled_ms": START + 200_020}]


def _layouts() -> list[dict[str, Any]]:
    return [
        {
            "topic": TOPIC,
            "layout_epoch": epoch,
            "n": 3,
            "v_count": V_COUNT,
            "u": count,
            "placement": "linear",
            "since_ms": START + 1000 * second,
            "committed_ms": START + 1000 * second,
            "adopted_ms": START + 1000 * second + 2,
            "adopted": 2,
            "layouts_offset": 40 + epoch,
            "forgotten_ms": None,
        }
        for epoch, second, count in CHANGES
    ]


def _pauses() -> list[dict[str, Any]]:
    nobody = {"topic": TOPIC, "worker": None, "stream": None, "connection": None, "number": None}
    rows = []
    for epoch, second, _ in CHANGES[1:]:
        at = START + 1000 * second + 1
        rows.append(
            {
                **nobody,
                "what": "writes",
                "reason": "fence",
                "began_ms": at,
                "ended_ms": at + 10 + 7 * epoch,
                "holds": 8,
                "longest_ms": 9 + 5 * epoch,
            }
        )
    reader = {"what": "readers", "reason": "gate", "began_ms": START + 156_000, "ended_ms": START + 163_000}
    still = {
        "what": "writes",
        "reason": "leader",
        "began_ms": START + 590_000,
        "ended_ms": None,
        "worker": "kordon-2-91bc",
    }
    return [
        *rows,
        {**nobody, **reader, "holds": 3, "longest_ms": 6400},
        {**nobody, **still, "holds": 1, "longest_ms": None},
    ]


def _workers() -> list[dict[str, Any]]:
    base = {"first_ms": START, "last_ms": START + 600_000, "first_number": 0, "leases_lost": 0, "dropped": 0}
    return [
        {"worker": "kordon-1-7f3a", "host": "kordon-1", "decisions": 21_408, "last_number": 21_407, **base},
        {"worker": "kordon-2-91bc", "host": "kordon-2", "decisions": 20_912, "last_number": 20_911, **base},
    ]


def _reasons() -> list[dict[str, Any]]:
    base = {"first_ms": START, "last_ms": START + 500_000, "rule": None}
    return [
        {"kind": "refuse", "topic": HOSTILE, "api_key": 0, "reason": "TOPIC_AUTHORIZATION_FAILED", "times": 4, **base},
        {"kind": "hold", "topic": TOPIC, "api_key": None, "reason": "fence", "times": 40, **base},
    ]


def _read_decisions() -> list[dict[str, Any]]:
    counts = {"admit": 20_904, "deliver": 21_300, "hold": 41, "release": 40, "fence": 6, "acknowledge": 10, "commit": 5}
    return [
        {
            "log_partition": 0,
            "kind": kind,
            "decisions": count,
            "first_offset": 0,
            "last_offset": 42_000,
            "first_ms": START,
            "last_ms": START + 600_000,
        }
        for kind, count in counts.items()
    ]


def _read_batches() -> list[dict[str, Any]]:
    return [
        {
            "topic": TOPIC,
            "partition": partition,
            "batches": 9000 - 700 * partition,
            "records": 300_000 - 20_000 * partition,
            "bytes": 54_000_000 - 4_000_000 * partition,
            "untagged": int(partition == 4),
            "control": 0,
            "first_offset": 0,
            "last_offset": 300_000,
            "log_start": 0,
            "next_offset": 300_001,
            "first_ms": START,
            "last_ms": START + 600_000,
        }
        for partition in range(6)
    ]


def _proofs() -> list[dict[str, Any]]:
    decision = {
        "at_ms": START + 251_900,
        "worker": "kordon-1-7f3a",
        "number": 8812,
        "kind": "admit",
        "client_id": HOSTILE,
    }
    place = {
        "topic": TOPIC,
        "stream": 9,
        "partition": 4,
        "first_offset": 48_190,
        "last_offset": 48_210,
        "layout_epoch": 3,
    }
    text = json.dumps({**decision, **place, "evidence": json.dumps({"sent_epoch": 3})})
    return [{"worker": "kordon-1-7f3a", "number": 8812, "at_ms": START + 251_900, "held": "named", "decision": text}]


if __name__ == "__main__":
    write(Path(sys.argv[1]))
