"""`kordon topics copy` as an operator uses it: through a proxy in front of a real broker, away from it in the end."""

import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from subprocess import DEVNULL, Popen

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import (  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from kordon.proxy.commands import copy_run
from kordon.proxy.commands.cli import main
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import (
    Sender,
    assert_all_once_and_in_order,
    create_managed,
    create_ordinary,
    read,
    resize,
    set_configs,
    watermarks,
    write,
)
from kordon.testing.proxy_process import ProxyProcess
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
    set_configs(admin, "odd-2", {"max.message.bytes": "1000"}).result(60)
    write(settings, "odd", [{"key": "k", "value": "v" * 5_000}])
    assert "MESSAGE_TOO_LARGE; set max.message.bytes of odd-2 to at least that of odd" in refused(proxy, "odd", "odd-2")
    set_configs(admin, "odd-2", {"max.message.bytes": "900000"}).result(60)
    assert "has all 1 record of odd" in done(proxy, "odd", "odd-2")

    write({"bootstrap.servers": broker}, "odd-2", [{"key": "k", "value": "of somebody else"}])
    assert "somebody else has written to odd-2" in refused(proxy, "odd", "odd-2")
    admin.delete_topics(["odd-2"])["odd-2"].result(60)
    wait_until("it is gone", lambda: "odd-2" not in admin.list_topics(timeout=60).topics)
    assert "has all 1 record of odd" in done(proxy, "odd", "odd-2")


def test_who_still_works_holds_the_hand_over_up(proxy: ProxyProcess, broker: str) -> None:
    """A group with members, a group that nobody knows, a producer; no place is committed then."""
    create_managed(proxy.bootstrap, "busy")
    write({"bootstrap.servers": proxy.bootstrap}, "busy", [{"key": f"{n}", "value": "v"} for n in range(50)])
    read_some(proxy.bootstrap, "busy", "busy-readers", lambda count: count >= 50)
    consumer = Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": "busy-readers"})
    consumer.subscribe(["busy"])
    try:
        wait_until("it is a member", lambda: consumer.poll(0.2) is None and bool(consumer.assignment()))
        assert "busy-readers still has members" in refused(proxy, "busy", "busy-2", "--finish", "--yes")
        assert "of nobody" in refused(proxy, "busy", "busy-2", "--finish", "--yes", "--group", "nobody")
    finally:
        consumer.close()
    sender, stop = Sender(proxy.bootstrap, "busy"), Future[None]()
    traffic = threading.Thread(target=lambda: sender.send_for(0, stop))
    traffic.start()
    try:
        assert "somebody writes to busy" in refused(proxy, "busy", "busy-2", "--finish", "--yes")
    finally:
        stop.set_result(None)
        traffic.join()
    sender.finish()
    assert read_ends(broker, "busy-2", "busy-readers") == 0


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
