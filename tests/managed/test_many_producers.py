"""A topic to which very many producers have written grows as quickly as any other, and forgets none of them."""

import json

import pytest

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.ahead import FEW_PRODUCERS
from kordon.proxy.own_topics.layouts_topic import LAYOUTS_TOPIC
from kordon.testing.audits.play_requests import one_record, produce
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import (
    VIRTUAL_PARTITIONS,
    Sender,
    assert_all_once_and_in_order,
    create_managed,
    read_all,
    read_to_ends,
    resize,
)
from kordon.testing.many_producers import flood, ids_of
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess

pytestmark = pytest.mark.broker

TOPIC = "of-very-many"
FIRST = 1_000_000
COUNT = FEW_PRODUCERS + VIRTUAL_PARTITIONS
SHORT_LIVED = b"of a short-lived one"


def test_many_producers_are_carried_and_a_fence_asks_for_none_of_them(
    open_cluster: Cluster, proxies: list[ProxyProcess]
) -> None:
    """Their images are written ahead: what comes again is known, what follows goes on, a gap is one (SEQ-IMAGE)."""
    admin = create_managed(proxies[0].bootstrap, TOPIC)
    ids = ids_of(COUNT, first=FIRST, partitions=3, virtual_partitions=VIRTUAL_PARTITIONS)
    flood(open_cluster.bootstrap("PLAINTEXT"), TOPIC, ids)
    sender = Sender(proxies[1].bootstrap, TOPIC)
    sender.send_for(0.5)
    for count in (6, 4):
        done = resize(admin, TOPIC, count)
        sender.send_for(0.2, done)
        done.result(60)
    sender.send_for(0.2)
    sender.finish()
    sender.close()

    with PlainConnection(proxies[0].bootstrap) as client:
        for v in range(VIRTUAL_PARTITIONS):
            client_id = FIRST + COUNT // 12 * 12 - 12 + v
            assert produce(client, TOPIC, v, one_record((client_id, 0), 0, "0")) == Code.NONE, "again"
            assert produce(client, TOPIC, v, one_record((client_id, 0), 2, "2")) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert produce(client, TOPIC, v, one_record((client_id, 0), 1, f"{v}")) == Code.NONE, "goes on"
    got = read_all(proxies[0].bootstrap, TOPIC, sender.sent + COUNT + VIRTUAL_PARTITIONS)
    assert_all_once_and_in_order(sender, [each for each in got if each[0] not in {SHORT_LIVED, b"key"}])
    assert sum(key == SHORT_LIVED for key, _ in got) == COUNT
    assert sorted(number for key, number in got if key == b"key") == list(range(VIRTUAL_PARTITIONS))
    assert any(json.loads(value)["begins"] for value in images(open_cluster))


def images(cluster: Cluster) -> list[bytes]:
    """Returns what is written down of producers of the topic."""
    records = read_to_ends({"bootstrap.servers": cluster.bootstrap("PLAINTEXT")}, LAYOUTS_TOPIC)
    begin = f"image/{TOPIC}/".encode()
    return [value for each in records if (each.key() or b"").startswith(begin) and (value := each.value())]
