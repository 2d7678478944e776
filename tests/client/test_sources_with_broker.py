"""Source producers with real brokers, at a bare one and through Kordon: KIP-509's cases, kills, zombies, junk.

No test asks how long something takes. What a dead member has open would end by itself after ten minutes
(transaction_timeout_ms), and no test waits for that: whoever takes over has ended it.
"""

import asyncio
import os
import signal
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.client import (
    SourceCountError,
    SourceLeftError,
    SourcePointError,
    SourceProducer,
    SourceRebalancedError,
    SourceRebalanceListener,
)
from kordon.testing.broker_features import VERIFIED_TRANSACTIONS
from kordon.testing.cluster import Cluster
from kordon.testing.forked_program import ForkedProgram
from kordon.testing.managed_clients import CHANGE_SECONDS, create_managed, read_to_ends, resize
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import until, wait_until

pytestmark = pytest.mark.broker

OFFSET_FETCH = 9
LEAVE_GROUP = 13
DESCRIBE_GROUPS = 15
SESSION_MS = 2_000
TEN_MINUTES_MS = 600_000
FILES = 3


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
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
    admin.create_topics([NewTopic(made, 2, 1)])[made].result(60)
    return made


def producer(bootstrap: str, name: str, session_timeout_ms: int = 6_000, **options: object) -> SourceProducer:
    told: dict[str, object] = {"transaction_timeout_ms": TEN_MINUTES_MS, **options}
    return SourceProducer(
        bootstrap_servers=bootstrap,
        group_id=name,
        source_partition_count=3,
        session_timeout_ms=session_timeout_ms,
        **told,  # type: ignore[arg-type]
    )


class Told(SourceRebalanceListener):
    """What a member is told last."""

    def __init__(self) -> None:
        self.points: dict[int, str | None] | None = None

    def on_source_partitions_revoked(self, revoked: Collection[int]) -> None:
        self.points = None

    def on_source_partitions_assigned(self, points: Mapping[int, str | None]) -> None:
        self.points = dict(points)


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


async def test_the_four_cases_of_the_proposal(bootstrap: str, name: str, topic: str) -> None:
    """First start, second start, sharing with a standby, and an application that is not alive."""
    told = [Told(), Told(), Told()]
    async with producer(bootstrap, name) as first:  # case 1
        assert await first.subscribe(told[0]) == {0: None, 1: None, 2: None}
        assert await copied(first, topic, "12:34:00") == dict.fromkeys(range(3), "12:34:00")
    first, second, third = (producer(bootstrap, name, SESSION_MS) for _ in range(3))
    async with first, second, third:
        assert await first.subscribe(told[0]) == dict.fromkeys(range(3), "12:34:00")  # case 2
        alive = [asyncio.ensure_future(stay_alive(first))]
        points = await second.subscribe(told[1])  # case 3
        alive.append(asyncio.ensure_future(stay_alive(second)))
        await until("both have their share", lambda: told[0].points and told[1].points)
        assert sorted((*first.points, *second.points)) == [0, 1, 2]
        assert set(points.values()) == {"12:34:00"}
        members = [first, second, third]
        await third.subscribe(told[2])
        alive.append(asyncio.ensure_future(stay_alive(third)))
        await until("each has one", lambda: [len(each.points) for each in members] == [1, 1, 1])
        async with producer(bootstrap, name) as standby:
            assert await standby.subscribe() == {}
            assert await copied(standby, topic, "nothing") == {}
        await until("each has one", lambda: [len(each.points) for each in members] == [1, 1, 1])
        await copied(first, topic, "12:35:00")
        (silent,) = first.points
        alive[0].cancel()  # case 4
        await until("others have what it had", lambda: silent in {**second.points, **third.points})
        with pytest.raises(SourceLeftError, match=r"call `alive\(\)` while the source has nothing new"):
            await first.begin_transaction()
        assert {**second.points, **third.points}[silent] == "12:35:00"
        assert len(await first.subscribe()) == 1
        for each in alive:
            each.cancel()
    assert committed(bootstrap, topic) == Counter(
        [*(f"{each}:12:34:00".encode() for each in range(3)), f"{silent}:12:35:00".encode()]
    )


