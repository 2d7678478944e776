"""What librdkafka (confluent-kafka) is asked to do."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from kordon.testing.steps import CODECS, KEEP, TIMESTAMP_MS, Script, in_order, records
from kordon.testing.waiting import SECONDS, wait_until

NOT_YET_THERE = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
SILENCE_SECONDS = 5.0
"""After which a client that says nothing is taken to go on so: librdkafka waits for ever for a topic to be made."""
HEADERS = [("kind", b"test"), ("empty", b""), ("none", None)]


def one(futures: dict[Any, Future[Any]]) -> Any:
    """Waits for the only answer of an admin call."""
    (future,) = futures.values()
    return future.result(60)


class Librdkafka:
    """The script's steps, by subject."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.step = script.step
        self.name = script.name
        self.common = {
            "bootstrap.servers": script.bootstrap,
            "topic.metadata.refresh.interval.ms": 500,
            "topic.metadata.propagation.max.ms": 1000,
        }
        self.admin = AdminClient(self.common)

    def run(self) -> None:
        self.topics()
        self.configs()
        self.acls()
        self.produce()
        self.transactions()
        self.groups()
        self.errors()
        self.listings()

    def create(self, what: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        """Creates a topic and waits until it can be used."""
        topic = self.name(what)
        one(self.admin.create_topics([NewTopic(topic, partitions, 1, config=KEEP | (config or {}))]))
        wait_until(topic, lambda: self.admin.list_topics(topic, 60).topics[topic].error is None)
        for partition in range(partitions):
            self.wait_for_end(topic, partition, 0)  # known is not yet led, and what comes too early with acks=0 is lost
        return topic

    def topics(self) -> None:
        topic = self.name("made")
        create = self.admin.create_topics
        self.step("create topic", lambda: one(create([NewTopic(topic, 2, 1, config=KEEP)])))
        wait_until(topic, lambda: self.admin.list_topics(topic, 60).topics[topic].error is None)
        self.step("create it again", lambda: one(create([NewTopic(topic, 2, 1)])))
        self.step("invalid config", lambda: one(create([NewTopic(self.name("x"), 1, 1, config={"no.such": "1"})])))
        self.step("validate only", lambda: one(create([NewTopic(self.name("y"), 1, 1)], validate_only=True)))
        self.step("too many replicas", lambda: one(create([NewTopic(self.name("z"), 1, 9)])))
        self.step("grow", lambda: one(self.admin.create_partitions([NewPartitions(topic, 3)])))
        self.step("shrink", lambda: one(self.admin.create_partitions([NewPartitions(topic, 1)])))
        wait_until("3 partitions", lambda: len(self.admin.list_topics(topic, 60).topics[topic].partitions) == 3)
        self.step("describe topic", self.describe, topic)
        self.step("describe unknown topic", self.describe, self.name("nowhere"))
        gone = self.create("gone")
        self.step("delete topic", lambda: one(self.admin.delete_topics([gone])))
        self.step("delete unknown topic", lambda: one(self.admin.delete_topics([self.name("nowhere")])))

    def describe(self, topic: str) -> object:
        """Describes a topic by DescribeTopics or Metadata."""
        found = one(self.admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True))
        return {
            "name": found.name,
            "internal": found.is_internal,
            "operations": sorted(operation.name for operation in found.authorized_operations),
            "partitions": [
                (p.id, str(p.leader), [str(n) for n in p.replicas], [str(n) for n in p.isr]) for p in found.partitions
            ],
        }

    def configs(self) -> None:
        """Changes and reads configs of topics and brokers."""
        topic = self.create("config")

        def alter(name: str, value: str) -> object:
            entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
            return one(self.admin.incremental_alter_configs([resource]))

        def describe(kind: ConfigResource.Type, name: str) -> object:
            found = one(self.admin.describe_configs([ConfigResource(kind, name)]))
            return {entry.name: (entry.value, entry.source, entry.is_read_only) for entry in found.values()}

        self.step("alter config", lambda: alter("max.message.bytes", "2000"))
        self.step("alter to nonsense", lambda: alter("max.message.bytes", "many"))
        wait_until("the config", lambda: "'2000'" in str(describe(ConfigResource.Type.TOPIC, topic)))
        self.step("topic config", lambda: describe(ConfigResource.Type.TOPIC, topic))
        self.step("unknown topic's config", lambda: describe(ConfigResource.Type.TOPIC, self.name("nowhere")))
        self.step("broker config", lambda: describe(ConfigResource.Type.BROKER, "1"))

    def acls(self) -> None:
        allow = ("User:somebody", "*", AclOperation.READ, AclPermissionType.ALLOW)
        binding = AclBinding(ResourceType.TOPIC, self.name("acl"), ResourcePatternType.LITERAL, *allow)
        pattern = AclBindingFilter(ResourceType.TOPIC, self.name("acl"), ResourcePatternType.ANY, None, None,
                                   AclOperation.ANY, AclPermissionType.ANY)  # fmt: skip
        self.step("add ACL", lambda: one(self.admin.create_acls([binding])))
        wait_until("the rule", lambda: self.admin.describe_acls(pattern).result(60))
        self.step("list ACLs", lambda: in_order(map(str, self.admin.describe_acls(pattern).result(60))))
        self.step("remove ACLs", lambda: in_order(map(str, one(self.admin.delete_acls([pattern])))))

    def send(self, producer: Producer, topic: str, partition: int, count: int = 5) -> list[object]:
        """Sends records in one batch and waits for what became of each.

        One batch takes a producer that knows the topic before its first record, and that is not flushed: either has
        librdkafka send what is queued at that moment.
        """
        reports: list[object] = []
        producer.list_topics(topic, 10)

        def report(error: KafkaError | None, message: Message) -> None:
            reports.append((message.partition(), message.offset(), error.name() if error else None))

        for key, value in records(topic, count):
            producer.produce(topic, value, key, partition, on_delivery=report, timestamp=TIMESTAMP_MS, headers=HEADERS)

        def all_reported() -> bool:
            producer.poll(0.1)
            return len(reports) == count

        wait_until("the reports", all_reported)
        return reports

    def produce(self) -> None:
        """Writes with each codec and each acks, and reads all of it."""
        topic = self.create("codecs", 3 * len(CODECS))
        for number, codec in enumerate(CODECS):
            for place, acks in enumerate(("0", "1", "all")):
                config = {"compression.type": codec, "acks": acks, "linger.ms": 300}
                producer = Producer(self.common | config)
                self.step(f"produce {codec} acks={acks}", self.send, producer, topic, 3 * number + place)
                # Closing a socket at once can take back what an acks=0 producer has just written.
                self.wait_for_end(topic, 3 * number + place, 5)
        idempotent = Producer({**self.common, "enable.idempotence": True, "linger.ms": 300})
        once = self.create("once")
        self.step("produce idempotently", self.send, idempotent, once, 0, 20)
        self.step("read codecs", self.read, topic, 15 * 5)
        self.step("read once", self.read, once, 20)

    def read(self, topic: str, count: int, **config: str) -> list[object]:
        """Reads all partitions from the beginning, without a group."""
        consumer = Consumer(
            {**self.common, "group.id": self.name("none"), "auto.offset.reset": "error", "enable.auto.commit": False}
            | config
        )
        try:
            partitions = consumer.list_topics(topic, 10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            return self.poll(consumer, count)
        finally:
            consumer.close()

    def poll(self, consumer: Consumer, count: int, seconds: float = SECONDS) -> list[object]:
        """Takes records until there are enough, then looks that no more come."""
        found: list[object] = []

        def poll() -> bool:
            message = consumer.poll(0.5)
            if message is None:
                return len(found) >= count
            if message.error():
                raise KafkaException(message.error())
            found.append((message.partition(), message.offset(), message.key(), message.value(), message.headers(),
                          message.timestamp()))  # fmt: skip
            return False

        wait_until(f"{count} records", poll, seconds)
        return in_order(found)

    def transactions(self) -> None:
        """Commits, aborts, commits offsets with records, and is fenced."""
        topic = self.create("tx")
        config = {**self.common, "transactional.id": self.name("tx"), "linger.ms": 300}
        producer = Producer(config)

        def transact(end: Callable[..., None]) -> object:
            producer.begin_transaction()
            reports = self.send(producer, topic, 0, 3)
            end(90)
            return reports

        def offsets() -> None:
            producer.begin_transaction()
            group = Consumer({**self.common, "group.id": self.name("tx-group")})
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 2)], group.consumer_group_metadata(), 90)
            producer.commit_transaction(90)
            group.close()

        self.step("init transactions", lambda: producer.init_transactions(90))
        self.step("commit", lambda: transact(producer.commit_transaction))
        self.step("abort", lambda: transact(producer.abort_transaction))
        self.step("commit again", lambda: transact(producer.commit_transaction))
        self.step("offsets in a transaction", offsets)
        self.step("read committed", lambda: self.read(topic, 6, **{"isolation.level": "read_committed"}))
        self.step("read uncommitted", lambda: self.read(topic, 9, **{"isolation.level": "read_uncommitted"}))
        Producer(config).init_transactions(90)
        self.step("fenced", lambda: transact(producer.commit_transaction))

    def groups(self) -> None:
        """Reads as a classic and as a KIP-848 group."""
        topic = self.create("grouped", 2)
        producer = Producer({**self.common, "linger.ms": 300})
        for partition in range(2):
            self.send(producer, topic, partition)
        for protocol in ("classic", "consumer"):
            group = self.name(protocol)
            consumer = Consumer(
                {**self.common, "group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest",
                 "enable.auto.commit": False}
            )  # fmt: skip
            consumer.subscribe([topic])
            self.step(f"{protocol}: read", self.poll, consumer, 10)
            self.step(f"{protocol}: assignment", self.assignment, consumer)
            self.step(f"{protocol}: commit", self.commit, consumer)
            self.step(f"{protocol}: committed", self.committed, consumer, topic)
            self.step(f"{protocol}: describe", self.describe_group, group)
            self.step(f"{protocol}: delete while in use", self.delete_group, group)
            consumer.close()
            self.step(f"{protocol}: describe when empty", self.describe_group, group)
            self.step(f"{protocol}: alter offsets", self.alter_offsets, group, topic)
            self.step(f"{protocol}: list offsets", self.list_offsets, group)
        self.step("delete group", self.delete_group, self.name("classic"))

    def assignment(self, consumer: Consumer) -> object:
        """Returns which partitions a member reads."""
        return in_order(map(str, consumer.assignment()))

    def commit(self, consumer: Consumer) -> object:
        return in_order(map(str, consumer.commit(asynchronous=False)))

    def committed(self, consumer: Consumer, topic: str) -> object:
        """Asks for a member's committed offsets."""
        return in_order(map(str, consumer.committed([TopicPartition(topic, p) for p in range(2)], 10)))

    def delete_group(self, group: str) -> object:
        return one(self.admin.delete_consumer_groups([group]))

    def alter_offsets(self, group: str, topic: str) -> object:
        wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3)])]
        return str(one(self.admin.alter_consumer_group_offsets(wanted)).topic_partitions)

    def list_offsets(self, group: str) -> object:
        """Lists a group's committed offsets from outside."""
        ask = [ConsumerGroupTopicPartitions(group)]
        return in_order(map(str, one(self.admin.list_consumer_group_offsets(ask)).topic_partitions))

    def describe_group(self, group: str) -> object:
        found = one(self.admin.describe_consumer_groups([group]))
        members = [
            (m.client_id, m.host, m.group_instance_id, in_order(map(str, m.assignment.topic_partitions)))
            for m in found.members
        ]
        return {
            "state": found.state.name,
            "type": found.type.name,
            "assignor": found.partition_assignor,
            "simple": found.is_simple_consumer_group,
            "coordinator": str(found.coordinator),
            "members": members,
        }

    def errors(self) -> None:
        small = self.create("small", config={"max.message.bytes": "500"})
        impatient = Producer({**self.common, "message.timeout.ms": 3000})

        def too_large() -> object:
            reports: list[object] = []
            impatient.produce(small, b"x" * 5000, on_delivery=lambda error, _: reports.append(error and error.name()))
            impatient.flush(90)
            return reports

        self.step("message too large", too_large)
        self.step("unknown topic", lambda: self.send(impatient, self.name("nowhere"), 0, 1))
        self.step("unknown partition", lambda: self.send(impatient, small, 7, 1))
        self.step("offset out of range", lambda: self.read_at(small, 99))
        self.step("read unknown topic", lambda: self.read_at(self.name("nowhere"), 0, SILENCE_SECONDS))
        self.step("describe unknown group", lambda: self.describe_group(self.name("nobody")))
        self.step("delete unknown group", self.delete_group, self.name("nobody"))
        self.step("session timeout too short", lambda: self.join_with("6"))
        self.step("alter offsets of no topic", self.alter_offsets, self.name("nobody"), self.name("nowhere"))

    def read_at(self, topic: str, offset: int, seconds: float = SECONDS) -> object:
        """Reads from an offset where nothing can be."""
        consumer = Consumer(
            {**self.common, "group.id": self.name("none"), "auto.offset.reset": "error", "enable.auto.commit": False}
        )
        try:
            consumer.assign([TopicPartition(topic, 0, offset)])
            return self.poll(consumer, 1, seconds)
        finally:
            consumer.close()

    def join_with(self, session_timeout_ms: str) -> object:
        """Joins a group with a session timeout the broker refuses."""
        config = {"group.id": self.name("short"), "session.timeout.ms": session_timeout_ms, "heartbeat.interval.ms": 1}
        consumer = Consumer({**self.common, **config})
        try:
            consumer.subscribe([self.name("small")])
            return self.poll(consumer, 1)
        finally:
            consumer.close()

    def listings(self) -> None:
        topic = self.name("codecs")
        specs = {"earliest": OffsetSpec.earliest(), "latest": OffsetSpec.latest(), "max": OffsetSpec.max_timestamp()}
        for kind, spec in specs.items():
            self.step(f"list offsets {kind}", self.end_offset, TopicPartition(topic, 0), spec)
        self.step("delete records", lambda: one(self.admin.delete_records([TopicPartition(topic, 1, 3)])).low_watermark)
        self.step("watermarks", self.watermarks, TopicPartition(topic, 1))
        self.step("list groups", self.list_groups)
        self.step("cluster", self.describe_cluster)
        self.step("brokers", lambda: {i: str(b) for i, b in self.admin.list_topics(topic, 60).brokers.items()})
        self.step("elect leaders", self.elect, topic)

    def wait_for_end(self, topic: str, partition: int, offset: int) -> None:
        """Waits until a partition is as long as it should be."""

        def ended() -> bool:
            try:
                return self.end_offset(TopicPartition(topic, partition), OffsetSpec.latest())[0] == offset
            except KafkaException as error:
                if error.args[0].code() not in NOT_YET_THERE:
                    raise
                return False

        wait_until(f"{topic}-{partition} to end at {offset}", ended)

    def watermarks(self, partition: TopicPartition) -> object:
        """Asks where a partition begins and ends."""
        consumer = Consumer({**self.common, "group.id": self.name("none")})
        try:
            return consumer.get_watermark_offsets(partition, 10)
        finally:
            consumer.close()

    def end_offset(self, partition: TopicPartition, spec: OffsetSpec) -> tuple[int, int, int | None]:
        found = one(self.admin.list_offsets({partition: spec}, isolation_level=IsolationLevel.READ_COMMITTED))
        return (found.offset, found.timestamp, found.leader_epoch)

    def elect(self, topic: str) -> object:
        """Asks for the preferred leader, which leads already."""
        future = self.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)])
        return {
            f"{partition.topic}-{partition.partition}": str(error) for partition, error in future.result(60).items()
        }

    def list_groups(self) -> object:
        found = self.admin.list_consumer_groups().result(60)
        return in_order(
            (g.group_id, g.state.name, g.type.name, g.is_simple_consumer_group)
            for g in found.valid
            if g.group_id.startswith(self.script.prefix)
        )

    def describe_cluster(self) -> object:
        found = self.admin.describe_cluster(include_authorized_operations=True).result(60)
        return {
            "cluster_id": found.cluster_id,
            "controller": str(found.controller),
            "nodes": [str(node) for node in found.nodes],
            "operations": sorted(operation.name for operation in found.authorized_operations),
        }


if __name__ == "__main__":
    Librdkafka(Script.from_arguments()).run()
