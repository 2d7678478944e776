"""Witnesses are recognised however brokers store them, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from kordon.codecs.records import look_batch
from kordon.codecs.witness import MOST_WITNESS_BYTES, WITNESS_KEY, is_witness
from kordon.proxy.kafka.batches import BatchIdentity, Copy, build_copies
from kordon.proxy.kafka.witness_batch import build_witness
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.transactions.events import Protocol

WHO = BatchIdentity(7, 3, 0)
OURS = Copy(WITNESS_KEY, None, 1_700_000_000_000)
CODECS = {"plain": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def recognised(batch: bytes) -> bool:
    return is_witness(look_batch(batch, 0), batch)


@pytest.mark.parametrize("protocol", Protocol)
def test_a_witness_is_recognised_and_has_the_clients_own_producer(protocol: Protocol) -> None:
    """It fits the bound of its size, and is transactional."""
    batch = build_witness(WHO, protocol)
    header = look_batch(batch, 0)
    assert recognised(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == WHO
    assert header.is_transactional
    assert len(batch) < MOST_WITNESS_BYTES


def test_witnesses_of_both_protocols_are_never_each_others_repetition() -> None:
    """Brokers take a batch for a repetition if its first and last sequence are those of one before."""
    assert {look_batch(build_witness(WHO, each), 0).records_count for each in Protocol} == {1, 2}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("records", [1, 2])
def test_a_witness_that_a_topic_has_compressed_is_recognised(codec: str, records: int) -> None:
    """`compression.type` of a topic rewrites it."""
    assert recognised(build_copies([OURS] * records, WHO, is_transactional=True, codec=CODECS[codec]))


NO_WITNESSES = {
    "another key": build_copies([OURS._replace(key=b"__kordon.tx")], WHO, is_transactional=True),
    "no key": build_copies([OURS._replace(key=None)], WHO, is_transactional=True),
    "a value": build_copies([OURS._replace(value=b"")], WHO, is_transactional=True),
    "a header": build_copies([OURS._replace(headers=[("a", b"b")])], WHO, is_transactional=True),
    "a record behind": build_copies([OURS, OURS._replace(key=b"a")], WHO, is_transactional=True),
    "three records": build_copies([OURS] * 3, WHO, is_transactional=True),
    "no transaction": build_copies([OURS], WHO),
    "no producer": build_copies([OURS], BatchIdentity(-1, -1, -1), is_transactional=True),
    "a tagged producer": build_copies([OURS], WHO._replace(producer_id=tag(0, 0, 7)), is_transactional=True),
    "too large": build_copies([OURS._replace(value=b"a" * 200)], WHO, is_transactional=True),
}


@pytest.mark.parametrize("what", NO_WITNESSES)
def test_what_only_resembles_a_witness_is_none(what: str) -> None:
    """Somebody who writes round Kordon hides nothing but what has Kordon's own form."""
    assert not recognised(NO_WITNESSES[what])


@pytest.mark.parametrize("damaged", range(57, 80, 3))
def test_a_damaged_witness_is_none_or_reads_the_same(damaged: int) -> None:
    """What cannot be read raises nothing."""
    batch = bytearray(build_copies([OURS], WHO, is_transactional=True, codec=CODECS["gzip"]))
    batch[damaged] ^= 0xFF
    recognised(bytes(batch))
