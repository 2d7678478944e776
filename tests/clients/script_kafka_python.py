"""What kafka-python is asked to do."""

from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from kordon.testing.steps import CODECS, KEEP, TIMESTAMP_MS, Script, in_order, records
from kordon.testing.waiting import wait_until

HEADERS = [("kind", b"test"), ("empty", b"")]


class KafkaPython:
    """The script's steps, by subject."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.step = script.step
        self.name = script.name
        self.common = {"bootstrap_servers": script.bootstrap}
        self.admin = KafkaAdminClient(**self.common)

    def run(self) -> None:
        self.topics()
        self.configs()
        self.acls()
        self.produce()
        self.transactions()
        self.groups()
        self.errors()
        self.listings()
        self.admin.close()

    def create(self, what: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        """Creates a topic and waits until it can be used."""
        topic = self.name(what)
        self.admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=KEEP | (config or {}))])
        wait_until(topic, lambda: topic in self.admin.list_topics())
        # Known is not yet led, and what comes too early with acks=0 is lost.
        self.admin.list_partition_offsets({TopicPartition(topic, at): OffsetSpec.LATEST for at in range(partitions)})
        return topic

    def topics(self) -> None:
        topic = self.name("made")
        create = self.admin.create_topics
        self.step("create topic", create, [NewTopic(topic, 2, 1, topic_configs=KEEP)])
        wait_until(topic, lambda: topic in self.admin.list_topics())
        self.step("create it again", create, [NewTopic(topic, 2, 1)])
        self.step("invalid config", create, [NewTopic(self.name("x"), 1, 1, topic_configs={"no.such": "1"})])
        self.step("too many replicas", create, [NewTopic(self.name("z"), 1, 9)])
        self.step("grow", self.admin.create_partitions, {topic: NewPartitions(3)})
        self.step("shrink", self.admin.create_partitions, {topic: NewPartitions(1)})
        wait_until("3 partitions", lambda: len(self.admin.describe_topics([topic])[0]["partitions"]) == 3)
        self.step("describe topic", self.admin.describe_topics, [topic])
        self.step("describe unknown topic", self.admin.describe_topics, [self.name("nowhere")])
        self.step("describe partitions", self.admin.describe_topic_partitions, [topic])
        gone = self.create("gone")
        self.step("delete topic", self.admin.delete_topics, [gone])
        self.step("delete unknown topic", self.admin.delete_topics, [self.name("nowhere")])

    def configs(self) -> None:
        """Changes and reads configs of topics and brokers."""
        topic = self.create("config")

        def resource(name: str, config: dict[str, str] | None = None) -> list[ConfigResource]:
            return [ConfigResource(ConfigResourceType.TOPIC, name, configs=config)]

        self.step("alter config", self.admin.alter_configs, resource(topic, {"max.message.bytes": "2000"}))
        self.step("alter to nonsense", self.admin.alter_configs, resource(topic, {"max.message.bytes": "many"}))
        wait_until("the config", lambda: "'2000'" in str(self.admin.describe_configs(resource(topic))))
        self.step("topic config", self.admin.describe_configs, resource(topic), False, "all")
        self.step("unknown topic's config", self.admin.describe_configs, resource(self.name("nowhere")))
        broker = [ConfigResource(ConfigResourceType.BROKER, "1")]
        self.step("broker config", self.admin.describe_configs, broker, False, "all")
        self.step("reset config", self.admin.reset_configs, resource(topic, {"max.message.bytes": ""}))

    def acls(self) -> None:
        topic = self.name("acl")
        rule = ACL("User:somebody", "*", ACLOperation.READ, ACLPermissionType.ALLOW,
                   ResourcePattern(ResourceType.TOPIC, topic))  # fmt: skip
        pattern = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY,
                            ResourcePatternFilter(ResourceType.TOPIC, topic, ACLResourcePatternType.ANY))  # fmt: skip
        self.step("add ACL", self.admin.create_acls, [rule])
        wait_until("the rule", lambda: self.admin.describe_acls(pattern)[0])
        self.step("list ACLs", self.admin.describe_acls, pattern)
        self.step("remove ACLs", self.admin.delete_acls, [pattern])

    def send(self, producer: KafkaProducer, topic: str, partition: int, count: int = 5) -> list[object]:
        """Sends records in one batch and waits for what became of each."""
        futures = [
            producer.send(topic, value, key, HEADERS, partition, TIMESTAMP_MS) for key, value in records(topic, count)
        ]
        producer.flush(90)
        return [(sent.partition, sent.offset, sent.timestamp) for sent in (future.get(90) for future in futures)]

    def produce(self) -> None:
        """Writes with each codec and each acks, and reads all of it."""
        topic = self.create("codecs", 3 * len(CODECS))
        for number, codec in enumerate(CODECS):
            for place, acks in enumerate((0, 1, "all")):
                idempotent = acks == "all"
                producer = KafkaProducer(**self.common, compression_type=None if codec == "none" else codec, acks=acks,
                                         linger_ms=1000, enable_idempotence=idempotent)  # fmt: skip
                producer.partitions_for(topic)
                partition = 3 * number + place
                self.step(f"produce {codec} acks={acks}", self.send, producer, topic, partition)
                self.wait_for_end(topic, partition, 5)
                producer.close()
        self.step("read codecs", self.read, topic, 15 * 5)

    def wait_for_end(self, topic: str, partition: int, offset: int) -> None:
        """Waits until a partition is as long as it should be."""
        place = TopicPartition(topic, partition)
        wait_until(str(place), lambda: self.end_offset(place, OffsetSpec.LATEST) == offset)

    def end_offset(self, partition: TopicPartition, spec: OffsetSpec) -> int:
        return int(self.admin.list_partition_offsets({partition: spec})[partition].offset)

    def read(self, topic: str, count: int, isolation_level: str = "read_uncommitted") -> list[object]:
        """Reads all partitions from the beginning, without a group."""
        consumer = KafkaConsumer(**self.common, isolation_level=isolation_level, auto_offset_reset="earliest")
        try:
            consumer.assign([TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic)])
            return self.poll(consumer, count)
        finally:
            consumer.close()

    def poll(self, consumer: KafkaConsumer, count: int) -> list[object]:
        """Takes records until there are enough, then looks that no more come."""
        found: list[object] = []

        def poll() -> bool:
            batches = consumer.poll(timeout_ms=500)
            for batch in batches.values():
                found.extend((r.partition, r.offset, r.key, r.value, r.headers, r.timestamp) for r in batch)
            return not batches and len(found) >= count

        wait_until(f"{count} records", poll)
        return in_order(found)

    def transactions(self) -> None:
        """Commits, aborts, commits offsets with records, and is fenced."""
        topic = self.create("tx")
        config: dict[str, Any] = {**self.common, "transactional_id": self.name("tx"), "linger_ms": 1000}
        producer = KafkaProducer(**config)

        def transact(end: Callable[[], None]) -> object:
            producer.begin_transaction()
            reports = self.send(producer, topic, 0, 3)
            end()
            return reports

        def offsets() -> None:
            producer.begin_transaction()
            consumer = KafkaConsumer(**self.common, group_id=self.name("tx-group"))
            producer.send_offsets_to_transaction(
                {TopicPartition(topic, 0): OffsetAndMetadata(2, "", -1)}, consumer.group_metadata()
            )
            producer.commit_transaction()
            consumer.close()

        self.step("init transactions", producer.init_transactions)
        self.step("commit", transact, producer.commit_transaction)
        self.step("abort", transact, producer.abort_transaction)
        self.step("commit again", transact, producer.commit_transaction)
        self.step("offsets in a transaction", offsets)
        self.step("read committed", self.read, topic, 6, "read_committed")
        self.step("read uncommitted", self.read, topic, 9)
        other = KafkaProducer(**config)
        other.init_transactions()
        self.step("fenced", transact, producer.commit_transaction)
        other.close()
        producer.close(timeout=1)

    def groups(self) -> None:
        """Reads as a classic group (the client has no KIP-848)."""
        topic = self.create("grouped", 2)
        producer = KafkaProducer(**self.common, linger_ms=1000)
        for partition in range(2):
            self.send(producer, topic, partition)
        producer.close()
        group = self.name("classic")
        consumer = KafkaConsumer(
            topic, **self.common, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        )
        places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        self.step("read", self.poll, consumer, 10)
        self.step("assignment", lambda: in_order(consumer.assignment()))
        self.step("commit", consumer.commit)
        self.step("committed", lambda: [consumer.committed(place) for place in places])
        self.step("describe group", self.admin.describe_groups, [group])
        self.step("delete while in use", self.admin.delete_groups, [group])
        consumer.close()
        self.step("describe when empty", self.admin.describe_groups, [group])
        self.step("alter offsets", self.admin.alter_group_offsets, group, {places[0]: OffsetAndMetadata(3, "", -1)})
        self.step("list offsets", self.admin.list_group_offsets, {group: None})
        self.step("delete offsets", self.admin.delete_group_offsets, group, [places[1]])

    def errors(self) -> None:
        small = self.create("small", config={"max.message.bytes": "500"})
        impatient = KafkaProducer(**self.common, max_block_ms=3000, retries=0, enable_idempotence=False)
        self.step("message too large", lambda: impatient.send(small, b"x" * 5000).get(10))
        self.step("unknown topic", lambda: impatient.send(self.name("nowhere"), b"x").get(10))
        self.step("unknown partition", lambda: impatient.send(small, b"x", partition=7).get(10))
        impatient.close()
        self.step("offset out of range", self.read_at, small, 99)
        self.step("describe unknown group", self.admin.describe_groups, [self.name("nobody")])
        self.step("delete unknown group", self.admin.delete_groups, [self.name("nobody")])
        self.step("session timeout too short", self.join_with, 6)
        nowhere = {TopicPartition(self.name("nowhere"), 0): OffsetAndMetadata(3, "", -1)}
        self.step("alter offsets of no topic", self.admin.alter_group_offsets, self.name("nobody"), nowhere)

    def read_at(self, topic: str, offset: int) -> object:
        """Reads from an offset where nothing can be."""
        consumer = KafkaConsumer(**self.common, auto_offset_reset="none")
        try:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, offset)
            return self.poll(consumer, 1)
        finally:
            consumer.close()

    def join_with(self, session_timeout_ms: int) -> object:
        """Joins a group with a session timeout the broker refuses."""
        consumer = KafkaConsumer(
            self.name("small"),
            **self.common,
            group_id=self.name("short"),
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=1,
        )
        try:
            return self.poll(consumer, 1)
        finally:
            consumer.close()

    def listings(self) -> None:
        """Lists groups, offsets, producers, transactions, logs, brokers and the cluster."""
        topic = self.name("codecs")
        place = TopicPartition(topic, 0)
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP):
            self.step(f"list offsets {spec.name}", self.admin.list_partition_offsets, {place: spec})
        self.step("delete records", self.admin.delete_records, {TopicPartition(topic, 1): 3})
        self.step("list groups", self.list_groups)
        self.step("cluster", self.admin.describe_cluster)
        self.step("quorum", self.quorum)
        self.step("features", self.features)
        self.step("log dirs", self.log_dirs, topic)
        self.step("producers", self.producers)
        self.step("transactions", self.list_transactions)
        self.step("describe transaction", self.transaction)
        self.step("describe unknown transaction", self.admin.describe_transactions, [self.name("nobody")])
        self.step("reassignments", self.admin.list_partition_reassignments)
        self.step("users", self.admin.describe_user_scram_credentials)
        self.step("elect leaders", self.admin.elect_leaders, 0, {topic: [0]})

    def list_groups(self) -> object:
        return in_order(group for group in self.admin.list_groups() if self.script.prefix in str(group))

    def list_transactions(self) -> object:
        """Lists this run's transactional ids."""
        return [str(found) for found in in_order(self.admin.list_transactions()) if self.script.prefix in str(found)]

    def transaction(self) -> object:
        """Describes a transactional id but for its producer id, which is dealt out anew in each run."""
        found = self.admin.describe_transactions([self.name("tx")])[self.name("tx")]
        return found.coordinator_id, found.state, found.producer_epoch, found.transaction_timeout_ms

    def quorum(self) -> object:
        """Describes the quorum without what moves from one moment to the next."""
        found = self.admin.describe_metadata_quorum()
        (partition,) = found["topics"][0]["partitions"]
        voters = [voter["replica_id"] for voter in partition["current_voters"]]
        return found["topics"][0]["topic_name"], partition["leader_id"], voters, found["nodes"]

    def features(self) -> object:
        """Lists features; the epoch counts every change in the cluster."""
        found = self.admin.describe_features()
        return {name: {**of, "finalized_epoch": None} for name, of in found.items()}

    def log_dirs(self, topic: str) -> object:
        (broker,) = self.admin.describe_log_dirs({topic: [0, 1]})
        return [
            (broker["broker"], found["log_dir"], in_order(found["topics"][0]["partitions"]))
            for found in broker["log_dirs"]
        ]

    def producers(self) -> object:
        """Describes producers but for their ids, which are dealt out anew in each run."""
        place = TopicPartition(self.name("tx"), 0)
        (states,) = self.admin.describe_producers([place])[place]
        return [(state.producer_epoch, state.last_sequence) for state in states]


if __name__ == "__main__":
    KafkaPython(Script.from_arguments()).run()
