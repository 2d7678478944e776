"""Proxies die and sleep while a managed topic grows and shrinks under an idempotent producer."""

import pytest

from kordon.codecs import apis
from kordon.testing import short_leases
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import (
    CHANGE_SECONDS,
    Sender,
    create_managed,
    create_ordinary,
    manage,
    read_to_ends,
    resize,
)
from kordon.testing.managed_writes import a_batch
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until


def leader_first(proxies: list[ProxyProcess]) -> list[ProxyProcess]:
    """Puts the proxy that leads the others first."""
    return sorted(proxies, key=lambda proxy: not proxy.leads())


@pytest.mark.parametrize("victim", ["controller", pytest.param("follower", marks=pytest.mark.deep)])
def test_a_killed_proxy_loses_nothing_and_stops_no_growth(unled_cluster: Cluster, victim: str) -> None:
    """Kill -9 of one of three while a growth is asked for: it comes true when the dead one's lease has run out."""
    bootstrap, topic = unled_cluster.bootstrap("PLAINTEXT"), f"killed-{victim}"
    with (
        ProxyProcess.start(bootstrap) as first,
        ProxyProcess.start(bootstrap) as second,
        ProxyProcess.start(bootstrap) as third,
    ):
        create_managed(first.bootstrap, topic)
        ranked = leader_first([first, second, third])
        dying, staying = (ranked[0], ranked[1:]) if victim == "controller" else (ranked[2], ranked[:2])
        admin = create_managed(staying[0].bootstrap, f"{topic}-other")
        sender = Sender(",".join(proxy.bootstrap for proxy in (dying, *staying)), topic)
        sender.send_for(1.0)
        resize(admin, topic, 4).result(CHANGE_SECONDS)
        growth = resize(admin, topic, 6)
        dying.kill()
        sender.send_for(1.0, growth)
        growth.result(CHANGE_SECONDS)
        shrink = resize(admin, topic, 3)
        sender.send_for(1.0, shrink)
        shrink.result(CHANGE_SECONDS)
        sender.finish()
        sender.assert_read_by(staying[0].bootstrap)


def test_a_proxy_that_sleeps_through_a_takeover_passes_nothing_of_old(unled_cluster: Cluster) -> None:
    """A write has come to it that was for an ordinary topic: it is not written, and its client hears no success."""
    bootstrap, topic = unled_cluster.bootstrap("PLAINTEXT"), "slept-through"
    part = {"index": 0, "records": a_batch("late")}
    written = {"topic_data": [{"name": topic, "partition_data": [part]}], "acks": -1, "timeout_ms": 10_000}
    with (
        ProxyProcess.start(bootstrap, program=short_leases.PROGRAM) as first,
        ProxyProcess.start(bootstrap, program=short_leases.PROGRAM) as second,
        PlainConnection(second.bootstrap) as seeks,
    ):
        admin = create_ordinary(first.bootstrap, topic)
        (node,) = seeks.ask(apis.METADATA, 9, {"topics": []}).brokers
        wait_until("others wait for it", lambda: second.metric("kordon_managed_serving") == 1)
        with PlainConnection(f"{node.host}:{node.port}") as client:
            assert client.ask(apis.METADATA, 9, {"topics": []}).brokers
            with second.asleep():
                client.tell(apis.PRODUCE, 9, written)
                manage(admin, topic, "quiesced").result(CHANGE_SECONDS)
                resize(admin, topic, 6).result(CHANGE_SECONDS)
            with pytest.raises((EOFError, ConnectionError)):
                client.ask(apis.METADATA, 9, {"topics": []})
        wait_until("it serves again", lambda: second.metric("kordon_managed_serving") == 1)
        assert read_to_ends({"bootstrap.servers": second.bootstrap}, topic) == []


def test_a_proxy_that_sleeps_through_a_fence_acknowledges_nothing_of_old(unled_cluster: Cluster) -> None:
    """SIGSTOP across a growth: what the sleeper had under way is not doubled, lost or out of order when it wakes."""
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    with (
        ProxyProcess.start(bootstrap, program=short_leases.PROGRAM) as first,
        ProxyProcess.start(bootstrap, program=short_leases.PROGRAM) as second,
    ):
        admin = create_managed(first.bootstrap, "slept")
        sender = Sender(f"{second.bootstrap},{first.bootstrap}", "slept")
        sender.send_for(1.0)
        with second.asleep():
            growth = resize(admin, "slept", 6)
            sender.send_for(1.0, growth)
            growth.result(CHANGE_SECONDS)
        sender.send_for(3.0)
        sender.finish()
        sender.assert_read_by(second.bootstrap)
