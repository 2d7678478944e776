"""Every n-th batch is opened: which ones, what is taken of them, and what cannot be opened."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import numpy as np
import polars as pl
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kordon.codecs.retag import crc32c
from kordon.spark_jobs import key_sample
from kordon.spark_jobs.batch_reader import HEADER
from kordon.spark_jobs.brokers import PartitionKey
from kordon.spark_jobs.judging.rules.belonging import JANITOR, NO_V
from kordon.spark_jobs.judging.schema import KEYS
from kordon.spark_jobs.key_hashes import hashes_of
from kordon.spark_jobs.key_sample import KEY_BYTES, ONE_IN, OPENED_RECORDS, UNPACKED_BYTES, KeySample
from kordon.testing.messages.bombs import CODECS, bomb

PLACE: Final = PartitionKey("orders", 3)
TAGGED: Final = (5 + 1) << 48 | 2 << 40 | 4007
KEYS_OF_ONE: Final = [b"key-%d" % number for number in range(5)]


def batch(
    keys: Iterable[bytes | None], base_offset: int = 0, *, producer_id: int = TAGGED, codec: int = 0, value: int = 50
) -> bytes:
    """A batch as it stands in a log, with a record for each key."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, producer_id, 0, 0, 1 << 26)
    for delta, key in enumerate(keys):
        builder.append(delta, 1_000, key, b"v" * value, [("h", b"1")])
    return at(builder.build(), base_offset)


def at(built: bytes | bytearray, base_offset: int) -> bytes:
    """The same batch at another offset."""
    return base_offset.to_bytes(8, "big") + bytes(built[8:])


def changed(built: bytes, place: int, byte: int) -> bytes:
    """The same with another byte, and the checksum of that."""
    whole = bytearray(built)
    whole[place] = byte
    whole[17:21] = crc32c(whole[21:]).to_bytes(4, "big")
    return bytes(whole)


def opened(*answers: Sequence[bytes], one_in: int = 1) -> pl.DataFrame:
    """What comes of the batches of some answers."""
    sample = KeySample(PLACE, one_in)
    for batches in answers:
        ends = [0, *accumulate(map(len, batches))]
        headers = np.frombuffer(b"".join(each[: HEADER.itemsize] for each in batches), dtype=HEADER)
        sample.open(memoryview(b"".join(batches)), headers, np.array([*pairwise(ends)], dtype=np.int64).reshape(-1, 2))
    return sample.table()


