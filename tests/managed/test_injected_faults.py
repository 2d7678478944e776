"""The faults that the audit is tried with: each happens when it is put in, by the decisions, and never else."""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.codecs.decision import Entry, Kind
from kordon.testing.audits.fault_plays import (
    BYPASS,
    INDIVIDUAL,
    PARTITIONS,
    PLAYS,
    SOURCED,
    TRANSACTIONAL,
    Stage,
    keys_by_home,
)
from kordon.testing.audits.faults import Fault
from kordon.testing.cluster import Cluster
from kordon.testing.emptied import emptied
from kordon.testing.proxy_process import ProxyProcess

pytestmark = pytest.mark.broker

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def unled_cluster(spare_cluster: Cluster) -> Cluster:
    """One broker, in front of which each test's Kordon is the controller: what it decides as such is part of a play."""
    return emptied(spare_cluster)


@contextmanager
def on_stage(cluster: Cluster, folder: Path, fault: Fault | None) -> Iterator[Stage]:
    """A Kordon with a fault, or none, that writes its decisions into a folder and has written all when this ends.

    Its topic is deleted: the next controller finds nothing managed, and need not wait a lease.
    """
    broker = cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(broker, config={"decisions": {"to": "files", "folder": str(folder)}}, fault=fault) as proxy:
        stage = Stage(proxy.bootstrap, broker, f"fault-{uuid.uuid4().hex[:8]}")
        try:
            yield stage
        finally:
            admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
            admin.delete_topics([stage.topic])[stage.topic].result(60)


