"""What the auditor's reader tells of witnesses, markers, and tags of transactions, whatever bytes come."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl

from kordon.codecs.fetched import Fetched
from kordon.codecs.split import filler
from kordon.codecs.witness import WITNESS_KEY
from kordon.proxy.kafka.batches import BatchIdentity, Copy, build_copies
from kordon.proxy.kafka.witness_batch import build_witness
from kordon.proxy.ordering.identity import LARGEST_CLIENT_ID, NO_V, tag, untag, writer_id
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.spark_jobs.batch_reader import columns
from kordon.spark_jobs.brokers import PartitionKey

WHO = BatchIdentity(7, 3, 0)
OURS = Copy(WITNESS_KEY, None, 1_700_000_000_000)
MARKERS = {"commit": b"\0\0\0\1", "abort": b"\0\0\0\0", None: b"\0\0\0\2"}
"""Keys of control records; the last one is of another kind."""


def control(key: bytes, *, is_transactional: bool = True, headers: Sequence[tuple[str, bytes]] = ()) -> bytes:
    """A control batch."""
    made = bytearray(build_copies([Copy(key, b"\0" * 6, 0, headers)], WHO))
    made[21:23] = (0x30 if is_transactional else 0x20).to_bytes(2, "big")
    return bytes(made)


def read(*batches: bytes) -> pl.DataFrame:
    """What comes of an answer with these batches, each at the offset behind the one before."""
    counts = [int.from_bytes(each[57:61], "big") for each in batches]
    places = [0, *accumulate(counts)]
    records = b"".join(at.to_bytes(8, "big") + each[8:] for at, each in zip(places, batches, strict=False))
    found = columns(Fetched(0, 1 << 40, 0, memoryview(records)), PartitionKey("orders", 3))
    assert found is not None
    return found[0]


def events(*batches: bytes) -> list[str | None]:
    return read(*batches).get_column("event").to_list()


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_witnesses_are_found_however_a_topic_stores_them(codec: int) -> None:
    """Of both protocols, and in whatever compression."""
    stored = [build_copies([OURS] * count, WHO, is_transactional=True, codec=codec) for count in (1, 2)]
    assert events(*(build_witness(WHO, each) for each in Protocol), *stored) == ["witness"] * 4


def test_markers_are_found_and_other_control_batches_are_not() -> None:
    """By their keys, also in a form in which no broker writes them."""
    assert events(*(control(key) for key in MARKERS.values())) == [*MARKERS]
    assert events(*(control(key + b"later", headers=[("a", b"b")]) for key in MARKERS.values())) == [*MARKERS]
    assert events(filler(0, 300, 1)) == ["commit"]
    assert events(control(b"\0\0\0\1", is_transactional=False), control(b""), control(b"\0")) == [None] * 3


def test_what_only_looks_like_a_witness_is_data() -> None:
    """Somebody who writes round Kordon can hide nothing but witnesses."""
    plain = build_copies([OURS], WHO)
    other = build_copies([OURS._replace(value=b"hidden")], WHO, is_transactional=True)
    tagged = build_copies([OURS], BatchIdentity(tag(0, 0, 7), 3, 0), is_transactional=True)
    assert events(plain, other, tagged, build_copies([OURS] * 3, WHO, is_transactional=True)) == [None] * 4


def test_damage_is_no_event_and_stops_nothing() -> None:
    """A thousand damaged witnesses and markers are read, and say something or nothing."""
    draw = random.Random(1)
    whole = [build_witness(WHO, Protocol.V1), control(MARKERS["commit"]), build_witness(WHO, Protocol.V2)]
    for _ in range(300):
        damaged = [bytearray(each) for each in whole]
        for each in damaged:
            each[draw.randrange(61, len(each))] = draw.randrange(256)
        assert set(events(*map(bytes, damaged))) <= {"witness", "commit", "abort", None}


@pytest.mark.parametrize("protocol", [None, *Protocol])
@pytest.mark.parametrize("client_id", [0, 7, LARGEST_CLIENT_ID])
@pytest.mark.parametrize("v", [0, 5, NO_V])
def test_tags_are_read_as_they_were_made(protocol: Protocol | None, client_id: int, v: int) -> None:
    """As the proxy itself reads them."""
    tagged = tag(-1 if v == NO_V else v, 255, writer_id(client_id, protocol))
    identity = untag(tagged)
    assert identity is not None
    row: dict[str, Any] = read(build_copies([OURS], WHO._replace(producer_id=tagged))).row(0, named=True)
    number = {None: None, Protocol.V1: 1, Protocol.V2: 2}[identity.protocol]
    assert (row["v"], row["move"], row["client_producer_id"]) == (identity.v, identity.move, identity.client_id)
    assert (row["protocol"], row["event"]) == (number, None)


def test_tags_of_several_kinds_in_one_answer_do_not_mix() -> None:
    """Batches in transactions, outside of them, untagged, and of nobody."""
    ids = [tag(1, 0, writer_id(7, each)) for each in (None, *Protocol)]
    rows = read(*(build_copies([OURS], BatchIdentity(each, 0, 0)) for each in [*ids, 7, 1 << 39, -1]))
    assert rows.get_column("protocol").to_list() == [None, 1, 2, None, None, None]
    assert rows.get_column("client_producer_id").to_list() == [7, 7, 7, None, None, None]
