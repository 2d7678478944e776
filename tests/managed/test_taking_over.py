"""Topics with data come under management on a real broker, while real clients write and read (TAKEOVER-WAITS)."""

import time
from collections.abc import Iterable

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import ConfigResource, ResourceType  # pyright: ignore[reportPrivateImportUsage]

from kordon.proxy.commands.cli import main
from kordon.testing.broker_features import NEW_GROUPS
from kordon.testing.managed_clients import (
    Sender,
    assert_all_once_and_in_order,
    create_ordinary,
    manage,
    read_all,
    resize,
)
from kordon.testing.order.findings import Anomaly
from kordon.testing.order.processes import GROUPS
from kordon.testing.order.run import Action, Plan, Run
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


def is_taken_over(proxy: ProxyProcess, topic: str) -> bool:
    """Whether nothing of a takeover is left to do."""
    return not proxy.topic(topic)["held"]


def kordon_topics(*arguments: str) -> Result:
    """`kordon topics …`."""
    return CliRunner().invoke(main, ["topics", *arguments], catch_exceptions=False)


@pytest.mark.parametrize("takeover", ["online", pytest.param("delivering", marks=pytest.mark.deep)])
@pytest.mark.skipif(NEW_GROUPS.is_missing, reason=NEW_GROUPS.reason)
def test_no_client_notices_that_its_topic_is_taken_over_and_grown(proxies: list[ProxyProcess], takeover: str) -> None:
    """Java, librdkafka (another hash) and aiokafka write, three kinds of groups read: the checker finds nothing."""
    topic = f"taken-over-{takeover}"
    admin = create_ordinary(proxies[0].bootstrap, topic)

    def take_over() -> None:
        manage(admin, topic, takeover, transition_ms="3000").result(60)

    def grow() -> None:
        wait_until("all is taken over", lambda: is_taken_over(proxies[0], topic), 60)
        resize(admin, topic, 6).result(60)

    plan = Plan(
        [proxy.bootstrap for proxy in proxies],
        topic,
        seconds=12,
        rate=300,
        churn_seconds=0,
        actions=[Action(2, "take over", take_over), Action(7, "grow", grow)],
    )
    outcome = Run(plan, lambda partitions: None).run()
    assert outcome.problems == []
    found = outcome.verdict.findings.found()
    if takeover == "delivering":  # producers are told of a new partition, and readers get it in an old one
        found.discard(Anomaly.INCONSISTENT_OFFSETS)
    assert not found, str(outcome.verdict.findings)
    assert {outcome.verdict.accounts[group].records for group in GROUPS} == {outcome.verdict.accounts["writes"].records}
    assert (proxies[0].topic(topic)["layout_epoch"], proxies[0].topic(topic)["undeleted_partition_count"]) == (3, 6)


