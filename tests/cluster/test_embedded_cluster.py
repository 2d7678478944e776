"""Promises of the embedded cluster: real brokers, the asked version, and nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from kordon.testing.cluster import FOLDER_PREFIX, Cluster, ClusterFailed, known_brokers
from kordon.testing.folders import make_folder, remove_folder
from kordon.testing.jars import kafka_version
from kordon.testing.managed_clients import read, write
from kordon.testing.ports import free_ports
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker
PATIENCE = 60.0
ONE = ("--partitions", "1", "--replication-factor", "1")


def write_and_read(bootstrap: str, topic: str, value: bytes) -> bytes:
    """Sends a record with librdkafka, waits for its acknowledgement, and reads the topic's first record."""
    client = {"bootstrap.servers": bootstrap}
    write(client, topic, [{"value": value}])
    return read(client, topic, 1)[0].value() or b""


def test_a_client_writes_and_reads_and_a_java_tool_sees_it(cluster: Cluster) -> None:
    """A record written by librdkafka is read back, and Kafka's own tool lists its topic."""
    topic = f"embedded-{uuid4().hex[:8]}"
    assert write_and_read(cluster.bootstrap(), topic, b"hello") == b"hello"
    listed = cluster.tool("kafka-topics", "--bootstrap-server", cluster.bootstrap(), "--list").stdout.split()
    assert topic in listed


def test_the_broker_is_of_the_version_asked_for(cluster: Cluster) -> None:
    """The running process has the broker jar of KAFKA's version in its folder of jars, and of no other."""
    arguments = psutil.Process(cluster.brokers[0].pid).cmdline()
    jars = Path(arguments[arguments.index("-cp") + 1]).parent
    assert [jar.name for jar in jars.glob("kafka-clients-*.jar")] == [f"kafka-clients-{kafka_version()}.jar"]


def test_a_tool_that_fails_says_why(cluster: Cluster) -> None:
    """The exception has what the tool wrote."""
    at = ("--bootstrap-server", cluster.bootstrap())
    with pytest.raises(RuntimeError, match=r"illegal/name.*(ASCII|illegal)"):
        cluster.tool("kafka-topics", *at, "--create", "--topic", "illegal/name", *ONE)


def test_three_brokers_know_each_other_and_a_leader_moves(cluster3: Cluster) -> None:
    """Each broker tells of nodes 1, 2 and 3 from the start; a leader goes where it is told to."""
    assert [known_brokers(each.host, each.port()) for each in cluster3.brokers] == [{1, 2, 3}] * 3
    topic = f"moved-{uuid4().hex[:8]}"
    at = ("--bootstrap-server", cluster3.bootstrap())
    cluster3.tool("kafka-topics", *at, "--create", "--topic", topic, "--replica-assignment", "1:2:3")
    wait_until("led", lambda: cluster3.leader(topic, 0) == 1, PATIENCE)
    cluster3.move_leader(topic, 0, 3)
    assert cluster3.leader(topic, 0) == 3
    assert write_and_read(cluster3.bootstrap(), topic, b"after") == b"after"


@pytest.mark.deep
def test_a_broker_stops_comes_back_with_its_data_and_nothing_of_it_is_left_at_the_end() -> None:
    """Killed and started again, a broker has its records; at the end, no process or file is left."""
    with Cluster.start() as own:
        broker = own.brokers[0]
        assert write_and_read(own.bootstrap(), "kept", b"first") == b"first"
        broker.kill()
        assert broker.pid is None
        assert known_brokers(broker.host, broker.port()) == set()
        broker.start()
        assert write_and_read(own.bootstrap(), "kept", b"second") == b"first"
        broker.pause()
        assert broker.pid is not None
        wait_until("paused", lambda: psutil.Process(broker.pid).status() == psutil.STATUS_STOPPED, PATIENCE)
        broker.resume()
        wait_until("answering again", lambda: known_brokers(broker.host, broker.port()) == {1}, PATIENCE)
        pid, zookeeper = broker.pid, own.zookeeper.pid if own.zookeeper else None
    assert not psutil.pid_exists(pid)
    assert zookeeper is None or not psutil.pid_exists(zookeeper)
    assert not own.folder.exists()


def test_a_broker_that_cannot_start_shows_its_log() -> None:
    """The exception names the broker, and the cause in its own words; its folder is gone."""
    before = folders_in_use()
    with pytest.raises(ClusterFailed, match=r"(?s)broker 1 died while starting.*no\.such\.Authorizer"):
        Cluster.start(config={"authorizer.class.name": "no.such.Authorizer"})
    assert folders_in_use() == before


def folders_in_use() -> set[str]:
    """Names the folders of this process's own clusters, as the kernel knows them by open files."""
    return {each.path for each in psutil.Process().open_files() if f"/{FOLDER_PREFIX}" in each.path}


START = """
import sys
from kordon.testing.cluster import Cluster
with Cluster.start() as started:
    processes = [*started.brokers, *filter(None, [started.zookeeper])]
    print(*(each.pid for each in processes), started.folder, flush=True)
    sys.stdin.read()
"""


def test_no_broker_outlives_a_killed_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kill -9` of the Python process ends its Java processes, and the next cluster removes what it left on disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # no cluster of other tests is the next one
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", START]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        try:
            assert parent.stdout is not None
            *pids, folder = parent.stdout.readline().split()
            assert pids
            assert all(psutil.pid_exists(int(pid)) for pid in pids)
        finally:
            os.kill(parent.pid, signal.SIGKILL)
    wait_until("gone", lambda: not any(psutil.pid_exists(int(pid)) for pid in pids), PATIENCE)
    assert Path(folder).exists()
    remove_folder(make_folder(FOLDER_PREFIX))
    assert not Path(folder).exists()


def test_ports_handed_out_are_free_and_in_a_row() -> None:
    """Each of the ports can be listened on, so that node ids can be added to the first."""
    base = free_ports(12)
    for port in range(base, base + 12):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", port))


def test_ports_are_handed_out_to_one_process_only() -> None:
    """A server listens on its ports a moment after they were found, and again when it has been killed."""
    free_ports(1)
    told, tells = os.pipe()
    if not (child := os.fork()):
        os.write(tells, b"%d" % free_ports(20))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    of_child, mine = int(os.read(told, 20)), free_ports(20)
    os.close(told)
    os.close(tells)
    assert not {*range(mine, mine + 20)} & {*range(of_child, of_child + 20)}
    later = free_ports(20)
    assert not {*range(mine, mine + 20)} & {*range(later, later + 20)}
