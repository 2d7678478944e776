"""Very many producers in the log of a managed topic, as a day of short-lived ones leaves them: one small batch of each.

They are written to the brokers as Kordon writes: tagged with the virtual partition that lives there.
`python -m kordon.testing.many_producers 100000` grows a topic of 12 partitions with so many, and tells what it cost.
"""

from __future__ import annotations

import argparse
import struct
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Final

import google_crc32c
import psutil
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.codecs import apis
from kordon.codecs.records import CRC_AT, CRC_FROM
from kordon.proxy.kafka.batches import BatchIdentity, NewRecord, build_batch
from kordon.proxy.ordering.hashing import home
from kordon.proxy.ordering.identity import tag
from kordon.testing.audits.play_requests import assert_accepted
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import Sender, assert_all_once_and_in_order, read_all, resize
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess

PARTITIONS: Final = 12
VIRTUAL_PARTITIONS: Final = 48
_VERSION: Final = 7
_PRODUCER_ID_AT: Final = 43
_KEY: Final = "of a short-lived one"
_LOOK_SECONDS: Final = 0.01
_INT64: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")


def flood(bootstrap: str, topic: str, ids: Mapping[int, Sequence[int]]) -> None:
    """Writes a batch of each producer id to a partition, straight to the broker that leads all of them.

    Args:
        bootstrap: Of the broker.
        topic: Its name.
        ids: Producer ids as the log has them, by physical partition.
    """
    batch = bytearray(build_batch([NewRecord(_KEY, b"0")], BatchIdentity(0, 0, 0), is_transactional=False))

    def of(producer_id: int) -> bytes:
        _INT64.pack_into(batch, _PRODUCER_ID_AT, producer_id)
        _CRC.pack_into(batch, CRC_AT, google_crc32c.value(bytes(batch[CRC_FROM:])))
        return bytes(batch)

    with PlainConnection(bootstrap) as broker:
        for each in zip_longest(*ids.values()):
            rows = [{"index": q, "records": of(its)} for q, its in zip(ids, each, strict=True) if its is not None]
            fields = {"acks": 1, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": rows}]}
            answer = broker.ask(apis.PRODUCE, _VERSION, fields)
            assert_accepted(*(row.error_code for row in answer.responses[0].partition_responses))


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
        before = [psutil.Process(proxy.pid).memory_info().rss for proxy in (one, other)]
        began = time.monotonic()
        flood(cluster.bootstrap(), "many", ids_of(count))
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
    grown = (psutil.Process(proxy.pid).memory_info().rss - bytes_before) / 1e6
    print(f"{'controller' if proxy.leads() else 'member'}: {times}; {attempts:.0f} fences")
    print(f"  slowest /livez {1000 * prober.longest_seconds:.0f} ms, memory +{grown:.0f} MB")
    print(f"  carried {proxy.metric('kordon_managed_producers_carried'):.0f}")


if __name__ == "__main__":
    main()
