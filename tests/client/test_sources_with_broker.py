"""Source producers with real brokers, at a bare one and through Kordon: KIP-509's cases, kills, zombies, junk.

No test asks how long something takes. What a dead member has open would end by itself after ten minutes
(transaction_timeout_ms), and no test waits for that: whoever takes over has ended it.
"""

import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest
from aiokafka.errors import UnknownTopicOrPartitionError
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # pyright: ignore[reportPrivateImportUsage]

from kordon.client import (
    SourceCountError,
    SourceLeftError,
    SourcePointError,
    SourceProducer,
    SourceRebalancedError,
)
from kordon.testing.broker_features import BUMPED_EPOCHS, VERIFIED_TRANSACTIONS
from kordon.testing.cluster import Cluster
from kordon.testing.emptied import emptied
from kordon.testing.jars import PROJECT
from kordon.testing.managed_clients import CHANGE_SECONDS, create_ordinary, read_to_ends, resize
from kordon.testing.order.ways import DIRECT, MANAGED, way_to
from kordon.testing.pages.page_commands import blocks, steps
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.tails import Tails
from kordon.testing.waiting import until, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.skipif(BUMPED_EPOCHS.is_missing, reason="KIP-447 came with Kafka 2.5")]

OFFSET_FETCH = 9
LEAVE_GROUP = 13
DESCRIBE_GROUPS = 15
SESSION_MS = 2_000
TEN_MINUTES_MS = 600_000
FILES = 3
PAGE = PROJECT / "docs" / "sources.md"


