"""`kordon sources` as an operator uses it, at a broker and through Kordon."""

import asyncio
import re
import uuid
from functools import partial

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, TopicPartition

from kordon.client import SourcePointError, SourceProducer
from kordon.proxy.commands.cli import main
from kordon.testing.broker_features import BUMPED_EPOCHS
from kordon.testing.cluster import Cluster
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import until

pytestmark = pytest.mark.broker


async def run(bootstrap: str, *arguments: str, answer: str | None = None) -> Result:
    """`kordon sources …`."""
    command = ["sources", *arguments, "--bootstrap", bootstrap]
    return await asyncio.to_thread(CliRunner().invoke, main, command, input=answer, catch_exceptions=False)


async def done(bootstrap: str, *arguments: str, answer: str | None = None) -> str:
    """What a command says that does what it shall."""
    result = await run(bootstrap, *arguments, answer=answer)
    assert result.exit_code == 0, result.output
    return result.stdout


async def showing(pattern: str, bootstrap: str, *arguments: str) -> str:
    """What a command says when it shows something; brokers write the end of a transaction behind its answer."""
    shown = ""

    async def looks() -> bool:
        nonlocal shown
        shown = await done(bootstrap, *arguments)
        return re.search(pattern, shown, re.MULTILINE) is not None

    await until(f"{pattern} is shown", looks)
    return shown


async def refused(bootstrap: str, *arguments: str) -> str:
    """What a command says that does not."""
    result = await run(bootstrap, *arguments)
    assert result.exit_code == 1, result.output
    return result.output


async def describes(bootstrap: str, name: str) -> bool:
    return (await run(bootstrap, "describe", name)).exit_code == 0


async def is_refused(why: str, bootstrap: str, *arguments: str) -> bool:
    return why in (await run(bootstrap, *arguments)).output


def producer(bootstrap: str, name: str, count: int) -> SourceProducer:
    return SourceProducer(
        bootstrap_servers=bootstrap, group_id=name, source_partition_count=count, client_id=f"client-of-{name}"
    )


@pytest.mark.skipif(BUMPED_EPOCHS.is_missing, reason="KIP-447 came with Kafka 2.5")
@pytest.mark.parametrize("way", ["bare", "kordon"])
async def test_a_source_from_its_making_to_its_repair(
    cluster: Cluster, request: pytest.FixtureRequest, way: str
) -> None:
    """Created, shown, grown, and set to another restart point; what cannot be done is told with the cure."""
    if way == "kordon":
        proxy: ProxyProcess = request.getfixturevalue("kordon")
        bootstrap = proxy.bootstrap
    else:
        bootstrap = cluster.bootstrap()
    name = f"source-{uuid.uuid4().hex[:8]}"
    assert "there is no topic" in await refused(bootstrap, "describe", name)
    assert await done(bootstrap, "create", name, "--partitions", "2") == f"{name}: created with 2 partitions\n"
    assert "already" in await refused(bootstrap, "create", name, "--partitions", "2")
    await until("the broker tells of it", partial(describes, bootstrap, name))
    assert "Dead, 0 members" in await done(bootstrap, "describe", name)
    async with producer(bootstrap, name, 2) as member:
        await member.subscribe()
        await member.begin_transaction()
        await member.commit_transaction({0: "12:34:00\x1b[2K"})
        first = rf"^0 +1 +\d+ \w+ +client-of-{name}/\S+ +12:34:00\\u001b\[2K$"
        shown = await showing(first, bootstrap, "describe", name)
        assert f"group {name} on {name}: Stable, 1 member" in shown
        assert re.search(r"^1 +0 +- +client-of-\S+ +\(none: the source is read from its beginning\)$", shown, re.M)
        await showing(rf"^{name} +{name} +Stable +1 +\d+ \w+$", bootstrap, "list")
        change = ("alter", name, "--partition", "0", "--restart-at", "12:00:00")
        assert "stop all of them first" in await refused(bootstrap, *change, "--yes")
    assert "2 -> 3 partitions" in await done(bootstrap, "alter", name, "--partitions", "3")
    fewer = ("alter", name, "--partitions", "2")
    await until("the broker tells of them", partial(is_refused, "no topic can have fewer", bootstrap, *fewer))
    said = await done(bootstrap, *change, answer="y\n")
    assert "An earlier point has data written again" in said
    assert said.endswith(f"{name}-0: group {name} goes on at 12:00:00 (number 2)\n")
    assert "partitions 0 to 2, and no 7" in await refused(
        bootstrap, "alter", name, "--partition", "7", "--restart-at", "x", "--yes"
    )
    stock = Consumer({"bootstrap.servers": cluster.bootstrap(), "group.id": name})  # Kordon would refuse it
    stock.commit(offsets=[TopicPartition(name, 1, 0)], asynchronous=False)
    stock.close()
    assert "partitions [1]: no restart point" in await refused(bootstrap, "describe", name)
    async with producer(bootstrap, name, 3) as member:
        with pytest.raises(SourcePointError):
            await member.subscribe()
        await done(bootstrap, "alter", name, "--partition", "1", "--restart-at", "11:11", "--yes")
        assert await member.subscribe() == {0: "12:00:00", 1: "11:11", 2: None}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["alter", "s"], "give either --partitions, or --partition and --restart-at"),
        (["alter", "s", "--partitions", "3", "--restart-at", "x"], "give either"),
        (["alter", "s", "--restart-at", "x"], "give either"),
        (["alter", "s", "--partition", "0", "--restart-at", "x" * 4_001], "at most 4,000 bytes"),
        (["create", "s", "--partitions", "0"], "0 is not in the range"),
        (["create", "s", "--partitions", "10001"], "10001 is not in the range"),
    ],
)
def test_mistakes_are_told_before_anybody_is_asked(arguments: list[str], why: str) -> None:
    """With exit code 2."""
    result = CliRunner().invoke(main, ["sources", *arguments, "--bootstrap", "127.0.0.1:1"], catch_exceptions=False)
    assert result.exit_code == 2
    assert why in result.output
