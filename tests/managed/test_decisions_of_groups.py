"""What is on record of a group whose member dies: what it had committed, and where the next one was sent on."""

# pyright: reportPrivateImportUsage=false
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.client.consumer import OrderedConsumer
from kordon.codecs.decision import Decision, Entry, Kind
from kordon.spark_jobs.judging.rules import hand_over
from kordon.testing.audits.judged import play
from kordon.testing.cluster import Cluster
from kordon.testing.decision_columns import incomplete
from kordon.testing.decision_log import missing, read_files
from kordon.testing.managed_clients import Sender, create_managed
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

_PATIENCE_SECONDS: Final = 60.0
MEMBER: Final = """
import json, sys
from confluent_kafka import Consumer

consumer = Consumer(json.loads(sys.argv[1]))
consumer.subscribe([sys.argv[2]])
read = []
while len(read) < 20:
    read += consumer.consume(20 - len(read), 1.0)
consumer.commit(message=read[0], asynchronous=False)
consumer.commit(asynchronous=False)
print("committed", flush=True)
while True:
    consumer.consume(100, 1.0)
"""
"""Reads some records, commits, reads on, and does not end."""


@contextmanager
def recording(cluster: Cluster, folder: Path) -> Iterator[ProxyProcess]:
    """A Kordon whose decisions are in a folder once it has stopped."""
    config = {"decisions": {"to": "files", "folder": str(folder), "run_ms": 200}}
    with ProxyProcess.start(cluster.bootstrap("PLAINTEXT"), config=config) as proxy:
        yield proxy
        assert proxy.stop() == 0


def written(proxy: ProxyProcess, topic: str) -> int:
    """Makes a managed topic with records; returns how many."""
    create_managed(proxy.bootstrap, topic)
    sender = Sender.sent_for(1.0, proxy.bootstrap, topic)
    sender.close()
    return sender.sent


def dies_having_committed(settings: dict[str, Any], topic: str) -> None:
    """A member of a group commits, and is killed before it commits what it reads from then on."""
    command = [sys.executable, "-c", MEMBER, json.dumps({**settings, "client.id": "dies"}), topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == b"committed\n"
        member.kill()


def reads_on(settings: dict[str, Any], topic: str, count: int) -> int:
    """Another member reads to the end and commits; returns how many records it got."""
    got: list[int] = []
    with closing(Consumer({**settings, "client.id": "reads-on"})) as consumer:
        consumer.subscribe([topic])

        def is_at_end() -> bool:
            got.extend(each.partition() or 0 for each in consumer.consume(500, 1.0) if each.error() is None)
            return len(got) >= count

        wait_until("the rest is read", is_at_end, _PATIENCE_SECONDS)
        consumer.commit(asynchronous=False)
    return len(got)


def judged(entries: Iterable[Entry]) -> dict[str, int]:
    """What the auditor says of decisions, by verdict; it has found nothing."""
    rows: list[dict[str, Any]] = [json.loads(entry.dump()) for entry in entries]
    told = [{**row, "evidence": json.dumps(row.get("evidence"))} for row in rows]
    played = play(hand_over.RULE, [told])
    assert played.findings == []
    return {verdict: played.count(verdict) for verdict in ("pass", "unknown", "late")}


def offsets(decisions: Iterable[Decision]) -> dict[int, int]:
    """The last offset of each stream."""
    return {stream: last for each in decisions for stream, *_, last in each.evidence["offsets"]}


def test_where_a_member_died_the_next_one_is_told_what_it_had_committed(open_cluster: Cluster, tmp_path: Path) -> None:
    """Both commits are one record; the next member's first deliveries begin where it was told; the audit passes."""
    topic, settings = "dying-on-record", {"group.id": "dying", "enable.auto.commit": False}
    with recording(open_cluster, tmp_path) as proxy:
        count = written(proxy, topic)
        settings |= {"bootstrap.servers": proxy.bootstrap, "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
        dies_having_committed(settings, topic)
        assert reads_on(settings, topic, count - 20) == count - 20
    entries = read_files(tmp_path)
    assert missing(entries) == set()
    assert incomplete(entry.decision for entry in entries) == []
    decisions = [entry.decision for entry in entries if entry.decision.topic == topic]
    commits = [each for each in decisions if each.kind is Kind.OFFSET_COMMIT]
    assert [(each.client_id, each.group_id, each.api_key) for each in commits] == [
        ("dies", "dying", 8),
        ("reads-on", "dying", 8),
    ]
    assert commits[0].batches == 2
    assert len({each.member_id for each in commits}) == 2
    assert (commits[0].generation_id or 0) < (commits[1].generation_id or 0)
    told = [each for each in decisions if each.kind is Kind.OFFSET_FETCH and each.client_id == "reads-on"]
    assert offsets(told) == offsets(commits[:1])
    begun: dict[int, int] = {}
    for each in decisions:
        if each.kind is Kind.DELIVER and each.client_id == "reads-on":
            begun.setdefault(each.stream or 0, each.first_offset or 0)
    assert begun.items() >= {v: offset for v, offset in offsets(told).items() if v in begun}.items()
    assert set(begun) & set(offsets(told))
    verdicts = judged(entries)
    assert (verdicts["pass"] > 0, verdicts["unknown"], verdicts["late"]) == (True, 0, 0)


def test_commits_of_the_sdk_are_on_record_by_physical_partition(open_cluster: Cluster, tmp_path: Path) -> None:
    """One consumer commits and leaves in good order, and the next one is told that."""
    topic = "sdk-commits-on-record"

    async def read(count: int) -> int:
        options: dict[str, Any] = {
            "bootstrap_servers": proxy.bootstrap,
            "group_id": topic,
            "auto_offset_reset": "earliest",
        }
        async with OrderedConsumer(topic, enable_auto_commit=False, **options) as consumer:
            got = 0
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while got < count:
                    got += sum(len(each) for each in (await consumer.getmany(timeout_ms=500)).values())
            await consumer.commit()
        return got

    with recording(open_cluster, tmp_path) as proxy:
        count = written(proxy, topic)
        assert asyncio.run(read(count)) == count
        sender = Sender.sent_for(0.2, proxy.bootstrap, topic)
        sender.close()
        assert asyncio.run(read(sender.sent)) == sender.sent
    entries = read_files(tmp_path)
    assert incomplete(entry.decision for entry in entries) == []
    decisions = [entry.decision for entry in entries if entry.decision.topic == topic]
    commits = [each for each in decisions if each.kind is Kind.OFFSET_COMMIT]
    told = [each for each in decisions if each.kind is Kind.OFFSET_FETCH]
    assert offsets(told).keys() == {~q for q in range(3)}
    first = {each.member_id: each for each in commits}
    assert offsets(told) == offsets([next(iter(first.values()))])
    verdicts = judged(entries)
    assert (verdicts["pass"] > 0, verdicts["unknown"], verdicts["late"]) == (True, 0, 0)
