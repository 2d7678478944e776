"""What applications see of the SDK on days that are not good ones, with a real broker and a real proxy."""

import asyncio
import logging
import re
from collections.abc import Collection
from typing import Any

import pytest
from aiokafka.structs import TopicPartition

from kordon.client import OrderedConsumer, OrderedProducer, PartitionKeyRebalanceListener, key_move_driver
from kordon.client.long_waits import LongWaits
from kordon.testing.managed_clients import create_managed, resize
from kordon.testing.proxy_process import ProxyProcess

pytestmark = pytest.mark.broker


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns what the SDK has logged."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("kordon.client")]


class Broken(PartitionKeyRebalanceListener):
    """Of an application whose store takes nothing."""

    async def on_partition_key_maybe_revoked(self, revoked: Collection[TopicPartition]) -> None:
        raise OSError("no space left on device")

    async def on_partition_key_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Has nothing to load."""


def why_held(proxy: ProxyProcess, topic: str) -> list[str]:
    """Returns what `kordon topics describe` says of what groups wait for, as soon as both members have reported."""
    whys = [row["why"] for row in proxy.topic(topic)["held_for_groups"]]
    return [why for why in whys if "no member has it" not in why]


@pytest.mark.deep
async def test_who_waits_is_told_and_operators_see_for_whom(
    proxy: ProxyProcess, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member cannot flush, so the other is held: its log says so, and the admin page names the culprit."""
    topic = "held-for-long"
    admin = await asyncio.to_thread(create_managed, proxy.bootstrap, topic)
    async with OrderedProducer(bootstrap_servers=proxy.bootstrap) as producer:
        await asyncio.gather(*[await producer.send(topic, b"value", key=b"%d" % each) for each in range(60)])
        await asyncio.to_thread(resize(admin, topic, 6).result, 60)
    monkeypatch.setattr(key_move_driver, "LongWaits", lambda: LongWaits(0.5))
    options: dict[str, Any] = {"bootstrap_servers": proxy.bootstrap, "group_id": topic, "auto_offset_reset": "earliest"}
    with caplog.at_level(logging.WARNING, "kordon.client"):
        async with (
            OrderedConsumer(topic, key_listener=Broken(), client_id="one", **options) as one,
            OrderedConsumer(topic, key_listener=Broken(), client_id="two", **options) as two,
        ):
            whys, warned = why_held(proxy, topic), list[str]()
            while not (whys and warned):
                await asyncio.gather(one.getmany(timeout_ms=200), two.getmany(timeout_ms=200))
                whys = why_held(proxy, topic)
                warned = [message for message in said(caplog) if message.startswith("Held for")]
    assert re.match(rf"group {topic} waits for partition [0-2], .*: member (one|two)-\S+ has it", whys[0])
    assert re.match(rf"Held for 0 s: {topic}-[3-5].*`kordon topics describe {topic}` tells", warned[0])


async def test_who_stops_says_nothing(proxy: ProxyProcess, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is under way when an application stops its consumer is no news."""
    await asyncio.to_thread(create_managed, proxy.bootstrap, "stops-quietly")
    with caplog.at_level(logging.WARNING, "kordon.client"):
        for _ in range(4):
            async with OrderedConsumer("stops-quietly", bootstrap_servers=proxy.bootstrap, group_id="stops-quietly"):
                pass
    assert said(caplog) == []
