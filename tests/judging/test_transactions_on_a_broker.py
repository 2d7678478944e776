"""Histories of transactions that a real coordinator has ended: with their witnesses, and without."""

from __future__ import annotations

import uuid
from contextlib import closing
from typing import Any

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.spark_jobs.batch_reader import read_partition
from kordon.spark_jobs.brokers import LATEST, Cluster, PartitionKey, Security
from kordon.spark_jobs.judging.rules import count_fence, txn_witness
from kordon.spark_jobs.judging.shipments import What
from kordon.testing.audits.judged import play
from kordon.testing.audits.rule_batches import layout_rows
from kordon.testing.audits.rule_plays import MicroBatch
from kordon.testing.broker_features import SECOND_PROTOCOL, VERIFIED_TRANSACTIONS
from kordon.testing.cluster import Cluster as RealCluster
from kordon.testing.managed_clients import create_ordinary
from kordon.testing.raw_transactions import RawTransactions
from kordon.testing.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.skipif(VERIFIED_TRANSACTIONS.is_missing, reason=VERIFIED_TRANSACTIONS.reason),
]

NEEDS_SECOND = pytest.mark.skipif(SECOND_PROTOCOL.is_missing, reason=SECOND_PROTOCOL.reason)
EPOCHS = {Protocol.V1: 0, Protocol.V2: 1}
"""By how much a marker's epoch is larger than the transaction's."""


@pytest.fixture
def topic(cluster: RealCluster) -> str:
    name = f"audit-{uuid.uuid4().hex[:8]}"
    create_ordinary(cluster.bootstrap(), name, 1)
    return name


def read(cluster: RealCluster, topic: str, batches: int) -> list[dict[str, Any]]:
    """All batches of partition 0, when there are so many."""
    place = PartitionKey(topic, 0)

    def found() -> list[dict[str, Any]]:
        with Cluster(cluster.bootstrap(), Security()) as asked:
            end = asked.ends([place], LATEST)[place]
            tables = [table for what, table in read_partition(asked, place, None, end) if what == What.BATCHES]
        rows = [row for table in tables for row in table.to_dicts()]
        return rows if len(rows) >= batches else []

    return wait_until("all markers are there", found)


def of(topic: str) -> Layout:
    return Layout.created(topic, uuid.UUID(int=1), 1, 4)


def audited(topic: str, rows: list[dict[str, Any]]) -> MicroBatch:
    return MicroBatch(**layout_rows(of(topic)), batches=rows, is_last=True)


@pytest.mark.parametrize("protocol", [Protocol.V1, pytest.param(Protocol.V2, marks=NEEDS_SECOND)])
def test_what_stands_behind_its_witness_is_right_and_what_does_not_is_found(
    cluster: RealCluster, topic: str, protocol: Protocol
) -> None:
    """The coordinator's markers, the epochs of both protocols, and bytes as a broker stores them."""
    with closing(RawTransactions(cluster.bootstrap(), topic, protocol)) as producer:
        begun = producer.epoch

        def transaction(*, is_witnessed: bool, is_commit: bool = True) -> None:
            if protocol is Protocol.V1:
                producer.add(topic, 0)
            if is_witnessed:
                producer.witness(topic, 0)
            producer.write(topic, 0, 2, "a record")
            producer.end(is_commit=is_commit)

        transaction(is_witnessed=True)
        transaction(is_witnessed=True, is_commit=False)
        right = read(cluster, topic, 6)
        transaction(is_witnessed=protocol is Protocol.V2)
        if protocol is Protocol.V2:  # no marker comes where nobody wrote a witness: it is written too late
            producer.write(topic, 0, 2, "too early")
            producer.witness(topic, 0)
            producer.end()
    wrong = read(cluster, topic, 12 if protocol is Protocol.V2 else 8)
    epochs = [begun + n * EPOCHS[protocol] for n in range(3)]
    whose = producer.producer_id
    data = (None, 1 + EPOCHS[protocol], whose)
    assert [(row["event"], row["protocol"], row["client_producer_id"]) for row in right] == [
        *(("witness", None, None), data, ("commit", None, None)),
        *(("witness", None, None), data, ("abort", None, None)),
    ]
    assert {row["producer_id"] for row in right if row["event"]} == {whose}
    assert [row["producer_epoch"] for row in right] == [epochs[0]] * 2 + [epochs[1]] * 3 + [epochs[2]]
    assert play(txn_witness.RULE, [audited(topic, right)]).findings == []
    found = play(txn_witness.RULE, [audited(topic, wrong)])
    place = [row["base_offset"] for row in wrong if row["protocol"]][-1]
    assert found.found("kind", "stream", "first_offset") == [("unwitnessed", 2, place)]
    assert play(count_fence.RULE, [audited(topic, wrong)]).findings == []


def test_a_write_that_a_second_witness_hides_is_found(cluster: RealCluster, topic: str) -> None:
    """The broker takes the second witness: nothing in it knows of the record between."""
    with closing(RawTransactions(cluster.bootstrap(), topic, Protocol.V1)) as producer:
        producer.add(topic, 0)
        for value in ("hidden", "shown"):
            producer.witness(topic, 0)
            producer.write(topic, 0, 2, value)
        producer.end()
    rows = read(cluster, topic, 5)
    found = play(txn_witness.RULE, [audited(topic, rows)])
    assert found.found("kind", "verdict", "first_offset") == [("hidden-write", "fail", rows[1]["base_offset"])]
