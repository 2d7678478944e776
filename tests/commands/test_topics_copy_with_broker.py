"""`kordon topics copy` as an operator uses it: through a proxy in front of a real broker, away from it in the end."""

import asyncio
import json
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, Popen

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import (  # pyright: ignore[reportPrivateImportUsage]
    AclOperation,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kordon.proxy.commands import copy_handover, copy_run, topic_copy
from kordon.proxy.commands.brokers_asked import brokers_at
from kordon.proxy.commands.cli import main
from kordon.proxy.commands.copied_partition import CopyStopped
from kordon.proxy.commands.topic_copy import TopicCopy
from kordon.proxy.config.config import Upstream
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.testing.broker_config import USERS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import (
    Sender,
    assert_all_once_and_in_order,
    configure,
    create_managed,
    create_ordinary,
    read,
    resize,
    watermarks,
    write,
)
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.rights import Allowed, Secured, login
from kordon.testing.waiting import wait_until

VIRTUAL = range(12)
DAYS_MS = str(20_000 * 24 * 60 * 60 * 1000)


@pytest.fixture(scope="module")
def broker(open_cluster: Cluster) -> str:
    return open_cluster.bootstrap()


@pytest.fixture(autouse=True)
def short_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes in these tests when they finish a copy, but where that is the subject."""
    monkeypatch.setattr(copy_run, "_QUIET_SECONDS", 1.5)
    monkeypatch.setattr(copy_run, "_UNQUIET_SECONDS", 3.0)


def run(proxy: ProxyProcess, *arguments: str) -> Result:
    """`kordon topics copy …`."""
    return CliRunner().invoke(
        main, ["topics", "copy", *arguments, "--bootstrap", proxy.bootstrap], catch_exceptions=False
    )


def done(proxy: ProxyProcess, *arguments: str) -> str:
    result = run(proxy, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(proxy: ProxyProcess, *arguments: str) -> str:
    """The one line that a command says which cannot do what it shall."""
    result = run(proxy, *arguments)
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    return result.stderr.splitlines()[-1]


def copied(broker: str, target: str) -> int:
    """How many records a copy has; none while nobody leads its partitions yet."""
    admin = AdminClient({"bootstrap.servers": broker})
    if target not in admin.list_topics(timeout=60).topics:
        return 0
    with suppress(KafkaException):
        return sum_of(watermarks(broker, target, VIRTUAL))
    return 0


def numbers(messages: list[Message]) -> list[tuple[bytes, int]]:
    return [(message.key() or b"", int(message.value() or b"")) for message in messages]


def read_some(bootstrap: str, topic: str, group: str, is_enough: Callable[[int], bool]) -> list[Message]:
    """Reads as a group until there is enough, and commits what it has read."""
    config = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "enable.auto.commit": False})
    consumer.subscribe([topic])
    found: list[Message] = []

    def enough() -> bool:
        found.extend(message for message in consumer.consume(200, 0.2) if message.error() is None)
        return is_enough(len(found))

    try:
        wait_until("the group has read enough", enough)
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()


def test_groups_go_on_without_kordon_at_the_record_that_was_next(proxy: ProxyProcess, broker: str) -> None:
    """A topic that has grown is copied under load, by runs that are killed; nothing is lost, doubled or out of order.

    Its group goes on at the broker with the rest: each record comes to it once, on either side.
    """
    admin = create_managed(proxy.bootstrap, "away")
    sender = Sender(proxy.bootstrap, "away")
    sender.send_for(1)
    resize(admin, "away", 6).result(180)
    stop: Future[None] = Future()
    traffic = threading.Thread(target=lambda: sender.send_for(0, stop))
    traffic.start()
    try:
        for _ in range(3):
            kill_midway(proxy, broker, "away", "away-2")
        done(proxy, "away", "away-2")
    finally:
        stop.set_result(None)
        traffic.join()
    sender.finish()
    first = read_some(proxy.bootstrap, "away", "readers", lambda count: count > sender.sent // 3)
    told = done(proxy, "away", "away-2", "--finish", "--yes")
    assert f"away-2 has all {sender.sent:,} records of away" in told
    assert "1 group moved to away-2: readers" in told

    rest = read_some(broker, "away-2", "readers", lambda count: count >= sender.sent - len(first))
    assert_all_once_and_in_order(sender, numbers(first + rest))
    assert_all_once_and_in_order(sender, numbers(read({"bootstrap.servers": broker}, "away-2", sender.sent)))


def kill_midway(proxy: ProxyProcess, broker: str, topic: str, target: str) -> None:
    """Runs a copy, and kills it as soon as it has written something."""
    before = copied(broker, target)
    command = [sys.executable, "-m", "kordon.proxy", "topics", "copy", topic, target]
    with Popen([*command, "--bootstrap", proxy.bootstrap], stdout=DEVNULL, stderr=DEVNULL) as killed:
        wait_until("it has copied something", lambda: copied(broker, target) > before)
        killed.kill()


def test_records_are_copied_as_they_are(proxy: ProxyProcess, broker: str) -> None:
    """Keys, values, headers, times and partitions, whatever the compression; the topic is made like the source."""
    admin = create_managed(proxy.bootstrap, "as-is", configs={"retention.ms": DAYS_MS})
    odd: list[dict[str, object]] = [
        {"key": b"\xff\0", "value": None, "headers": [("h", b"1"), ("h", None)], "timestamp": 1_000_000_000_000},
        {"key": None, "value": b"v" * 400_000, "timestamp": 1_100_000_000_000},
        {"key": b"", "value": b"", "partition": 7},
    ]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        settings = {"bootstrap.servers": proxy.bootstrap, "compression.type": codec, "partitioner": "murmur2"}
        write(settings, "as-is", [*odd, *({"key": f"{n}", "value": f"{codec}-{n}"} for n in range(200))])
    done(proxy, "as-is", "as-is-2")

    def contents(bootstrap: str, topic: str) -> dict[int, list[object]]:
        found: dict[int, list[object]] = {number: [] for number in VIRTUAL}
        for each in read({"bootstrap.servers": bootstrap}, topic, 5 * 203):
            found[each.partition() or 0].append((each.key(), each.value(), each.headers(), each.timestamp()))
        return found

    assert contents(broker, "as-is-2") == contents(proxy.bootstrap, "as-is")
    assert config_of(admin, "as-is-2", "retention.ms") == DAYS_MS
    assert config_of(admin, "as-is-2", "message.timestamp.type") == "CreateTime"


def test_a_copy_follows_what_comes_and_says_how_far_it_is(proxy: ProxyProcess, broker: str) -> None:
    """Run again it copies what is new, and nothing twice; lines are objects for tools."""
    create_managed(proxy.bootstrap, "again")
    for count in (100, 200):
        write({"bootstrap.servers": proxy.bootstrap}, "again", [{"key": f"{n}", "value": "v"} for n in range(100)])
        lines = [json.loads(line) for line in done(proxy, "again", "again-2", "--json").splitlines()]
        assert f"again-2 has all {count} records of again" in lines[-1]["done"]
        assert lines[0]["target"] == "again-2"
        assert {"copied", "to_go", "per_second", "at", "topic", "state"} <= lines[0].keys()
        assert copied(broker, "again-2") == count


def test_the_name_can_be_had_back(proxy: ProxyProcess, broker: str) -> None:
    """The source is deleted, and the copy is copied to its name: an ordinary topic can be copied as well."""
    admin = create_managed(proxy.bootstrap, "name")
    write({"bootstrap.servers": proxy.bootstrap}, "name", [{"key": f"{n}", "value": "v"} for n in range(50)])
    read_some(proxy.bootstrap, "name", "name-readers", lambda count: count >= 50)
    done(proxy, "name", "name-2", "--finish", "--yes")
    admin.delete_topics(["name"])["name"].result(60)
    wait_until("the name is free", lambda: "name" not in admin.list_topics(timeout=60).topics)
    done(proxy, "name-2", "name", "--finish", "--yes", "--group", "name-readers")
    assert copied(broker, "name") == 50
    assert read_ends(broker, "name", "name-readers") == sum_of(watermarks(broker, "name", VIRTUAL))


def test_what_is_in_the_way_is_named_with_its_cure(proxy: ProxyProcess, broker: str) -> None:
    """Nothing is changed then."""
    create_managed(proxy.bootstrap, "way")
    create_managed(proxy.bootstrap, "way-managed")
    create_ordinary(broker, "way-3", 3)
    create_ordinary(broker, "way-used", 12)
    create_ordinary(broker, "way-times", 12, {"message.timestamp.type": "LogAppendTime"})
    write({"bootstrap.servers": broker}, "way-used", [{"value": "of somebody else"}])

    assert "no topic way-nothing" in refused(proxy, "way-nothing", "way-2")
    assert "to itself" in refused(proxy, "way", "way")
    assert "way-managed is managed" in refused(proxy, "way", "way-managed")
    assert "has 3 partitions, and clients see 12" in refused(proxy, "way", "way-3")
    assert "set message.timestamp.type=CreateTime" in refused(proxy, "way", "way-times")
    assert "INVALID_TOPIC: Topic name is invalid: 'way/2'" in refused(proxy, "way", "way/2")
    assert "somebody else has written to way-used" in refused(proxy, "way", "way-used")
    told = CliRunner().invoke(main, ["topics", "copy", "way", "way-2", "--bootstrap", broker])
    assert (told.exit_code, "this is a broker: name a Kordon" in told.stderr) == (1, True)
    told = CliRunner().invoke(main, ["topics", "copy", "way", "way-2", "--bootstrap", "127.0.0.1:9"])
    assert (told.exit_code, "no Kordon answers at" in told.stderr) == (1, True)
    assert "way-2" not in AdminClient({"bootstrap.servers": broker}).list_topics(timeout=60).topics


def test_a_target_that_others_change_is_found_out(proxy: ProxyProcess, broker: str) -> None:
    """Records of others, records that are too large for it, and a target that was deleted."""
    admin = create_managed(proxy.bootstrap, "odd", configs={"max.message.bytes": "900000"})
    done(proxy, "odd", "odd-2")
    settings = {"bootstrap.servers": proxy.bootstrap}
    configure(admin, "odd-2", {"max.message.bytes": "1000"})
    write(settings, "odd", [{"key": "k", "value": "v" * 5_000}])
    assert "MESSAGE_TOO_LARGE; set max.message.bytes of odd-2 to at least that of odd" in refused(proxy, "odd", "odd-2")
    configure(admin, "odd-2", {"max.message.bytes": "900000"})
    assert "has all 1 record of odd" in done(proxy, "odd", "odd-2")

    write({"bootstrap.servers": broker}, "odd-2", [{"key": "k", "value": "of somebody else"}])
    assert "somebody else has written to odd-2" in refused(proxy, "odd", "odd-2")
    admin.delete_topics(["odd-2"])["odd-2"].result(60)
    wait_until("it is gone", lambda: "odd-2" not in admin.list_topics(timeout=60).topics)
    assert "has all 1 record of odd" in done(proxy, "odd", "odd-2")


def test_who_still_works_holds_the_hand_over_up(proxy: ProxyProcess, broker: str) -> None:
    """A group with members, a group that nobody knows, a producer; no place is committed then."""
    create_managed(proxy.bootstrap, "crowded")
    write({"bootstrap.servers": proxy.bootstrap}, "crowded", [{"key": f"{n}", "value": "v"} for n in range(50)])
    read_some(proxy.bootstrap, "crowded", "crowded-readers", lambda count: count >= 50)
    consumer = Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": "crowded-readers"})
    consumer.subscribe(["crowded"])
    try:
        wait_until("it is a member", lambda: consumer.poll(0.2) is None and bool(consumer.assignment()))
        assert "crowded-readers still has members" in refused(proxy, "crowded", "crowded-2", "--finish", "--yes")
        assert "of nobody" in refused(proxy, "crowded", "crowded-2", "--finish", "--yes", "--group", "nobody")
    finally:
        consumer.close()
    sender, stop = Sender(proxy.bootstrap, "crowded"), Future[None]()
    traffic = threading.Thread(target=lambda: sender.send_for(0, stop))
    traffic.start()
    try:
        assert "somebody writes to crowded" in refused(proxy, "crowded", "crowded-2", "--finish", "--yes")
    finally:
        stop.set_result(None)
        traffic.join()
    sender.finish()
    assert read_ends(broker, "crowded-2", "crowded-readers") == 0


def config_of(admin: AdminClient, topic: str, name: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    value: str | None = admin.describe_configs([resource])[resource].result(60)[name].value
    return value


def read_ends(bootstrap: str, topic: str, group: str) -> int:
    """The sum of what a group has committed of a topic."""
    config = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(config)
    try:
        places = consumer.committed([TopicPartition(topic, number) for number in VIRTUAL], timeout=60)
        return sum(max(place.offset, 0) for place in places)
    finally:
        consumer.close()


def sum_of(ends: dict[int, tuple[int, int]]) -> int:
    return sum(end for _, end in ends.values())


@asynccontextmanager
async def copying(proxy: ProxyProcess, source: str, target: str) -> AsyncGenerator[TopicCopy, None]:
    """A copy of which each step can be called."""
    upstream = Upstream(bootstrap=(HostPort.parse(proxy.bootstrap),))
    async with brokers_at(upstream) as brokers:
        yield TopicCopy(brokers, source, target, len(VIRTUAL), most_bytes=2**20, tell=lambda _: None)


def nothing(_: object) -> None:
    """Takes no note of progress."""


def send(bootstrap: str, topic: str, count: int, **more: object) -> None:
    """Writes records with numbers to all partitions."""
    write({"bootstrap.servers": bootstrap}, topic, [{"key": f"{n}", "value": f"{n}", **more} for n in range(count)])


async def test_a_target_that_is_changed_on_the_way_stops_the_copy(proxy: ProxyProcess, broker: str) -> None:
    """A record of somebody else shows by where the next batch lands; a target that is gone is not made again."""
    admin = create_managed(proxy.bootstrap, "meddled")
    create_ordinary(broker, "meddled-2", len(VIRTUAL))
    send(proxy.bootstrap, "meddled", 50)
    async with copying(proxy, "meddled", "meddled-2") as copy:
        await copy.catch_up(nothing)
        send(broker, "meddled-2", 1, partition=7)
        send(proxy.bootstrap, "meddled", 1, partition=7)
        with pytest.raises(CopyStopped, match=r"something else at offset .* leave it as it is"):
            await copy.catch_up(nothing)
        admin.delete_topics(["meddled-2"])["meddled-2"].result(60)
        wait_until("it is gone", lambda: "meddled-2" not in admin.list_topics(timeout=60).topics)
        send(proxy.bootstrap, "meddled", 1, partition=8)
        with pytest.raises(CopyStopped, match="meddled-2 is gone: run this again"):
            await copy.catch_up(nothing)


async def test_a_copy_follows_growths_and_shrinks(
    proxy: ProxyProcess, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Virtual partitions move, and have other leader epochs then: the copy asks anew, and goes on at once."""
    monkeypatch.setattr(topic_copy, "_PATIENCE_SECONDS", 5.0)
    admin = create_managed(proxy.bootstrap, "moving")
    create_ordinary(broker, "moving-2", len(VIRTUAL))
    sender = Sender(proxy.bootstrap, "moving")
    async with copying(proxy, "moving", "moving-2") as copy:
        for partitions in (6, 12, 3):
            sender.send_for(0.3)
            await copy.catch_up(nothing)
            resize(admin, "moving", partitions).result(180)
        sender.send_for(0.3)
        sender.finish()
        await copy.catch_up(nothing)
    assert_all_once_and_in_order(sender, numbers(read({"bootstrap.servers": broker}, "moving-2", sender.sent)))


async def test_what_comes_behind_the_copy_is_not_counted_for_groups(proxy: ProxyProcess, broker: str) -> None:
    """A producer that was not stopped: no group gets a record a second time for it, and the hand-over is refused."""
    create_managed(proxy.bootstrap, "late")
    create_ordinary(broker, "late-2", len(VIRTUAL))
    send(proxy.bootstrap, "late", 50)
    upstream = Upstream(bootstrap=(HostPort.parse(proxy.bootstrap),))
    async with copying(proxy, "late", "late-2") as copy, brokers_at(upstream) as brokers:
        await copy.catch_up(nothing)
        places = {number: part.place for number, part in copy.partitions.items() if part.place.written}
        last = {number: place.begin - 1 for number, place in places.items()}
        send(proxy.bootstrap, "late", 50)
        handover = copy_handover.Handover(brokers, "late", "late-2", len(VIRTUAL))
        moved = await handover.places({"a-group": last}, copy.partitions)
        assert moved == {"a-group": {number: place.written - 1 for number, place in places.items()}}
        with pytest.raises(CopyStopped, match="somebody writes to late"):
            await copy.check_ends()


async def test_a_source_that_is_gone_is_no_other_one(
    proxy: ProxyProcess, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy may be all that is left: nobody is told to begin anew. Of one that is made again it is no copy."""
    monkeypatch.setattr(topic_copy, "_PATIENCE_SECONDS", 1.0)
    admin = create_managed(proxy.bootstrap, "left")
    create_ordinary(broker, "left-2", len(VIRTUAL))
    send(proxy.bootstrap, "left", 50)
    async with copying(proxy, "left", "left-2") as copy:
        await copy.catch_up(nothing)
        admin.delete_topics(["left"])["left"].result(60)
        wait_until("it is gone", lambda: "left" not in admin.list_topics(timeout=60).topics)
        with pytest.raises(UpstreamUnavailable, match="left"):
            await copy.catch_up(nothing)
    create_managed(proxy.bootstrap, "left")
    assert "left-2 is the copy of another left" in await asyncio.to_thread(refused, proxy, "left", "left-2")
    assert copied(broker, "left-2") == 50


async def test_two_copies_at_once_double_nothing(proxy: ProxyProcess, broker: str) -> None:
    """Whatever each of them does: what the one has written, the broker does not take from the other."""
    create_managed(proxy.bootstrap, "twice")
    create_ordinary(broker, "twice-2", len(VIRTUAL))
    async with copying(proxy, "twice", "twice-2") as one, copying(proxy, "twice", "twice-2") as other:
        await one.catch_up(nothing)
        await other.catch_up(nothing)
        send(proxy.bootstrap, "twice", 500)
        outcomes = await asyncio.gather(one.catch_up(nothing), other.catch_up(nothing), return_exceptions=True)
    assert all(outcome is None or isinstance(outcome, CopyStopped) for outcome in outcomes), outcomes
    async with copying(proxy, "twice", "twice-2") as last:  # each may have stopped at a partition of the other's
        await last.catch_up(nothing)
    found = [message.value() for message in read({"bootstrap.servers": broker}, "twice-2", 500)]
    assert len(found) == len(set(found)) == 500


async def test_a_kordon_that_goes_is_waited_for(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a minute; then the copy ends with the reason, and nothing is lost by that."""
    with ProxyProcess.start(broker) as other:
        create_managed(other.bootstrap, "gone")
        create_ordinary(broker, "gone-2", len(VIRTUAL))
        send(other.bootstrap, "gone", 50)
        async with copying(other, "gone", "gone-2") as copy:
            await copy.catch_up(nothing)
            other.kill()
            monkeypatch.setattr(topic_copy, "_PATIENCE_SECONDS", 1.0)
            with pytest.raises(UpstreamUnavailable, match="connect call failed"):
                await copy.catch_up(nothing)


def test_what_retention_takes_is_passed(proxy: ProxyProcess, broker: str) -> None:
    """Before it is copied, or before a group has read it: the group goes on at what is left."""
    admin = create_managed(proxy.bootstrap, "aged")
    send(proxy.bootstrap, "aged", 100)
    read_some(proxy.bootstrap, "aged", "late-readers", lambda count: count >= 100)
    done(proxy, "aged", "aged-2")
    send(proxy.bootstrap, "aged", 60)
    ends = {number: end for number, (_, end) in watermarks(proxy.bootstrap, "aged", VIRTUAL).items()}
    deleted = [TopicPartition("aged", number, end) for number, end in ends.items()]
    for each in admin.delete_records(deleted).values():
        each.result(60)
    send(proxy.bootstrap, "aged", 40)
    done(proxy, "aged", "aged-2", "--finish", "--yes")
    assert copied(broker, "aged-2") == 140
    assert len(read_some(broker, "aged-2", "late-readers", lambda count: count >= 40)) == 40


def test_groups_of_compacted_topics_have_to_have_read_all(proxy: ProxyProcess, broker: str) -> None:
    """What compaction takes in between nobody can count."""
    create_managed(proxy.bootstrap, "prices", configs={"cleanup.policy": "compact", "kordon.janitor": "true"})
    send(proxy.bootstrap, "prices", 30)
    read_some(proxy.bootstrap, "prices", "price-readers", lambda count: count >= 30)
    send(proxy.bootstrap, "prices", 30)
    assert "price-readers has not read all" in refused(proxy, "prices", "prices-2", "--finish", "--yes")
    read_some(proxy.bootstrap, "prices", "price-readers", lambda count: count >= 30)
    assert "1 group moved to prices-2" in done(proxy, "prices", "prices-2", "--finish", "--yes")
    assert read_ends(broker, "prices-2", "price-readers") == copied(broker, "prices-2") == 60


def test_who_lacks_a_right_is_told_which(strict_cluster: Secured, tmp_path: Path) -> None:
    """One after the other, until the copy works."""
    kordon, topic, target = strict_cluster.kordon, "guarded-copy", "guarded-copy-2"
    strict_cluster.allow(Allowed("kordon", AclOperation.ALL, topic))
    create_managed(kordon.bootstrap, topic, login("admin"))
    write({"bootstrap.servers": kordon.bootstrap, **login("admin")}, topic, [{"key": "k", "value": "v"}])
    strict_cluster.operator.create_topics([NewTopic(target, len(VIRTUAL), 1)])[target].result(60)
    password = tmp_path / "password"
    password.write_text(USERS["alice"])
    user = ("--username", "alice", "--sasl-mechanism", "PLAIN", "--password-file", str(password))

    def told(*arguments: str) -> str:
        return run(kordon, topic, target, *user, *arguments).output.splitlines()[-1]

    assert f"no topic {topic} that may be seen" in told() or "TOPIC_AUTHORIZATION_FAILED" in told()
    for operation in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
        strict_cluster.allow(*(Allowed("alice", operation, each) for each in (topic, target)))
    assert "needs READ on the group kordon-copy-guarded-copy-2" in told()
    strict_cluster.allow(Allowed("alice", AclOperation.READ, f"kordon-copy-{target}", ResourceType.GROUP))
    assert f"READ, WRITE and DESCRIBE on {target}" in told()
    strict_cluster.allow(Allowed("alice", AclOperation.READ, target), Allowed("alice", AclOperation.READ, topic))
    assert f"READ, WRITE and DESCRIBE on {target}" in told()
    strict_cluster.allow(Allowed("alice", AclOperation.WRITE, target))
    assert "has all 1 record of guarded-copy" in told()
