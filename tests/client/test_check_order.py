"""The example that checks order with stock clients: it finds what is wrong, and finds nothing while a topic changes."""

import asyncio
import re
import sys

import pytest
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.client.examples.check_order import OrderCheck
from kordon.testing.managed_clients import resize
from kordon.testing.proxy_process import ProxyProcess

PATIENCE_SECONDS = 120
TOPIC = "checked-orders"


def test_records_that_come_too_early_too_late_or_again_are_told() -> None:
    """By their keys: another key has numbers of its own."""
    check = OrderCheck()
    for key, number in (("a", 0), ("b", 0), ("a", 2), ("a", 1), ("a", 1), ("b", 1), ("a", 3)):
        check.take(key, number)
    assert str(check) == "0 written, 6 read; 2 out of order, 0 failed sends, 1 read again"


@pytest.mark.broker
@pytest.mark.deep
async def test_the_order_of_a_topic_that_grows_and_shrinks_is_checked(proxies: list[ProxyProcess]) -> None:
    """The program creates the topic, tells how far it is, and ends well when all that was written is read in order."""
    bootstrap = ",".join(each.bootstrap for each in proxies)
    command = [sys.executable, "-m", "kordon.client.examples.check_order", "--bootstrap", bootstrap, "--topic", TOPIC]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    admin = AdminClient({"bootstrap.servers": proxies[0].bootstrap})
    for partitions in (6, 3):
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)
        assert b" written, " in line
        await asyncio.to_thread(resize(admin, TOPIC, partitions).result, PATIENCE_SECONDS)
    await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)
    process.terminate()
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    last = output.decode().splitlines()[-1]
    assert process.returncode == 0, f"{last}\n{errors.decode()}"
    assert re.fullmatch(r"([\d,]+) written, \1 read; 0 out of order, 0 failed sends, \d+ read again", last)
