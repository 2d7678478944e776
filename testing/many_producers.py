"""Very many producers in the log of a managed topic, as a day of short-lived ones leaves them: one small batch of each.

They are written to the brokers as Kordon writes: tagged with the virtual partition that lives there.
`python -m kordon.testing.many_producers 100000` grows a topic of 12 partitions with so many, and tells what it cost.
"""

from __future__ import annotations

import argparse
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import google_crc32c
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.codecs.messages import request
from kordon.codecs.records import CRC_AT, CRC_FROM
from kordon.proxy.control.batches import Entry, Identity, build_batch
from kordon.proxy.ordering.hashing import home
from kordon.proxy.ordering.identity import tag
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import Sender, assert_all_once_and_in_order, read_all, resize
from kordon.testing.proxy_process import ProxyProcess

PARTITIONS: Final = 12
VIRTUAL_PARTITIONS: Final = 48
_PRODUCE, _VERSION = 0, 7
_PRODUCER_ID_AT: Final = 43
_IN_FLIGHT: Final = 20
_KEY: Final = "of a short-lived one"
_LOOK_SECONDS: Final = 0.01
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")
_HEADER: Final = struct.Struct(">hhih")


class Batches:
    """Makes one small batch for each producer id."""

    def __init__(self, value: bytes = b"0") -> None:
        self._batch = bytearray(build_batch([Entry(_KEY, value)], Identity(0, 0, 0), is_transactional=False))

    def of(self, producer_id: int) -> bytes:
        """Returns the first batch of a producer."""
        _INT64.pack_into(self._batch, _PRODUCER_ID_AT, producer_id)
        _CRC.pack_into(self._batch, CRC_AT, google_crc32c.value(bytes(self._batch[CRC_FROM:])))
        return bytes(self._batch)


def flood(address: tuple[str, int], topic: str, ids: Mapping[int, Sequence[int]]) -> None:
    """Writes a batch of each producer id to a partition, straight to the broker that leads all of them.

    Args:
        ids: Producer ids as the log has them, by physical partition.

    Raises:
        AssertionError: The broker refused a batch.
    """
    batches = Batches()
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = connection.makefile("rb")
        unanswered = 0
        for frame in _requests(topic, ids, batches):
            connection.sendall(frame)
            unanswered += 1
            if unanswered == _IN_FLIGHT:
                _read(answers)
                unanswered -= 1
        for _ in range(unanswered):
            _read(answers)


def _requests(topic: str, ids: Mapping[int, Sequence[int]], batches: Batches) -> Iterator[bytes]:
    for number in range(max(map(len, ids.values()))):
        rows = [{"index": q, "records": batches.of(each[number])} for q, each in ids.items() if number < len(each)]
        topics = [{"name": topic, "partition_data": rows}]
        fields = {"transactional_id": None, "acks": 1, "timeout_ms": 30_000, "topic_data": topics}
        body = _HEADER.pack(_PRODUCE, _VERSION, number, -1) + request(_PRODUCE).build(_VERSION, fields)
        yield _INT32.pack(len(body)) + body


def _read(answers: Any) -> None:
    (size,) = _INT32.unpack(answers.read(4))
    body = answers.read(size)
    topics_at = 8 + 2 + struct.unpack_from(">h", body, 8)[0]
    (count,) = _INT32.unpack_from(body, topics_at)
    for row in range(count):
        _, error_code = struct.unpack_from(">ih", body, topics_at + 4 + 30 * row)
        assert error_code == 0, f"the broker refuses a batch: {error_code}"


def ids_of(
    count: int,
    *,
    first: int = 1_000_000,
    partitions: int = PARTITIONS,
    virtual_partitions: int = VIRTUAL_PARTITIONS,
) -> dict[int, list[int]]:
    """Returns producer ids that have written to a topic that has not changed yet, by physical partition.

    Args:
        first: The first one, as clients know it.
    """
    homes = [home(v, partitions, partitions, virtual_partitions) for v in range(virtual_partitions)]
    ids: dict[int, list[int]] = {q: [] for q in range(partitions)}
    for number in range(count):
        v = number % virtual_partitions
        ids[homes[v]].append(tag(v, 0, first + number))
    return ids


class Prober:
    """Asks a worker's /livez all the time, and keeps how long the slowest answer took: its loop stood for so long."""

    def __init__(self, admin: str) -> None:
        self.longest_seconds = 0.0
        self._url = f"http://{admin}/livez"
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._probe, daemon=True)

    def __enter__(self) -> Prober:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()

    def _probe(self) -> None:
        while not self._ends.wait(_LOOK_SECONDS):
            began = time.monotonic()
            with suppress(OSError), urllib.request.urlopen(self._url, timeout=60):  # noqa: S310 - a page of Kordon's own
                self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)


def memory_bytes(pid: int) -> int:
    (line,) = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def main() -> None:
    """Measures a growth from 12 to 24 partitions, which seals all of them."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("producers", type=int)
    count = parser.parse_args().producers
    with Cluster.start() as cluster, _proxy(cluster) as one, _proxy(cluster) as other:
        admin = AdminClient({"bootstrap.servers": one.bootstrap})
        config = {"kordon.virtual.partitions": str(VIRTUAL_PARTITIONS)}
        admin.create_topics([NewTopic("many", PARTITIONS, 1, config=config)])["many"].result(60)
        time.sleep(1)
        before = [memory_bytes(proxy.pid) for proxy in (one, other)]
        began = time.monotonic()
        broker = cluster.brokers[0]
        flood((broker.host, broker.port()), "many", ids_of(count))
        print(f"{count} producers written in {time.monotonic() - began:.1f} s")
        sender = Sender(other.bootstrap, "many")
        sender.send_for(1.0)
        sender.longest_pause_seconds = 0.0
        with Prober(one.admin) as first, Prober(other.admin) as second:
            began = time.monotonic()
            resize(admin, "many", 2 * PARTITIONS)
            while one.metric("kordon_managed_partitions") < 2 * PARTITIONS:  # longer than whoever wishes waits
                sender.send_for(0.2)
            print(f"12 -> 24 in {time.monotonic() - began:.1f} s")
            sender.send_for(1.0)
        sender.finish()
        for proxy, prober, bytes_before in zip((one, other), (first, second), before, strict=True):
            _tell(proxy, prober, bytes_before)
        print(f"longest pause of a client that writes all the time {1000 * sender.longest_pause_seconds:.0f} ms")
        got = read_all(one.bootstrap, "many", sender.sent + count)
        assert_all_once_and_in_order(sender, [each for each in got if each[0] != _KEY.encode()])
        sender.close()


def _proxy(cluster: Cluster) -> ProxyProcess:
    return ProxyProcess.start(cluster.bootstrap())


def _tell(proxy: ProxyProcess, prober: Prober, bytes_before: int) -> None:
    phases = {
        phase: proxy.metric("kordon_managed_fence_seconds_sum", phase=phase)
        for phase in ("hold", "drain", "acknowledge", "cut", "commit")
    }
    times = ", ".join(f"{phase} {1000 * seconds:.0f} ms" for phase, seconds in phases.items())
    attempts = proxy.metric("kordon_managed_fence_seconds_count", phase="hold")
    grown = (memory_bytes(proxy.pid) - bytes_before) / 1e6
    print(f"{'controller' if proxy.leads() else 'member'}: {times}; {attempts:.0f} fences")
    print(f"  slowest /livez {1000 * prober.longest_seconds:.0f} ms, memory +{grown:.0f} MB")
    print(f"  carried {proxy.metric('kordon_managed_producers_carried'):.0f}")


if __name__ == "__main__":
    main()
