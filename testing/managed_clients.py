"""Simple real clients of managed topics for tests: one that numbers what it writes, one that reads all."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from kordon.testing.waiting import wait_until

# confluent_kafka.admin re-exports these without saying so.
# pyright: reportPrivateImportUsage=false

TAKES: Final = {"ordering": {"transactions": True}}
"""The config of a proxy that takes transactions."""
KEYS: Final = 50
VIRTUAL_PARTITIONS: Final = 12
CHANGE_SECONDS: Final = 180.0
"""For a change of partitions, which may wait out a session and a lease; Kordon says itself when it takes too long."""
_PATIENCE_SECONDS: Final = 90.0
_AT_ONCE: Final = 10
_PAUSE_SECONDS: Final = 0.02
"""Between as many records: always some are under way, and a machine of two cores is not busy with them."""
_LEAST_EACH_SECOND: Final = 200
_BY_KEY: Final = -1
"""The partition that has librdkafka ask its partitioner."""


def create_managed(
    bootstrap: str,
    topic: str,
    settings: Mapping[str, str] | None = None,
    *,
    replicas: int = 1,
    configs: Mapping[str, str] | None = None,
) -> AdminClient:
    """Creates a managed topic with 3 partitions and 12 virtual ones, as any admin client does; returns the client.

    Args:
        settings: Further ones of the client, such as `ssl.ca.location`.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, **(settings or {})})
    config = {"kordon.virtual.partitions": str(VIRTUAL_PARTITIONS), **(configs or {})}
    admin.create_topics([NewTopic(topic, 3, replicas, config=config)])[topic].result(60)
    return admin


def create_ordinary(
    bootstrap: str, topic: str, partitions: int = 3, config: dict[str, str] | None = None
) -> AdminClient:
    """Creates a topic as it is asked for, by a client that it returns; its broker tells of it then."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])[topic].result(60)
    wait_told_of(admin, topic)
    return admin


def wait_told_of(admin: AdminClient, topic: str) -> None:
    """Waits until a broker tells of a new topic: with KRaft it does a moment after the controller has answered."""
    wait_until(f"{topic} is told of", lambda: topic in admin.list_topics(timeout=60).topics)


def manage(admin: AdminClient, topic: str, takeover: str = "", **how: str) -> Future[Any]:
    """Has a topic that there is already managed with 12 virtual partitions, by any admin client's means.

    Args:
        takeover: What `kordon.takeover` is set to; "": nothing.
        how: What is set beside it: `transition_ms="0"` for `kordon.takeover.transition.ms=0`.
    """
    values = {"kordon.virtual.partitions": str(VIRTUAL_PARTITIONS)} | (
        {"kordon.takeover": takeover} if takeover else {}
    )
    values |= {f"kordon.takeover.{name.replace('_', '.')}": value for name, value in how.items()}
    return set_configs(admin, topic, values)


def set_configs(admin: AdminClient, topic: str, values: Mapping[str, str]) -> Future[Any]:
    """Sets some configs of a topic and leaves the others."""
    set_ = AlterConfigOpType.SET
    entries = [ConfigEntry(name, value, incremental_operation=set_) for name, value in values.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    done: Future[Any] = admin.incremental_alter_configs([resource], request_timeout=80)[resource]
    return done


def configure(admin: AdminClient, topic: str, values: Mapping[str, str]) -> None:
    """Sets configs of a topic, and waits until a broker tells of them: with KRaft it goes by them a moment later."""
    set_configs(admin, topic, values).result(60)
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def told() -> bool:
        found = admin.describe_configs([resource], request_timeout=60)[resource].result(60)
        return all(found[name].value == value for name, value in values.items())

    wait_until(f"{values} of {topic} are told", told)


def resize(admin: AdminClient, topic: str, partitions: int) -> Future[None]:
    """Begins to change a topic's number of partitions.

    librdkafka waits for an answer as long as the broker is to take, and a minute where nothing is said: just so long
    that it misses what Kordon answers after a minute.
    """
    wanted = [NewPartitions(topic, partitions)]
    done = admin.create_partitions(wanted, operation_timeout=CHANGE_SECONDS, request_timeout=CHANGE_SECONDS)
    changed: Future[None] = done[topic]
    return changed


@dataclass
class Sender:
    """An idempotent librdkafka producer that numbers its records, and keeps what was acknowledged."""

    bootstrap: str
    topic: str
    partitions: Sequence[int] = ()
    """Where it writes; by default where its partitioner puts each key."""
    sent: int = 0
    acknowledged: list[tuple[bytes, int]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    longest_pause_seconds: float = 0.0
    """Between two acknowledgements."""

    def __post_init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._last = time.monotonic()

    def send_for(self, seconds: float, until: Future[None] | None = None) -> None:
        """Sends a few hundred records a second for so long, and until something else is done.

        A machine that stalls meanwhile sends for longer, so that there are always 200 for each second.
        """
        end, least = time.monotonic() + seconds, self.sent + _LEAST_EACH_SECOND * seconds
        while time.monotonic() < end or self.sent < least or not (until is None or until.done()):
            assert time.monotonic() < end + _PATIENCE_SECONDS, "what was waited for did not happen"
            for _ in range(_AT_ONCE):
                self._send()
            next_round = time.monotonic() + _PAUSE_SECONDS
            while (left := next_round - time.monotonic()) > 0:
                self._producer.poll(left)

    def finish(self) -> None:
        """Waits for the last acknowledgement; everything must have got one."""
        assert self._producer.flush(_PATIENCE_SECONDS) == 0
        assert self.errors == []
        assert len(self.acknowledged) == self.sent

    @classmethod
    def sent_for(cls, seconds: float, bootstrap: str, topic: str, **more: Any) -> Self:
        """Sends for so long; returns when all is acknowledged."""
        sender = cls(bootstrap, topic, **more)
        sender.send_for(seconds)
        sender.finish()
        return sender

    def assert_read_by(self, bootstrap: str) -> None:
        """Reads all that the topic has, and holds it against what was acknowledged."""
        assert_all_once_and_in_order(self, read_all(bootstrap, self.topic, self.sent))

    def close(self) -> None:
        """Ends the client, which else goes on dialling when its proxy has gone; what has no answer is dropped."""
        self._producer.purge()
        self._producer.close()

    def _send(self) -> None:
        key, partition, number = f"key-{self.sent % KEYS}", _BY_KEY, self.sent
        if self.partitions:
            partition = self.partitions[number % len(self.partitions)]
            key = f"key-of-{partition}"
        self._producer.produce(self.topic, str(number), key, partition, on_delivery=self._delivered)
        self.sent += 1

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        now = time.monotonic()
        self.longest_pause_seconds = max(self.longest_pause_seconds, now - self._last)
        self._last = now
        self.acknowledged.append((message.key(), int(message.value())))


def write(settings: Mapping[str, Any], topic: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Writes records to a topic; returns when all are acknowledged.

    Args:
        settings: Of the client.
        topic: Its name.
        records: What librdkafka is told of each, such as its key, value and partition.
    """
    refused: list[str] = []

    def answered(error: Any, _: Any) -> None:
        if error is not None:
            refused.append(str(error))

    producer = Producer({**settings, "on_delivery": answered})
    for record in records:
        producer.produce(topic, **record)
        producer.poll(0)
    assert producer.flush(_PATIENCE_SECONDS) == 0
    assert refused == []


