"""Topic data for tests of the auditor's rules: batches as the log has them, and the layouts under which they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from kordon.proxy.ordering.identity import JANITOR, NO_V, tag, writer_id
from kordon.proxy.ordering.layout import LAYOUT_JSON, Layout
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.spark_jobs.judging.layouts import expand
from kordon.testing.audits.rule_plays import MicroBatch, Row

TOPIC: Final = "orders"


def batch(partition: int, offset: int, records: int = 1, **fields: Any) -> dict[str, Any]:
    """A batch of `records` records at an offset; untagged, of nobody, unless `fields` say otherwise."""
    return {
        "topic": TOPIC,
        "partition": partition,
        "base_offset": offset,
        "last_offset": offset + records - 1,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "last_sequence": -1,
        "records": records,
        "is_control": False,
        "is_transactional": False,
        **fields,
    }


def tagged(
    v: int, move: int, partition: int, offset: int, records: int = 1, *, sequence: int = 0, producer: int = 7,
    epoch: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """A batch that came through Kordon."""
    return batch(
        partition,
        offset,
        records,
        producer_id=tag(v if v < NO_V else -1, move, producer) if v != JANITOR else tag(JANITOR, move, producer),
        v=v,
        move=move % 256,
        client_producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        last_sequence=(sequence + records - 1) % (1 << 31),
    )


def transaction_log(
    text: str, start: int = 0, *, partition: int = 0, v: int = 0, producer: int = 7, **fields: Any
) -> list[Row]:
    """Returns batches of one producer that follow on each other, of a record each, as `W5 d5 C5` names them.

    W is a witness, C a commit, A an abort; d is data of the first protocol, and e of the second. The epoch follows.
    """
    rows: list[Row] = []
    for offset, word in enumerate(text.split(), start):
        kind, epoch = word[0], int(word[1:])
        if kind in "de":
            protocol = Protocol.V2 if kind == "e" else Protocol.V1
            row = tagged(v, 0, partition, offset, producer=writer_id(producer, protocol), epoch=epoch)
            number = 2 if kind == "e" else 1
            rows.append({**row, "client_producer_id": producer, "protocol": number, "leader_epoch": 0, **fields})
        else:
            event = {"W": "witness", "C": "commit", "A": "abort"}[kind]
            own = {"producer_id": producer, "producer_epoch": epoch, "is_transactional": True, "leader_epoch": 0}
            rows.append(batch(partition, offset, event=event, is_control=kind != "W", **own | fields))
    return rows


def layout_rows(*layouts: Layout) -> dict[str, Any]:
    """Segments and stays of layouts, as a micro-batch has them."""
    expanded = [expand(LAYOUT_JSON.dump_json(layout).decode()) for layout in layouts]
    segments: list[Row] = [each._asdict() for one, _ in expanded for each in one]
    return {"segments": segments, "stays": [each._asdict() for _, one in expanded for each in one]}


def of(topic: str, *rows: Row) -> list[Row]:
    return [{**row, "topic": topic} for row in rows]


def read(partition: int, next_offset: int, log_start: int = 0, topic: str = TOPIC) -> dict[str, Any]:
    """How far a partition was read."""
    return {"topic": topic, "partition": partition, "log_start": log_start, "next_offset": next_offset}


def cut_up(whole: MicroBatch, places: Iterable[float]) -> list[MicroBatch]:
    """Splits a micro-batch into several: decisions, and the batches of each partition, at the same share of each.

    Args:
        whole: How far it reads, and whether it is the last, is so of the last one.
        places: Where, from 0 to 1.
    """
    parts: list[MicroBatch] = []
    before = 0.0
    for place in (*sorted(places), 1.0):
        first, last = (round(share * len(whole.decisions)) for share in (before, place))
        shares = [(share, each) for share, each in _shares(whole.batches) if share < place]
        parts.append(
            MicroBatch(
                decisions=whole.decisions[first:last],
                batches=[each for share, each in shares if share >= before],
                read_to=whole.read_to if place == 1.0 else _read_to(whole, [each for _, each in shares]),
                segments=whole.segments,
                stays=whole.stays,
                is_last=whole.is_last and place == 1.0,
            )
        )
        before = place
    return parts


def _read_to(whole: MicroBatch, batches: Iterable[Row]) -> list[Row]:
    ends: dict[tuple[str, int], int] = {}
    for each in batches:
        ends[each["topic"], each["partition"]] = each["last_offset"] + 1
    starts: dict[tuple[str, int], int] = {}
    for each in whole.read_to:
        starts[each["topic"], each["partition"]] = each["log_start"]
    told: list[Row] = [read(q, ends.get((topic, q), start), start, topic) for (topic, q), start in starts.items()]
    return told


def _shares(batches: Iterable[Row]) -> list[tuple[float, Row]]:
    rows = sorted(batches, key=lambda row: (row["topic"], row["partition"], row["base_offset"]))
    counts = Counter((each["topic"], each["partition"]) for each in rows)
    seen = Counter[tuple[str, int]]()
    shares: list[tuple[float, Row]] = []
    for each in rows:
        place = each["topic"], each["partition"]
        shares.append((seen[place] / counts[place], each))
        seen[place] += 1
    return shares