def rows(base_offset: int, keys: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """What `KEYS` has of a batch."""
    return [(*PLACE, base_offset, *map(int, each)) for each in zip(*hashes_of(keys), strict=True)]


@pytest.mark.parametrize("codec", [0, *CODECS.values()])
def test_keys_of_a_batch_are_told_by_their_hashes_each_once(codec: int) -> None:
    """Whatever its compression; records without key, and with an empty one, are left out."""
    data = batch([None, *KEYS_OF_ONE, b"", *KEYS_OF_ONE[:2]], 70, codec=codec)
    told = opened([data])
    assert told.schema == KEYS
    assert told.rows() == rows(70, KEYS_OF_ONE)


def test_batches_of_several_answers_are_one_table() -> None:
    """In the order of their offsets, however they are cut into answers."""
    log = [batch(KEYS_OF_ONE[:2], 0), batch([b"x"], 2, codec=CODECS["zstd"]), batch(KEYS_OF_ONE, 3)]
    assert opened(log).rows() == [*rows(0, KEYS_OF_ONE[:2]), *rows(2, [b"x"]), *rows(3, KEYS_OF_ONE)]
    assert opened(log[:1], [], log[1:]).equals(opened(log))
    assert opened([]).equals(KEYS.to_frame())


def test_many_keys_are_hashed_while_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not all kept until the end, and nothing is lost by it."""
    log = [batch(KEYS_OF_ONE, 5 * place) for place in range(40)]
    whole = opened(log)
    monkeypatch.setattr(key_sample, "_HASHED_AT_ONCE", 12)
    assert opened(*([each] for each in log)).equals(whole)


def test_the_same_batches_are_opened_whenever_they_are_read() -> None:
    """Their base offsets decide, so that it does not matter where an answer begins."""
    log = [batch([b"k%d" % place], place) for place in range(4_000)]
    told = opened(log, one_in=16)
    assert opened(log[:1_777], log[1_777:], one_in=16).equals(told)
    assert 150 < told.height < 350  # 250 of 4,000
    assert opened(log, one_in=0).is_empty()


@pytest.mark.parametrize("step", [1, 16, 50, 100, 256, 1_000, 4_096])
def test_of_batches_of_any_size_about_as_many_are_opened(step: int) -> None:
    """Offsets at which batches of one size begin are spread as all are."""
    headers = np.zeros(40_000, dtype=HEADER)
    headers["base_offset"] = np.arange(40_000) * step
    headers["producer_id"] = TAGGED
    is_opened = key_sample._are_opened(headers, ONE_IN)  # pyright: ignore[reportPrivateUsage]
    assert 0.4 < is_opened.sum() / (40_000 / ONE_IN) < 1.6


def test_only_what_kordon_has_placed_is_opened() -> None:
    """Neither what came round it, nor what was there before, nor a marker of the janitor, nor a control batch."""
    log = [
        batch([b"round"], 0, producer_id=-1),
        batch([b"before"], 1, producer_id=4007),
        batch([b"marker"], 2, producer_id=(JANITOR + 1) << 48 | 1),
        changed(batch([b"control"], 3), 22, 0x20),
        batch([b"dialect"], 4, producer_id=(NO_V + 1) << 48 | 1),
        batch([b"stock"], 5),
    ]
    assert opened(log).rows() == [*rows(4, [b"dialect"]), *rows(5, [b"stock"])]


def test_of_a_batch_the_first_records_are_looked_at_and_no_long_keys() -> None:
    """So what is opened costs little, however much it has."""
    keys = [b"key-%d" % number for number in range(500)]
    assert opened([batch(keys)]).rows() == rows(0, keys[:OPENED_RECORDS])
    assert opened([batch([b"k" * (KEY_BYTES + 1), b"k" * KEY_BYTES])]).rows() == rows(0, [b"k" * KEY_BYTES])


@pytest.mark.parametrize("codec", CODECS)
def test_what_unpacks_to_very_much_is_counted_and_the_rest_is_opened(codec: str) -> None:
    """A bomb does not stop the audit, nor those behind it."""
    log = [at(tagged(bomb(codec, UNPACKED_BYTES + 1)), 0), batch(KEYS_OF_ONE, 1, codec=CODECS[codec])]
    assert opened(log).sort("base_offset").rows() == [(*PLACE, 0, None, None, None), *rows(1, KEYS_OF_ONE)]


def tagged(built: bytes) -> bytes:
    """A batch with an identity of Kordon's."""
    whole = bytearray(built)
    whole[43:51] = TAGGED.to_bytes(8, "big")
    return changed(bytes(whole), 0, 0)


def test_an_answer_of_bombs_unpacks_to_no_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is within a batch's bound; the next answer has its own."""
    monkeypatch.setattr(key_sample, "ANSWER_BYTES", 250_000)
    log = [at(tagged(bomb("zstd", 100_000)), place) for place in range(4)]
    unknown = opened(log, log[:1]).filter(pl.col("murmur2").is_null())
    assert unknown.get_column("base_offset").to_list() == [2, 3]


def test_a_wrong_checksum_is_a_batch_that_cannot_be_opened() -> None:
    """Its keys may be other ones than were written."""
    data = bytearray(batch(KEYS_OF_ONE))
    data[-60] ^= 1
    assert opened([bytes(data)]).rows() == [(*PLACE, 0, None, None, None)]


@pytest.mark.parametrize("codec", [0, *CODECS.values()])
def test_bytes_that_are_no_records_stop_nothing(codec: int) -> None:
    """Any byte changed, with the checksum of that: a batch is opened, or counted as one that cannot be."""
    chance = random.Random(codec)
    sound = batch(KEYS_OF_ONE, 9, codec=codec)
    log = [changed(sound, chance.randrange(57, len(sound)), chance.randrange(256)) for _ in range(2_000)]
    told = opened(*([at(each, place)] for place, each in enumerate(log)))
    unknown = told.filter(pl.col("murmur2").is_null())
    assert unknown.get_column("base_offset").is_unique().all()
    assert 0 < unknown.height < len(log)
    assert set(told.get_column("base_offset")) <= set(range(len(log)))