def read(settings: Mapping[str, Any], topic: str, count: int, *, commits: bool = False) -> list[Message]:
    """Reads a topic until `count` records are there and nothing more comes.

    Args:
        settings: Of the client; without a group's id it is of a new one, which reads from the beginning.
        topic: Its name.
        count: How many records are waited for.
        commits: Whether the group's place is kept.
    """
    config = {"group.id": f"group-{time.time_ns()}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**config, **settings})
    consumer.subscribe([topic])
    got: list[Message] = []
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        messages = consumer.consume(1000, 1.0)  # longer than a fetch waits: the last of it says that there is no more
        if not messages and len(got) >= count:
            break
        assert not [message.error() for message in messages if message.error() is not None]
        got += messages
    if commits:
        consumer.commit(asynchronous=False)
    consumer.close()
    return got


def read_all(bootstrap: str, topic: str, count: int) -> list[tuple[bytes, int]]:
    """Reads a topic from its beginning as a new group; returns keys and numbers."""
    messages = read({"bootstrap.servers": bootstrap}, topic, count)
    return [(message.key() or b"", int(message.value() or b"-1")) for message in messages]


def read_to_ends(
    settings: Mapping[str, Any],
    topic: str,
    partitions: Iterable[int] | None = None,
    ends: Mapping[int, int] | None = None,
) -> list[Message]:
    """Reads what stands in a topic now; the records of one partition come in their order.

    Args:
        settings: Of the client.
        topic: Its name.
        partitions: Those to be read; all by default.
        ends: Of partitions that are written to all the while, so that their ends are never met: where reading ends.
    """
    config = {"group.id": f"group-{time.time_ns()}", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**config, **settings})
    try:
        unread = set(consumer.list_topics(topic, 60).topics[topic].partitions if partitions is None else partitions)
        consumer.assign([TopicPartition(topic, q, OFFSET_BEGINNING) for q in unread])
        found: list[Message] = []
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while unread:
            assert time.monotonic() < deadline, f"{topic}: partitions {sorted(unread)} could not be read to their end"
            for message in consumer.consume(5_000, 0.5):
                error = message.error()
                if error is None:
                    found.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                q = message.partition() or 0
                if error is not None or (ends and (message.offset() or 0) >= ends[q] - 1):
                    unread.discard(q)
        return found
    finally:
        consumer.close()


def watermarks(bootstrap: str, topic: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Returns the first offset and the end of each of these partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watermarks"})
    found = {q: consumer.get_watermark_offsets(TopicPartition(topic, q), timeout=60) for q in partitions}
    consumer.close()
    return found


def committed(bootstrap: str, group: str) -> dict[int, int]:
    """Returns what a group has committed of its topic, by partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    told = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    return {each.partition: each.offset for each in told.topic_partitions or () if each.offset >= 0}


def alter_commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Resets partition 0 of a group without members, as kafka-consumer-groups --reset-offsets does."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
    admin.alter_consumer_group_offsets([wanted])[group].result(60)


def lags(bootstrap: str, topic: str, group: str) -> dict[int, int]:
    """Returns what a group has left to read of each partition, as exporters reckon it."""
    offsets = committed(bootstrap, group)
    return {q: end - offsets[q] for q, (_, end) in watermarks(bootstrap, topic, offsets).items()}


def assert_all_once_and_in_order(sender: Sender, got: list[tuple[bytes, int]]) -> None:
    """Holds what was read against what was acknowledged: nothing is lost, doubled or out of order."""
    assert set(sender.acknowledged) - set(got) == set(), "lost"
    assert len(got) == len(set(got)), "doubled"
    for key in {key for key, _ in got}:
        numbers = [number for each, number in got if each == key]
        assert numbers == sorted(numbers), f"out of order: {key!r}"
