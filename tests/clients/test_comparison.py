"""What compares two runs of a script finds what it must, and nothing else."""

import json
import socket
import subprocess
import sys

import psutil

from kordon.testing.equivalence import Target, comparable, difference
from kordon.testing.socket_watch import Peers, SocketWatch
from kordon.testing.waiting import wait_until

DIRECT = Target("127.0.0.1:9092", {"127.0.0.1:9092": 1})
PROXIED = Target("127.0.0.1:7000", {"127.0.0.1:7002": 1}, frozenset({9092}))
TALKS = "import socket, sys, time; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); time.sleep(60)"


def line(answer: object) -> str:
    return json.dumps({"step": "s", "answer": answer})


def test_names_and_addresses_of_either_run_become_equal() -> None:
    """A run's prefix and the addresses of its own nodes do not count."""
    direct = comparable(line({"d1-topic": "127.0.0.1:9092", "port": 9092}), DIRECT, "d1")
    proxied = comparable(line({"p1-topic": "127.0.0.1:7002", "port": 7002}), PROXIED, "p1")
    assert difference([direct], [proxied]) == ""


def test_leaked_broker_address_is_a_difference() -> None:
    """A broker's own address that comes through the proxy shows up, as text and as a number."""
    for leaked in ("127.0.0.1:9092", {"port": 9092}, {"Port": 9092}, "1 127.0.0.1 9092 rack"):
        told = difference([comparable(line(leaked), DIRECT, "d1")], [comparable(line(leaked), PROXIED, "p1")])
        assert "9092" in told


def test_wrong_node_behind_an_address_is_a_difference() -> None:
    """An address of the proxy that belongs to another node is not taken for the right one."""
    two = Target("127.0.0.1:7000", {"127.0.0.1:7002": 1, "127.0.0.1:7003": 2})
    told = difference(
        [comparable(line("127.0.0.1:9092"), DIRECT, "d1")], [comparable(line("127.0.0.1:7003"), two, "p1")]
    )
    assert "node 2" in told


def test_ids_and_times_do_not_count_but_offsets_and_fixed_times_do() -> None:
    """Topic ids and clock times differ between runs; what a script chose itself may not."""
    some, other = line(["vsVqgwP/QkaKgudtVWwKSA", 1795241980254]), line(["9RxnhA2mRAaUTDPYJmukOw", 1795241980999])
    assert comparable(some, DIRECT, "d1") == comparable(other, DIRECT, "d1")
    assert comparable(line(1_700_000_000_000), DIRECT, "d1") != comparable(line(1_700_000_000_001), DIRECT, "d1")
    assert comparable(line([3]), DIRECT, "d1") != comparable(line([4]), DIRECT, "d1")


def test_missing_step_and_stale_excuse_are_told() -> None:
    """A step that never came is a difference; an excuse for a step that is equal must go."""
    assert "(no such step)" in difference([line(1)], [])
    assert "(no such step)" in difference([line(1), line(1)], [line(1)])
    assert "no longer differs" in difference([line(1)], [line(1)], {"s": "because"})
    assert difference([line(1)], [line(2)], {"s": "because"}) == ""


def test_socket_watch_sees_a_childs_connection() -> None:
    """A connection of a client's child process does not go unseen, from either side."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {TALKS!r}, '{port}'])"
        process = subprocess.Popen([sys.executable, "-c", parent], start_new_session=True)
        try:
            with SocketWatch(process.pid) as watch:
                wait_until("the connection to be seen", lambda: port in watch.ports)
            strangers = Peers(port).now()
            assert len(strangers) == 1
            assert Peers(port, frozenset(strangers)).now() == set()
        finally:
            connection, _ = server.accept()
            connection.close()
            for child in peers(process.pid):
                child.kill()
            process.kill()
            process.wait()


def peers(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)
