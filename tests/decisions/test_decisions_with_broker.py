"""The decision log of a Kordon in front of a real broker: complete at an orderly stop, honest when it is not."""

# pyright: reportPrivateImportUsage=false
import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from kordon.codecs.decision import Decision, Entry, Kind
from kordon.proxy.commands.cli import main
from kordon.proxy.config.config import Decisions
from kordon.proxy.decisions.recorder import make_recorder
from kordon.testing.cluster import Cluster
from kordon.testing.cluster_links import topology_over_tls
from kordon.testing.decision_log import TOPIC, by_worker, missing, read_files, read_topic
from kordon.testing.managed_clients import Sender, create_managed, resize, set_configs
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until


def log_of(entries: list[Entry], topic: str) -> list[Entry]:
    """The log of the one worker that had to do with a topic."""
    (found,) = [rows for rows in by_worker(entries).values() if any(row.decision.topic == topic for row in rows)]
    return found


def traffic(proxy: ProxyProcess, topic: str, seconds: float = 0.5) -> Sender:
    """Writes to a new managed topic while it grows, and reads all of it."""
    admin = create_managed(proxy.bootstrap, topic)
    sender = Sender(proxy.bootstrap, topic)
    sender.send_for(seconds)
    sender.send_for(seconds, resize(admin, topic, 5))
    sender.finish()
    sender.assert_read_by(proxy.bootstrap)
    sender.close()
    return sender


def assert_on_record(entries: list[Entry], topic: str, sender: Sender) -> None:
    """Holds a worker's log against what clients saw: each number is there, each record is admitted and delivered."""
    assert missing(entries) == set()
    told = [entry.decision for entry in entries if entry.decision.topic == topic]
    admitted = sum(each.records or 0 for each in told if each.kind is Kind.ADMIT and not each.evidence.get("repeated"))
    delivered = sum(each.records or 0 for each in told if each.kind is Kind.DELIVER)
    assert admitted == sender.sent
    assert delivered >= sender.sent
    kinds = {each.kind for each in told}
    assert kinds >= {Kind.FENCE, Kind.ACKNOWLEDGE, Kind.CUT, Kind.COMMIT, Kind.ADOPT, Kind.ADMIT, Kind.DELIVER}
    assert len({entry.worker for entry in entries}) == 1


def test_topic_holds_all_that_was_decided_when_kordon_has_stopped(unled_cluster: Cluster) -> None:
    """Numbers have no gap, each acknowledged and each delivered record is in a record, and clients do not see it."""
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap, config={"decisions": {"to": "topic", "run_ms": 200}}) as proxy:
        sender = traffic(proxy, "on-record")
        seen = AdminClient({"bootstrap.servers": proxy.bootstrap}).list_topics(timeout=60).topics
        assert TOPIC not in seen
        assert TOPIC in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics
        assert proxy.stop() == 0
    assert_on_record(log_of(read_topic(bootstrap), "on-record"), "on-record", sender)


def test_files_hold_all_that_was_decided_when_kordon_has_stopped(unled_cluster: Cluster, tmp_path: Path) -> None:
    """The same as in the topic, as JSON lines, in files that are not larger than they may be."""
    settings = {"to": "files", "folder": str(tmp_path), "run_ms": 20, "file_bytes": 65_536, "files": 1_000}
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap, config={"decisions": settings}) as proxy:
        sender = traffic(proxy, "in-files")
        assert proxy.stop() == 0
    assert_on_record(log_of(read_files(tmp_path), "in-files"), "in-files", sender)
    assert all(path.stat().st_size <= 65_536 for path in tmp_path.iterdir())


def test_killed_kordon_leaves_a_log_that_only_ends_early(unled_cluster: Cluster) -> None:
    """What it had not written yet is gone, and nothing in front of that: numbers have no hole."""
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap, config={"decisions": {"to": "topic", "run_ms": 10}}) as proxy:
        create_managed(proxy.bootstrap, "killed")
        sender = Sender(proxy.bootstrap, "killed")
        while proxy.metric("kordon_decisions_total", kind="admit") < 50:
            sender.send_for(0.2)
        noted = proxy.metric("kordon_decisions_total")
        while proxy.metric("kordon_decisions_written_total") < noted:
            sender.send_for(0.2)
        proxy.kill()
        sender.close()
    entries = log_of(read_topic(bootstrap), "killed")
    assert [entry.number for entry in entries] == list(range(len(entries)))
    assert len(entries) >= 50