def test_what_is_quiesced_is_taken_over_at_once_and_what_is_not_stays_as_it_was(proxies: list[ProxyProcess]) -> None:
    """A group keeps its place: what it had read does not come again, what it had not comes before what is new."""
    topic, other = "quiesced", "busy"
    admin = create_ordinary(proxies[0].bootstrap, topic)
    create_ordinary(proxies[0].bootstrap, other)
    sender, busy = Sender(proxies[0].bootstrap, topic), Sender(proxies[0].bootstrap, other)
    for each in (sender, busy):
        each.send_for(0.3)
        each.finish()
    group = Reader(proxies[1].bootstrap, topic, "midway")
    before = group.read(sender.sent // 3)
    written_before = sender.sent

    done, refused = (manage(admin, name, "quiesced") for name in (topic, other))
    busy.send_for(0.1, refused)
    assert "somebody writes to busy" in str(refused.exception(60))
    busy.finish()
    assert len(admin.list_topics(other, timeout=60).topics[other].partitions) == 3
    busy.assert_read_by(proxies[0].bootstrap)

    done.result(60)
    wait_until("the group is waited for", lambda: "group midway" in str(proxies[0].topic(topic)["held"]))
    sender.send_for(0.3)
    sender.finish()
    assert not is_taken_over(proxies[0], topic)
    got = before + group.read(sender.sent - len(before))
    assert_all_once_and_in_order(sender, got)
    group.close()
    wait_until("all is taken over", lambda: is_taken_over(proxies[0], topic))
    again = read_all(proxies[1].bootstrap, topic, sender.sent)  # reads old and new partitions side by side (PAST-STAYS)
    assert sorted(again) == sorted(got)
    assert is_in_order(each for each in again if each[1] < written_before)
    assert is_in_order(each for each in again if each[1] >= written_before)


def is_in_order(records: Iterable[tuple[bytes, int]]) -> bool:
    """Whether the numbers of each key rise."""
    last: dict[bytes, int] = {}
    for key, number in records:
        if number <= last.get(key, -1):
            return False
        last[key] = number
    return True


def test_a_group_that_nobody_reads_by_any_more_is_left_out(proxies: list[ProxyProcess]) -> None:
    """Until then it holds back what v >= N gets; producers that choose partitions themselves keep their choice."""
    topic = "left-behind"
    bootstrap = proxies[0].bootstrap
    admin = create_ordinary(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(30):
        producer.produce(topic, str(number), partition=number % 3)
    producer.flush(90)
    dead = Reader(bootstrap, topic, "dead")
    dead.read(1)
    dead.close()
    manage(admin, topic, transition_ms="0").result(60)
    wait_until("the group is waited for", lambda: "group dead" in str(proxies[0].topic(topic)["held"]))
    waits = "being taken over: waits for 1 group: dead has 29 records to go"
    told = [waits] * len(proxies)  # whichever leads
    wait_until("it is said how far the group is", lambda: [each.topic(topic)["state"] for each in proxies] == told)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    assert admin.describe_configs([resource])[resource].result(60)["kordon.state"].value == waits
    error = resize(admin, topic, 6).exception(60)
    assert "REASSIGNMENT_IN_PROGRESS" in str(error)

    result = kordon_topics("leave-out", topic, "dead", "--bootstrap", bootstrap)
    assert result.exit_code == 0, result.output
    wait_until("all is taken over", lambda: is_taken_over(proxies[1], topic))
    wait_until("all is settled", lambda: proxies[1].topic(topic)["state"] == "serving 3 of 12, settled")
    chooser = Producer({"bootstrap.servers": bootstrap})
    chooser.produce(topic, "30", partition=11)
    chooser.flush(90)
    reader = Reader(bootstrap, topic, "new")
    numbers = sorted(number for _, number in reader.read(31))
    reader.close()
    assert numbers == list(range(31))


def test_records_are_delivered_while_their_topic_is_taken_over(proxies: list[ProxyProcess]) -> None:
    """A producer that knows V writes to all V partitions; a group gets all of it in the old ones (TAKEOVER-SHARES)."""
    topic, bootstrap = "delivering", proxies[0].bootstrap
    admin = create_ordinary(bootstrap, topic)
    sender = Sender(bootstrap, topic)
    sender.send_for(0.3)
    sender.finish()
    manage(admin, topic, "delivering", transition_ms="3600000").result(60)
    wait_until(
        "all partitions are seen", lambda: len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 12
    )
    group = Reader(proxies[1].bootstrap, topic, "while")
    late = Sender(bootstrap, topic)
    late.send_for(1.0)
    late.finish()
    got = group.read(sender.sent + late.sent)
    group.close()
    assert group.partitions == {0, 1, 2}
    assert sorted(got) == sorted([*sender.acknowledged, *late.acknowledged])
    held = proxies[0].topic(topic)["held"]
    assert [each["virtual_partitions"] for each in held] == [list(range(3, 12))]
    assert held[0]["why"].startswith("delivered as virtual partition v mod 3 until ")


def test_group_that_is_far_behind_delays_the_cut_and_nobody_s_records(proxies: list[ProxyProcess]) -> None:
    """It is named; once it has read, the new partitions are delivered, and the topic can grow (TAKEOVER-SHARES)."""
    topic, bootstrap = "far-behind", proxies[0].bootstrap
    admin = create_ordinary(bootstrap, topic)
    behind = Reader(bootstrap, topic, "nightly")
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(10_100):
        producer.produce(topic, str(number), key="one")
    assert not producer.flush(60)
    behind.read(10)
    manage(admin, topic, "delivering", transition_ms="0").result(60)
    wait_until("the group is named", lambda: "group nightly" in str(proxies[0].topic(topic)["held"]))
    assert proxies[0].topic(topic)["epochs"][-1]["placement"] == "shared"
    behind.read(10_090)
    wait_until("all is taken over", lambda: is_taken_over(proxies[0], topic))
    resize(admin, topic, 6).result(60)
    producer.produce(topic, "10100", key="one")
    assert not producer.flush(60)
    assert [number for _, number in behind.read(1)] == [10_100]
    behind.close()


class Reader:
    """A group of one member that reads some records and commits each of them."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 1000} | settings
        )
        self._consumer.subscribe([topic])
        self.partitions: set[int | None] = set()

    def read(self, count: int) -> list[tuple[bytes, int]]:
        """Reads so many records, and commits them as it goes."""
        got: list[tuple[bytes, int]] = []
        deadline = time.monotonic() + 60
        while len(got) < count:
            assert time.monotonic() < deadline, f"{len(got)} of {count} came"
            messages = self._consumer.consume(min(count - len(got), 200), 0.5)
            for message in messages:
                assert message.error() is None, message.error()
                got.append((message.key() or b"", int(message.value() or b"-1")))
                self.partitions.add(message.partition())
            if messages:  # what it has read before may be of partitions that it has no longer
                self._consumer.commit(asynchronous=False)
        return got

    def close(self) -> None:
        self._consumer.close()