async def stay_alive(member: SourceProducer) -> None:
    while True:
        member.alive()
        await asyncio.sleep(SESSION_MS / 10_000)


class Tails:
    """Programs that copy files, and what is in the files."""

    def __init__(self, bootstrap: str, name: str, topic: str, folder: Path) -> None:
        self.files = [folder / f"{number}.log" for number in range(FILES)]
        self.written = 0
        for file in self.files:
            file.touch()
        what = ["--bootstrap", bootstrap, "--group", name, "--topic", topic, "--session-timeout-ms", str(SESSION_MS)]
        self._command = ["kordon.client.examples.tail_files", *what, *map(str, self.files)]
        self._log = folder / "said"
        self.running: list[ForkedProgram] = []

    def start(self) -> None:
        self.running.append(ForkedProgram(self._command, self._log, os.environ))

    def add(self, count: int) -> None:
        """Adds lines to each file, each of which no other has."""
        for file in self.files:
            with file.open("a") as opened:
                opened.writelines(f"{file.stem}:{number}\n" for number in range(self.written, self.written + count))
        self.written += count

    def stop(self) -> None:
        """Kills those that run."""
        for each in self.running:
            each.send_signal(signal.SIGCONT)
            each.kill()
            each.wait(60)

    @property
    def lines(self) -> Counter[bytes]:
        return Counter(b"%d:%d" % (file, number) for file in range(FILES) for number in range(self.written))


@pytest.fixture
def tails(bootstrap: str, name: str, topic: str, tmp_path: Path) -> Iterator[Tails]:
    started = Tails(bootstrap, name, topic, tmp_path)
    try:
        yield started
    finally:
        started.stop()


def test_files_are_copied_once_whoever_dies(bootstrap: str, topic: str, tails: Tails) -> None:
    """Two programs share three files; each is killed once, and one sleeps for longer than its session."""
    tails.start()
    tails.start()
    for victim in (0, 1):
        tails.add(400)
        reached(bootstrap, topic, tails.written)
        tails.add(4_000)
        tails.running[victim].kill()
        tails.start()
    tails.running[-1].send_signal(signal.SIGSTOP)
    tails.add(400)
    wait_until("all is copied without it", lambda: committed(bootstrap, topic) == tails.lines)
    tails.running[-1].send_signal(signal.SIGCONT)
    tails.add(400)
    wait_until("all is copied", lambda: committed(bootstrap, topic) == tails.lines)


def reached(bootstrap: str, topic: str, lines: int) -> None:
    wait_until("something is copied", lambda: sum(committed(bootstrap, topic).values()) >= lines)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3))
def test_files_are_copied_once_under_fifty_kills(bootstrap: str, topic: str, tails: Tails, seed: int) -> None:
    """Of three programs one dies at any moment, fifty times, while the files grow."""
    rng = Random(seed)
    for _ in range(3):
        tails.start()
    for _ in range(50):
        tails.add(rng.randint(1, 2_000))
        wait_until("it is time", lambda: rng.random() < 0.1)
        tails.running.pop(rng.randrange(3)).kill()
        tails.start()
    wait_until("all is copied", lambda: committed(bootstrap, topic) == tails.lines, 300)


@pytest.mark.deep
@pytest.mark.skipif(VERIFIED_TRANSACTIONS.is_missing, reason=VERIFIED_TRANSACTIONS.reason)
def test_files_are_copied_once_into_a_topic_that_grows_and_shrinks(
    takers: list[ProxyProcess], name: str, tmp_path: Path
) -> None:
    """Data go to a managed topic, 3 -> 6 -> 4, and a program is killed in each of its states."""
    topic = f"managed-data-of-{name}"
    admin = create_managed(takers[1].bootstrap, topic)
    tails = Tails(takers[0].bootstrap, name, topic, tmp_path)
    try:
        tails.start()
        tails.start()
        for count in (6, 4):
            tails.add(1_000)
            change = resize(admin, topic, count)
            reached(takers[1].bootstrap, topic, tails.written)
            tails.add(1_000)
            tails.running.pop(0).kill()
            tails.start()
            change.result(CHANGE_SECONDS)
        wait_until("all is copied", lambda: committed(takers[1].bootstrap, topic) == tails.lines, 180)
    finally:
        tails.stop()


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
