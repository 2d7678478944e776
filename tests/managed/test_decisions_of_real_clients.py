"""What is on record of real clients, through growth and shrink, is what these clients saw."""

# pyright: reportPrivateImportUsage=false
import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from confluent_kafka.admin import AdminClient

from kordon.codecs.decision import Decision, Entry, Kind
from kordon.proxy.ordering.streams import physical_stream
from kordon.testing.cluster import Cluster
from kordon.testing.decision_columns import incomplete
from kordon.testing.decision_log import missing, read_files
from kordon.testing.dialect.reader import DialectReader
from kordon.testing.managed_clients import CHANGE_SECONDS, Sender, create_managed, read, resize
from kordon.testing.managed_traffic import AioSender
from kordon.testing.proxy_process import ProxyProcess

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

TOPIC: Final = "traffic-on-record"
_K = TypeVar("_K")


@contextmanager
def sending(sender: AioSender) -> Any:
    """Has an aiokafka producer send from a thread of its own while this lasts."""
    stopping = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(sender.send_until(stopping)))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def change(admin: AdminClient, count: int, sender: Sender) -> None:
    """Has the topic come to a number of partitions while there is traffic."""
    done = resize(admin, TOPIC, count)
    sender.send_for(0.3, done)
    done.result(CHANGE_SECONDS)
    sender.send_for(0.3)
    sender.finish()  # something is on record under each layout, however slow the machine is


def read_by_group(bootstrap: str, count: int) -> Counter[int]:
    """Reads all as a new group of one; returns records by virtual partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "on-record", "enable.auto.commit": True}
    return Counter(message.partition() or 0 for message in read(settings, TOPIC, count))


def read_as_dialect(bootstrap: str, count: int) -> Counter[int]:
    """Reads all as a client of the dialect without a group; returns records by physical partition."""
    with DialectReader(bootstrap, TOPIC) as reader:
        reader.read_until(count)
    return Counter(each.partition for each in reader.delivered)


def by(decisions: Iterable[Decision], key: Callable[[Decision], _K]) -> Mapping[_K, Sequence[Decision]]:
    """Sorts decisions, each group in its order."""
    found: dict[_K, list[Decision]] = defaultdict(list)
    for each in decisions:
        found[key(each)].append(each)
    return found


def test_the_record_of_traffic_is_what_clients_saw(open_cluster: Cluster, tmp_path: Path) -> None:
    """3 -> 5 -> 4: each acknowledged sequence is admitted once, each delivery goes on where the one before ended."""
    settings = {"to": "files", "folder": str(tmp_path), "run_ms": 200}
    with ProxyProcess.start(open_cluster.bootstrap("PLAINTEXT"), config={"decisions": settings}) as proxy:
        admin = create_managed(proxy.bootstrap, TOPIC)
        sender, other = Sender(proxy.bootstrap, TOPIC), AioSender(proxy.bootstrap, TOPIC)
        with sending(other):
            sender.send_for(0.3)
            sender.finish()
            change(admin, 5, sender)
            change(admin, 4, sender)
        sender.finish()
        sender.close()
        written = sender.sent + other.sent
        assert len(other.acknowledged) == other.sent
        by_virtual = read_by_group(proxy.bootstrap, written)
        by_physical = read_as_dialect(proxy.bootstrap, written)
        assert proxy.stop() == 0
    entries = read_files(tmp_path)
    assert missing(entries) == set()
    assert incomplete(entry.decision for entry in entries) == []
    told = [entry.decision for entry in entries if entry.decision.topic == TOPIC]
    assert_admitted_once([each for each in told if each.kind is Kind.ADMIT], written)
    assert_within_layouts(entries)
    assert_told_once([each for each in told if each.kind is Kind.REDIRECT])
    reads = [each for each in told if each.kind in {Kind.DELIVER, Kind.REWIND}]
    assert_delivered(reads, {**by_virtual, **{physical_stream(q): n for q, n in by_physical.items()}})
    firsts = {(each.stream, each.move): each for each in reversed(reads) if each.stream is not None and each.stream < 0}
    assert all("positions" in each.evidence for each in firsts.values())


def assert_admitted_once(admits: Sequence[Decision], written: int) -> None:
    """The runs of each identity are its sequences from 0 on, each one once, and all that was acknowledged."""
    admits = [each for each in admits if not each.evidence.get("repeated")]
    assert sum(each.records or 0 for each in admits) == written
    assert {"rdkafka", "aiokafka"} <= {(each.client_id or "").split("-")[0] for each in admits}
    for runs in by(admits, lambda each: (each.stream, each.producer_id, each.producer_epoch)).values():
        ranges = sorted((each.first_sequence or 0, each.last_sequence or 0) for each in runs)
        assert ranges[0][0] == 0
        assert all(after[0] == before[1] + 1 for before, after in pairwise(ranges))


def assert_told_once(redirects: Sequence[Decision]) -> None:
    """However often clients ask for Metadata: a connection is told each layout once, a stream's writes move once."""
    told = Counter((each.connection, each.layout_epoch) for each in redirects if each.reason == "metadata")
    moved = Counter((each.stream, each.layout_epoch) for each in redirects if each.reason == "moved")
    assert {epoch for _, epoch in told} >= {0, 2}
    assert moved
    assert {epoch for _, epoch in moved} <= {1, 2}
    assert set(told.values()) == set(moved.values()) == {1}


def assert_within_layouts(entries: Iterable[Entry]) -> None:
    """What is admitted rests on the layout that the worker had adopted last."""
    in_force: tuple[int | None, int | None] | None = None
    seen: set[int | None] = set()
    for each in (entry.decision for entry in entries if entry.decision.topic == TOPIC):
        if each.kind is Kind.ADOPT:
            in_force = each.layout_epoch, each.layouts_offset
        elif each.kind is Kind.ADMIT:
            assert (each.layout_epoch, each.layouts_offset) == in_force
            seen.add(each.layout_epoch)
    assert seen >= {0, 1, 2}


def assert_delivered(reads: Sequence[Decision], counted: Mapping[int, int]) -> None:
    """Ranges follow on each other but behind a rewind; records are as many as the consumers counted.

    A consumer that goes back, or connects anew, may get some again.
    """
    for (_, stream), runs in by(reads, lambda each: (each.connection, each.stream)).items():
        for before, after in pairwise(runs):
            if Kind.REWIND not in {before.kind, after.kind} and before.move == after.move:
                assert after.first_offset == (before.last_offset or 0) + 1, stream
    for stream, runs in by(reads, _stream).items():
        records = sum(each.records or 0 for each in runs if each.kind is Kind.DELIVER)
        is_read_again = len({each.connection for each in runs}) > 1 or any(each.kind is Kind.REWIND for each in runs)
        assert records == counted[stream] or (is_read_again and records > counted[stream])
    assert {each.stream for each in reads} >= counted.keys()


def _stream(decision: Decision) -> int:
    assert decision.stream is not None
    return decision.stream