@pytest.fixture(params=["bare", "kordon"])
def bootstrap(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """At the broker, and through Kordon."""
    if request.param == "bare":
        return cluster.bootstrap()
    proxy: ProxyProcess = request.getfixturevalue("kordon")
    return proxy.bootstrap


@pytest.fixture
def name() -> str:
    """Of a group and its source topic."""
    return f"source-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(cluster: Cluster, name: str) -> str:
    """Where data go: a topic with two partitions."""
    made = f"data-of-{name}"
    create_ordinary(cluster.bootstrap(), made, 2)
    return made


def producer(bootstrap: str, name: str, session_timeout_ms: int = 6_000, **options: object) -> SourceProducer:
    told: dict[str, object] = {
        "transaction_timeout_ms": TEN_MINUTES_MS,
        "source_partition_count": FILES,
        **options,
    }
    return SourceProducer(
        bootstrap_servers=bootstrap,
        group_id=name,
        session_timeout_ms=session_timeout_ms,
        **told,  # type: ignore[arg-type]
    )


async def copied(member: SourceProducer, topic: str, point: str) -> dict[int, str | None]:
    """Sends a record for each of a member's source partitions, and commits a point with it; returns these points."""
    while True:
        try:
            async with member.transaction() as points:
                for each in points:
                    await member.send(topic, f"{each}:{point}".encode())
                    member.restart_at({each: point})
        except SourceRebalancedError:
            continue
        return member.points


def committed(bootstrap: str, topic: str) -> Counter[bytes]:
    """What readers of committed data get."""
    records = read_to_ends({"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}, topic)
    return Counter(each.value() or b"" for each in records)


def test_the_four_cases_of_the_proposal(kordon: ProxyProcess, name: str, topic: str) -> None:
    """The program that shows them says what stands in the page."""
    bootstrap = kordon.bootstrap
    (shown,) = [each for each in blocks(PAGE.read_text()) if "source_cases" in each.text]
    (step,) = steps(shown.text)
    module = step.command.split()[2]
    told = ["--bootstrap", bootstrap, "--group", name, "--topic", topic, "--session-timeout-ms", str(SESSION_MS)]
    command = [sys.executable, "-m", module, *told]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout == step.shown, done.stderr[-2000:]
    expected = Counter([*(f"{table} up to 12:34:00".encode() for table in "ABC"), b"A up to 12:35:00"])
    # A coordinator answers a commit before it writes the markers.
    wait_until("all is committed, and once", lambda: committed(bootstrap, topic) == expected)


async def test_a_silent_application_leaves_and_comes_back(cluster: Cluster, name: str, topic: str) -> None:
    """It is told to call `alive()`; what it had is committed, and it goes on there."""
    async with producer(cluster.bootstrap(), name, SESSION_MS) as member:
        await member.subscribe()
        await copied(member, topic, "12:35:00")
        await until("it has left", lambda: not member.points)
        with pytest.raises(SourceLeftError, match=r"call `alive\(\)` while the source has nothing new"):
            await member.begin_transaction()
        assert await member.subscribe() == dict.fromkeys(range(3), "12:35:00")


@pytest.fixture
def tails(bootstrap: str, name: str, topic: str, tmp_path: Path) -> Iterator[Tails]:
    started = Tails(bootstrap, name, topic, tmp_path)
    try:
        yield started
    finally:
        started.stop()


def test_files_are_copied_once_whoever_dies(tails: Tails) -> None:
    """Three programs share three files; two are killed, and one sleeps for longer than its session."""
    first, second, sleeper = tails.start(), tails.start(), tails.start()
    for victim in (first, second):
        tails.add(400)
        wait_until("all is copied", tails.is_copied)
        tails.add(4_000)
        victim.kill()
        tails.start()
    sleeper.send_signal(signal.SIGSTOP)
    tails.add(400)
    wait_until("all is copied without it", tails.is_copied)
    sleeper.send_signal(signal.SIGCONT)
    tails.add(400)
    wait_until("all is copied", tails.is_copied)


async def test_a_zombie_commits_nothing(cluster: Cluster, name: str, topic: str) -> None:
    """It has data in an open transaction, and the group has thrown it out; what it wrote is never read."""
    bootstrap = cluster.bootstrap()
    zombie, heir = producer(bootstrap, name), producer(bootstrap, name)
    async with zombie, heir:
        await zombie.subscribe()
        await zombie.begin_transaction()
        await (await zombie.send(topic, b"of the zombie"))
        zombie.restart_at({0: "of the zombie"})
        remove_members(bootstrap, name)
        assert set((await heir.subscribe()).values()) == {None}
        await copied(heir, topic, "of the heir")
        with pytest.raises(SourceRebalancedError):
            await zombie.commit_transaction()
        await until("the zombie is a member again", lambda: len(zombie.points) + len(heir.points) == 3)
        await copied(zombie, topic, "of who lives")
    assert b"of the zombie" not in committed(bootstrap, topic)


def remove_members(bootstrap: str, group: str) -> None:
    """Has the group throw its members out, as it does with those that are silent."""
    with PlainConnection(bootstrap) as connection:
        (found,) = connection.ask(DESCRIBE_GROUPS, 4, {"groups": [group]}).groups
        rows = [{"member_id": each.member_id} for each in found.members]
        answer = connection.ask(LEAVE_GROUP, 4, {"group_id": group, "members": rows})
        assert [row.error_code for row in answer.members] == [0]


async def test_a_stock_consumer_overwrites_points_and_nobody_goes_on_from_nowhere(
    cluster: Cluster, name: str, topic: str
) -> None:
    """With auto commit it writes an offset without a point; the group is told what to do, and starts nothing anew."""
    bootstrap = cluster.bootstrap()
    async with producer(bootstrap, name) as first:
        await first.subscribe()
        await copied(first, topic, "here")
    with PlainConnection(bootstrap) as connection:  # confluent_kafka reads behind the end of metadata
        asked = {"group_id": name, "topics": [{"name": name, "partition_indexes": [0, 1, 2]}]}
        found = connection.ask(OFFSET_FETCH, 5, asked).topics[0].partitions
    assert [each.committed_offset for each in found] == [0, 0, 0], "the end of the source topic, so nobody lags"
    assert [each.metadata.split(";")[1] for each in found] == ["1", "1", "1"]
    stock = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": False})
    stock.commit(offsets=[TopicPartition(name, 1, 0)], asynchronous=False)
    stock.close()
    async with producer(bootstrap, name) as second:
        with pytest.raises(SourcePointError, match=rf"for {name}-1 cannot be read: the commit has no restart point"):
            await second.subscribe()


async def test_counts_that_differ_are_refused(cluster: Cluster, name: str) -> None:
    """With both numbers and the commands that make them one."""
    bootstrap = cluster.bootstrap()
    async with producer(bootstrap, name) as first:
        await first.subscribe()
        for count, cure in ((2, "set source_partition_count=3"), (5, f"kordon sources alter {name} --partitions 5")):
            other = SourceProducer(bootstrap_servers=bootstrap, group_id=name, source_partition_count=count)
            async with other:
                with pytest.raises(SourceCountError, match=cure) as error:
                    await other.subscribe()
                assert (error.value.told, error.value.found) == (count, 3)


async def test_a_source_grows_under_its_members(cluster: Cluster, name: str, topic: str) -> None:
    """Whoever takes the topic's own number goes on with more of them; whoever was told a number hears both."""
    bootstrap = cluster.bootstrap()
    admin = create_ordinary(bootstrap, name, 3)
    grown = producer(bootstrap, name, source_partition_count=None, metadata_max_age_ms=200)
    told = producer(bootstrap, name, metadata_max_age_ms=200)
    async with grown:
        await grown.subscribe()
        await copied(grown, topic, "1")
        async with told:
            await told.subscribe()
            add_partitions(admin, name, 6)
            error = await until("it is refused", partial(refused, told, topic))
            assert (error.told, error.found) == (3, 6)
        await until("the other has all of them", lambda: len(grown.points) == 6)
        assert await copied(grown, topic, "2") == dict.fromkeys(range(6), "2")


async def refused(member: SourceProducer, topic: str) -> SourceCountError | None:
    """Why a member may not go on, if it may not."""
    try:
        await copied(member, topic, "1")
    except SourceCountError as error:
        return error
    return None


async def test_a_source_without_a_topic_needs_a_number(cluster: Cluster, name: str) -> None:
    """Nobody knows how many partitions it is to have."""
    async with producer(cluster.bootstrap(), name, source_partition_count=None) as member:
        with pytest.raises(UnknownTopicOrPartitionError, match=f"kordon sources create {name} --partitions NUMBER"):
            await member.subscribe()


def add_partitions(admin: AdminClient, topic: str, count: int) -> None:
    """Has an ordinary topic have so many."""
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(60)


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.skipif(VERIFIED_TRANSACTIONS.is_missing, reason=VERIFIED_TRANSACTIONS.reason)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", [DIRECT, MANAGED])
def test_files_are_copied_once_under_fifty_kills(
    spare_cluster: Cluster, name: str, tmp_path: Path, way: str, seed: int
) -> None:
    """Of three programs one dies at any moment; meanwhile files grow, more are added, and the topic changes."""
    rng = Random(seed)
    with way_to(emptied(spare_cluster), way) as to:
        topic, admin = f"data-of-{name}", to.admin()
        to.create(topic)
        create_ordinary(to.bootstraps[0], name, FILES)
        change = partial(resize, admin, topic) if to.proxies else partial(add_partitions, admin, topic)
        sizes = iter([6, 12, 4] if to.proxies else [6, 12, 15])
        changes: list[Future[None] | None] = []
        tails = Tails(to.bootstraps[0], name, topic, tmp_path, is_growing=True)
        try:
            for _ in range(3):
                tails.start()
            for kill in range(50):
                if kill in {10, 25, 40}:
                    changes.append(change(next(sizes)))
                if kill in {15, 30}:
                    tails.grow(len(tails.files) + 3)
                    add_partitions(admin, name, len(tails.files))
                tails.add(rng.randint(1, 1_000))
                wait_until("it is time", lambda: rng.random() < 0.1)
                tails.running.pop(rng.randrange(3)).kill()
                tails.start()
            for each in changes:
                if each is not None:
                    each.result(CHANGE_SECONDS)
            wait_until("all is copied", tails.is_copied, 300)
        finally:
            tails.stop()


async def test_without_transactions_nothing_is_lost(cluster: Cluster, name: str, topic: str) -> None:
    """A point stands when its data are written; data of a transaction that was not committed may be there."""
    bootstrap = cluster.bootstrap()
    async with SourceProducer(
        bootstrap_servers=bootstrap, group_id=name, source_partition_count=3, transactional=False
    ) as first:
        await first.subscribe()
        await copied(first, topic, "1")
        await first.begin_transaction()
        await first.send(topic, b"once more")
        await first.abort_transaction()
    async with producer(bootstrap, name) as second:
        assert await second.subscribe() == dict.fromkeys(range(3), "1")
        with pytest.raises(Exception, match="a single restart point needs a single source partition"):
            await second.commit_transaction("2")
        await second.begin_transaction()
        await second.commit_transaction({0: "2"})
        assert second.points == {0: "2", 1: "1", 2: "1"}
    assert committed(bootstrap, topic)[b"once more"] == 1


async def test_what_fails_in_a_transaction_is_told_and_the_next_goes_on(
    cluster: Cluster, name: str, topic: str
) -> None:
    """The application's own error aborts it, and its restart points stay as they were."""
    async with producer(cluster.bootstrap(), name) as member:
        await member.subscribe()
        with suppress(RuntimeError):
            async with member.transaction():
                await member.send(topic, b"never")
                member.restart_at({0: "never"})
                raise RuntimeError
        assert await copied(member, topic, "1") == dict.fromkeys(range(3), "1")
    assert b"never" not in committed(cluster.bootstrap(), topic)
