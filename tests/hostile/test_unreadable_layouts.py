"""Whatever somebody writes into `__kordon.layouts` at the brokers, only the topic that it names is not served."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kordon.codecs import apis
from kordon.proxy.kafka.producer import produce_request
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import (
    Sender,
    assert_all_once_and_in_order,
    configure,
    create_managed,
    read_all,
    read_to_ends,
    resize,
    write,
)
from kordon.testing.messages.bombs import bomb
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

# confluent_kafka.admin re-exports these without saying so.
# pyright: reportPrivateImportUsage=false

pytestmark = pytest.mark.broker

LAYOUTS: Final = "__kordon.layouts"
VICTIM, GOOD, PLAIN = "victim", "good", "plain"
STRANGER: Final = "stranger"
"""Is not managed; but a layout that cannot be read may say that it is."""
UNSERVED: Final = [STRANGER, VICTIM]
SECONDS: Final = 90.0
MB: Final = 1_000_000
JUNK: Final[Mapping[bytes, bytes]] = {
    f"{kind}/{VICTIM}{rest}".encode(): b"not json"
    for kind, rest in (("topic", ""), ("image", "/1/1"), ("image", "/x"), ("fence", ""), ("finding", ""), ("later", ""))
} | {
    b"topic/" + STRANGER.encode(): b"not json",
    b"janitor/" + VICTIM.encode(): b"[1]",
    b"wish/poison": b"not json",
    b"outcome/poison": b"{}",
    b"ack/poison/me": b"",
    b"gone/poison": b"\xff\xfe",
    b"wish/later": b'{"wish":{"topic":"good","kind":"teleport"}}',
    b"finding/good": b'{"kind":"eclipse","topic":"good","text":"dark","found_ms":5}',
    b"wish/large": b'{"wish":"' + b"x" * (16 * MB) + b'"}',
    b"": b"nobody's",
    b"/": b"{}",
    b"later": b"{}",
    b"\xff\xfe/\x00": b"\x00",
}


def write_layouts(bootstrap: str, records: Mapping[bytes, bytes | None]) -> None:
    """Writes records into the layouts, as anybody may whom no ACL forbids it."""
    settings = {"bootstrap.servers": bootstrap, "message.max.bytes": 20 * MB}
    write(settings, LAYOUTS, ({"key": key, "value": value} for key, value in records.items()))


def write_bomb(bootstrap: str) -> None:
    """Writes a batch of a few kilobytes that holds 200 MB."""
    with PlainConnection(bootstrap) as broker:
        (answered,) = broker.ask(apis.PRODUCE, 8, produce_request(LAYOUTS, 0, bomb("zstd", 200 * MB))).responses
    assert [each.error_code for each in answered.partition_responses] == [0]


def last_value(bootstrap: str, wanted: str) -> bytes:
    """Returns what stands under a key."""
    records = read_to_ends({"bootstrap.servers": bootstrap}, LAYOUTS)
    return [each.value() or b"" for each in records if each.key() == wanted.encode()][-1]


def unserved(proxy: ProxyProcess) -> list[str]:
    """Returns the topics that a proxy says it does not serve."""
    return [each["topic"] for each in proxy.topics()["findings"] if each["kind"] == "layout_unreadable"]


def produce_code(bootstrap: str, topic: str) -> int:
    """Returns with which error a write is answered."""
    with PlainConnection(bootstrap) as client:
        (answered,) = client.ask(apis.PRODUCE, 8, produce_request(topic, 0, bomb("gzip", 10))).responses
    return int(answered.partition_responses[0].error_code)


def fetch_code(bootstrap: str, topic: str) -> int:
    """Returns with which error a read is answered."""
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    fields = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1000, "topics": [{"topic": topic, "partitions": [part]}]}
    with PlainConnection(bootstrap) as client:
        (answered,) = client.ask(apis.FETCH, 11, fields).responses
    return int(answered.partitions[0].error_code)


@contextmanager
def writing(bootstrap: str, *topics: str) -> Iterator[list[Sender]]:
    """Writes to topics before and while something is done; all of it must be read back, once and in order."""
    senders = [Sender(bootstrap, topic) for topic in topics]
    for sender in senders:
        sender.send_for(0.5)
    yield senders
    for sender in senders:
        sender.send_for(0.5)
        sender.finish()


def assert_all_well(proxy: ProxyProcess, senders: list[Sender]) -> None:
    """What was written is read through a proxy, and it says what it does not serve."""
    for sender in senders:
        assert_all_once_and_in_order(sender, read_all(proxy.bootstrap, sender.topic, sender.sent))
    assert unserved(proxy) == UNSERVED
    for topic in UNSERVED:
        assert (produce_code(proxy.bootstrap, topic), fetch_code(proxy.bootstrap, topic)) == (6, 6)
    assert not AdminClient({"bootstrap.servers": proxy.bootstrap}).list_topics(STRANGER, 30).topics[STRANGER].partitions
    assert proxy.metric("kordon_managed_topics_unserved") == len(UNSERVED)
    assert proxy.metric("kordon_layouts_unreadable_records_total") == len(JUNK) + 1
    assert "Traceback" not in proxy.log()


def test_no_record_in_the_layouts_harms_more_than_its_topic(unled_cluster: Cluster) -> None:
    """Junk under each kind of key, values of a later version, 16 MB, no key, a bomb: by running and restarted proxies.

    The topic that it names is answered NOT_LEADER_OR_FOLLOWER, and goes on when its records are put right.
    """
    brokers = unled_cluster.bootstrap("PLAINTEXT")
    direct = AdminClient({"bootstrap.servers": brokers})
    for created in direct.create_topics([NewTopic(PLAIN, 3, 1), NewTopic(STRANGER, 3, 1)]).values():
        created.result(60)
    with ProxyProcess.start(brokers) as running, ProxyProcess.start(brokers) as other:
        admin = create_managed(running.bootstrap, GOOD)
        create_managed(running.bootstrap, VICTIM)
        before = Sender.sent_for(0.5, running.bootstrap, VICTIM)
        large = {"max.message.bytes": str(20 * MB), "compression.type": "producer"}
        configure(direct, LAYOUTS, large)
        layout = last_value(brokers, f"topic/{VICTIM}")
        memory = psutil.Process(running.pid).memory_info().rss
        with writing(running.bootstrap, GOOD, PLAIN) as senders:
            write_layouts(brokers, JUNK)
            write_bomb(brokers)
            wait_until("it is not served", lambda: [unserved(each) for each in (running, other)] == [UNSERVED] * 2)
        assert_all_well(running, senders)
        assert psutil.Process(running.pid).memory_info().rss - memory < 100 * MB
        other.stop()
        other.start_again()
        wait_until("the layouts are read again", lambda: unserved(other) == UNSERVED)
        with writing(other.bootstrap, GOOD) as more:
            resize(admin, GOOD, 6).result(90)
        assert more[0].errors == []
        assert_all_well(other, [senders[1]])
        write_layouts(brokers, {**{key: None for key in JUNK if key}, f"topic/{VICTIM}".encode(): layout})
        for proxy in (running, other):
            wait_until("the victim is served again", lambda proxy=proxy: unserved(proxy) == [])  # type: ignore[misc]
        before.send_for(0.5)
        before.finish()
        assert produce_code(other.bootstrap, STRANGER) == 0
        before.assert_read_by(other.bootstrap)