def decisions(folder: Path) -> list[Entry]:
    """All decisions of a folder, in their order."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_bytes().splitlines()]
    return sorted((Entry.load(line) for line in lines), key=lambda entry: entry.number)


def of_kind(entries: list[Entry], kind: Kind) -> list[Entry]:
    return [entry for entry in entries if entry.decision.kind is kind]


def admitted_by_an_old_count(entries: list[Entry]) -> bool:
    """Whether a write was admitted by the first count after the topic had grown."""
    grown = max(entry.number for entry in of_kind(entries, Kind.ADOPT))
    counts = [
        entry.decision.evidence.get("undeleted_partition_count")
        for entry in of_kind(entries, Kind.ADMIT)
        if entry.number > grown
    ]
    return PARTITIONS in counts


def delivered_while_held(entries: list[Entry]) -> bool:
    """Whether a reader was given something of a partition that it was held at."""
    held: set[tuple[int | None, int | None]] = set()
    for entry in entries:
        reader = (entry.decision.connection, entry.decision.stream)
        if entry.decision.kind is Kind.HOLD:
            held.add(reader)
        elif entry.decision.kind is Kind.RELEASE:
            held.discard(reader)
        elif entry.decision.kind is Kind.DELIVER and reader in held:
            return True
    return False


def admitted_behind_an_acknowledgement(entries: list[Entry]) -> bool:
    """Whether something was written to what a fence holds, under the old layout, behind its acknowledgement."""
    acknowledged = {entry.decision.fence: entry for entry in of_kind(entries, Kind.ACKNOWLEDGE)}
    places = {
        (q, acknowledged[fence.fence].decision.layout_epoch, acknowledged[fence.fence].number)
        for fence in (entry.decision for entry in of_kind(entries, Kind.FENCE))
        for q in fence.evidence["sealed"]
    }
    return any(
        (entry.decision.partition, entry.decision.layout_epoch) == (q, epoch) and entry.number > number
        for q, epoch, number in places
        for entry in of_kind(entries, Kind.ADMIT)
    )


def admitted_twice(entries: list[Entry]) -> bool:
    """Whether a sequence was admitted at two offsets; of a duplicate that is only answered there is none."""
    places = {
        (each.stream, each.producer_id, each.first_sequence, each.partition, each.first_offset)
        for each in (entry.decision for entry in of_kind(entries, Kind.ADMIT))
        if each.first_offset is not None
    }
    return max(Counter(place[:3] for place in places).values()) > 1


def delivered_less(entries: list[Entry]) -> bool:
    """Whether fewer records were delivered than there are in the ranges that were."""
    missing = 0
    for each in (entry.decision for entry in of_kind(entries, Kind.DELIVER)):
        assert each.first_offset is not None
        assert each.last_offset is not None
        missing += each.last_offset - each.first_offset + 1 - (each.records or 0)
    return missing > 0


def is_missing_one(entries: list[Entry]) -> bool:
    """Whether a number is missing, and a record says which."""
    numbers = {entry.number for entry in entries}
    missing = set(range(max(numbers) + 1)) - numbers
    told = {entry.decision.first_number for entry in of_kind(entries, Kind.GAP)}
    return bool(missing) and missing == told


def admitted_elsewhere(entries: list[Entry]) -> bool:
    """Whether streams have other numbers of records than their clients have keys for them."""
    admitted = Counter[int | None]()
    for each in (entry.decision for entry in of_kind(entries, Kind.ADMIT)):
        admitted[each.stream] += each.records or 0
    return admitted != {v: len(keys) for v, keys in keys_by_home().items()}


def told_what_nobody_committed(entries: list[Entry]) -> bool:
    """Whether a client was told another offset than the coordinator has."""
    return any(entry.decision.evidence.get("told") for entry in of_kind(entries, Kind.OFFSET_FETCH))


SHOWN: Final[dict[Fault, Callable[[list[Entry]], bool]]] = {
    Fault.STALE_COUNT: admitted_by_an_old_count,
    Fault.EARLY_CHILD: delivered_while_held,
    Fault.WRITE_AFTER_FENCE: admitted_behind_an_acknowledgement,
    Fault.DOUBLED_SEQUENCE: admitted_twice,
    Fault.SKIPPED_RANGE: delivered_less,
    Fault.MISPLACED_KEY: admitted_elsewhere,
    Fault.TOLD_AHEAD: told_what_nobody_committed,
    Fault.DROPPED_DECISION: is_missing_one,
}


@pytest.mark.parametrize("fault", SHOWN, ids=lambda fault: fault.value)
def test_fault_happens_where_it_is_put_in(fault: Fault, unled_cluster: Cluster, tmp_path: Path) -> None:
    """The decisions show that the promise was broken."""
    with on_stage(unled_cluster, tmp_path, fault) as stage:
        PLAYS[fault](stage)
    assert SHOWN[fault](decisions(tmp_path))


REFUSED: Final = {Fault.STALE_COUNT, Fault.EARLY_CHILD}
"""What an intact Kordon does not let its client do at all."""


@pytest.mark.parametrize("fault", sorted(SHOWN.keys() - REFUSED), ids=lambda fault: fault.value)
def test_nothing_is_broken_without_it(fault: Fault, unled_cluster: Cluster, tmp_path: Path) -> None:
    """The same clients do the same in front of an intact Kordon, and all is as it should be."""
    with on_stage(unled_cluster, tmp_path, None) as stage:
        PLAYS[fault](stage)
    assert not SHOWN[fault](decisions(tmp_path))


def test_a_stale_count_is_refused_without_it(unled_cluster: Cluster, tmp_path: Path) -> None:
    """An intact Kordon refuses the write, and says so on record."""
    with (
        pytest.raises(AssertionError, match="INVALID_PARTITION_METADATA"),
        on_stage(unled_cluster, tmp_path, None) as stage,
    ):
        PLAYS[Fault.STALE_COUNT](stage)
    assert not admitted_by_an_old_count(decisions(tmp_path))


def test_every_fault_has_a_play_and_a_bypass_needs_none() -> None:
    """What the audit is tried with is complete.

    Where a play needs transactions, individual commits or a source, the audit alone shows what its fault does.
    """
    assert PLAYS.keys() == {*Fault, BYPASS}
    assert SHOWN.keys() == set(Fault) - TRANSACTIONAL - INDIVIDUAL - SOURCED


def test_no_part_of_the_product_knows_of_faults() -> None:
    """The switch is a program of its own: what is shipped names neither it nor what it breaks."""
    product = [path for folder in ("proxy", "client", "codecs", "spark_jobs") for path in (ROOT / folder).rglob("*.py")]
    assert len(product) > 100
    for path in product:
        assert "kordon.testing" not in path.read_text(), path
    scripts = json.dumps((ROOT / "pyproject.toml").read_text())
    assert "faulty_proxy" not in scripts