@contextmanager
def refusing_writes(bootstrap: str) -> Iterator[None]:
    """Has the broker take no decisions while this lasts: no batch is small enough for it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def take(most_bytes: str) -> None:
        set_configs(admin, TOPIC, {"max.message.bytes": most_bytes}).result(60)

    take("10")
    try:
        yield
    finally:
        take("8388608")


def test_traffic_goes_on_while_decisions_cannot_be_written(unled_cluster: Cluster) -> None:
    """What has no room is dropped and counted, clients notice nothing, and a GAP tells of it afterwards."""
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    settings = {"to": "topic", "run_ms": 10, "queue_bytes": 65_536}
    with ProxyProcess.start(bootstrap, config={"decisions": settings}) as proxy:
        create_managed(proxy.bootstrap, "unwritten")
        wait_until("the first decisions are written", lambda: proxy.metric("kordon_decisions_written_total") > 0, 60)
        sender = Sender(proxy.bootstrap, "unwritten")
        with refusing_writes(bootstrap):
            while not proxy.metric("kordon_decisions_dropped_total"):
                sender.send_for(0.2)
            assert proxy.metric("kordon_decisions_queue_bytes") <= 65_536 * 2
            assert "decisions_dropped" in proxy.log()
        wait_until("decisions are written again", lambda: proxy.metric("kordon_decisions_total", kind="gap") > 0, 60)
        sender.finish()
        sender.assert_read_by(proxy.bootstrap)
        sender.close()
        dropped = proxy.metric("kordon_decisions_dropped_total")
        assert proxy.stop() == 0
    entries = log_of(read_topic(bootstrap), "unwritten")
    gaps = [entry.decision for entry in entries if entry.decision.kind is Kind.GAP]
    assert missing(entries) == set()
    assert sum(gap.batches or 0 for gap in gaps) >= dropped > 0


def test_tail_shows_what_is_decided(unled_cluster: Cluster) -> None:
    """`kordon decisions tail` reads the brokers, and says so where it is led to a Kordon, which hides the topic."""
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    command = ["decisions", "tail", "--no-follow", "--last", "100", "--topic", "tailed", "--json", "--bootstrap"]
    with ProxyProcess.start(bootstrap, config={"decisions": {"to": "topic", "run_ms": 100}}) as proxy:
        create_managed(proxy.bootstrap, "tailed")
        hidden = CliRunner().invoke(main, [*command, proxy.bootstrap])
        assert hidden.exit_code == 1
        assert "Kordon's own port" in hidden.output
        assert proxy.stop() == 0
    shown = CliRunner().invoke(main, [*command, bootstrap])
    assert shown.exit_code == 0, shown.output
    kinds = [Entry.load(line.encode()).decision.kind for line in shown.output.splitlines()]
    assert {Kind.COMMIT, Kind.ADOPT} <= set(kinds)


def test_show_finds_decisions_in_the_topic(unled_cluster: Cluster) -> None:
    """`kordon decisions show` finds each by worker and number, and begins where it is told to."""
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap, config={"decisions": {"to": "topic", "run_ms": 100}}) as proxy:
        create_managed(proxy.bootstrap, "singled-out")
        assert proxy.stop() == 0
    log = log_of(read_topic(bootstrap), "singled-out")
    wanted = log[len(log) // 2]
    at = datetime.fromtimestamp(wanted.at_ms / 1000, UTC).isoformat()
    command = [
        "decisions",
        "show",
        "--bootstrap",
        f"{bootstrap},{bootstrap}",
        "--json",
        f"{wanted.worker}:{wanted.number}",
    ]

    for more in [], ["--since", at], [f"{wanted.worker}:{len(log)}"]:
        shown = CliRunner().invoke(main, [*command, *more])
        assert Entry.load(shown.stdout.encode()) == wanted
    assert f"the last decision of this worker is number {len(log) - 1}." in shown.stderr
    late = CliRunner().invoke(main, [*command, "--since", "0s"])
    assert late.exit_code == 1
    assert "Without --since, older decisions are searched, too" in late.stderr


async def test_decisions_go_as_upstream_says(secure_cluster: Cluster) -> None:
    """Over TLS and with Kordon's own log-in, and beyond the 8 seconds that a session lasts here."""
    topology = await topology_over_tls(secure_cluster, "kordon")
    recorder = make_recorder(Decisions(to="topic"), topology, "over-tls")
    assert recorder is not None
    recorder.start()
    until = asyncio.get_running_loop().time() + 10
    while asyncio.get_running_loop().time() < until:
        recorder.journal.note(Decision(kind=Kind.LIMIT))
        await asyncio.sleep(0.2)
    await recorder.close()
    assert recorder.failures == 0
    read = await asyncio.to_thread(read_topic, secure_cluster.bootstrap("PLAINTEXT"))
    entries = by_worker(read)["over-tls"]
    assert [entry.number for entry in entries] == list(range(recorder.written))
    assert recorder.written > 10
