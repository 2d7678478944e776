"""What aiokafka is asked to do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from kordon.testing.steps import CODECS, KEEP, TIMESTAMP_MS, Script, in_order, records
from kordon.testing.waiting import until

HEADERS = [("kind", b"test"), ("empty", b"")]


class Aiokafka:
    """The script's steps, by subject."""

    def __init__(self, script: Script, admin: AIOKafkaAdminClient) -> None:
        self.script = script
        self.step = script.astep
        self.name = script.name
        self.common = {"bootstrap_servers": script.bootstrap}
        self.admin = admin

    async def run(self) -> None:
        await self.topics()
        await self.configs()
        await self.produce()
        await self.transactions()
        await self.groups()
        await self.errors()
        await self.listings()

    async def create(self, what: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        """Creates a topic and waits until it can be used."""
        topic = self.name(what)
        await self.admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=KEEP | (config or {}))])
        await self.wait_for(topic)
        async with AIOKafkaConsumer(**self.common) as consumer:
            # Known is not yet led, and what comes too early with acks=0 is lost.
            await consumer.end_offsets([TopicPartition(topic, partition) for partition in range(partitions)])
        return topic

    async def wait_for(self, topic: str) -> None:
        """Waits until the broker tells of a topic."""

        async def known() -> bool:
            return topic in await self.admin.list_topics()

        await until(topic, known)

    async def topics(self) -> None:
        topic = self.name("made")
        create = self.admin.create_topics
        await self.step("create topic", create([NewTopic(topic, 2, 1, topic_configs=KEEP)]))
        await self.wait_for(topic)
        await self.step("create it again", create([NewTopic(topic, 2, 1)]))
        await self.step("invalid config", create([NewTopic(self.name("x"), 1, 1, topic_configs={"no.such": "1"})]))
        await self.step("too many replicas", create([NewTopic(self.name("z"), 1, 9)]))
        await self.step("grow", self.admin.create_partitions({topic: NewPartitions(3)}))
        await self.step("shrink", self.admin.create_partitions({topic: NewPartitions(1)}))

        async def grown() -> bool:
            return len((await self.admin.describe_topics([topic]))[0]["partitions"]) == 3

        await until("3 partitions", grown)
        await self.step("describe topic", self.admin.describe_topics([topic]))
        await self.step("describe unknown topic", self.admin.describe_topics([self.name("nowhere")]))
        gone = await self.create("gone")
        await self.step("delete topic", self.admin.delete_topics([gone]))
        await self.step("delete unknown topic", self.admin.delete_topics([self.name("nowhere")]))

    async def configs(self) -> None:
        """Changes and reads configs of topics and brokers."""
        topic = await self.create("config")

        def resource(name: str, config: dict[str, str] | None = None) -> list[ConfigResource]:
            return [ConfigResource(ConfigResourceType.TOPIC, name, configs=config)]

        await self.step("alter config", self.admin.alter_configs(resource(topic, {"max.message.bytes": "2000"})))
        await self.step("alter to nonsense", self.admin.alter_configs(resource(topic, {"max.message.bytes": "many"})))

        async def altered() -> bool:
            return "'2000'" in str(await self.admin.describe_configs(resource(topic)))

        await until("the config", altered)
        await self.step("topic config", self.admin.describe_configs(resource(topic)))
        await self.step("unknown topic's config", self.admin.describe_configs(resource(self.name("nowhere"))))
        broker = [ConfigResource(ConfigResourceType.BROKER, "1")]
        await self.step("broker config", self.admin.describe_configs(broker))

    async def send(self, producer: AIOKafkaProducer, topic: str, partition: int, count: int = 5) -> list[object]:
        """Sends records in one batch and waits for what became of it."""
        batch = producer.create_batch()
        for key, value in records(topic, count):
            batch.append(key=key, value=value, timestamp=TIMESTAMP_MS, headers=HEADERS)
        batch.close()
        sent = await (await producer.send_batch(batch, topic, partition=partition))
        return [(sent.partition, sent.offset, sent.timestamp) if sent else None]

    async def produce(self) -> None:
        """Writes with each codec and each acks, and reads all of it."""
        topic = await self.create("codecs", 3 * len(CODECS))
        for number, codec in enumerate(CODECS):
            for place, acks in enumerate((0, 1, "all")):
                config: dict[str, Any] = {"compression_type": None if codec == "none" else codec, "acks": acks}
                async with AIOKafkaProducer(**self.common, **config, enable_idempotence=acks == "all") as producer:
                    partition = 3 * number + place
                    await self.step(f"produce {codec} acks={acks}", self.send(producer, topic, partition))
                    await self.wait_for_end(topic, partition, 5)
        await self.step("read codecs", self.read(topic, 15 * 5))

    async def wait_for_end(self, topic: str, partition: int, offset: int) -> None:
        """Waits until a partition is as long as it should be."""
        place = TopicPartition(topic, partition)
        async with AIOKafkaConsumer(**self.common) as consumer:

            async def ended() -> bool:
                return bool((await consumer.end_offsets([place]))[place] == offset)

            await until(str(place), ended)

    async def read(self, topic: str, count: int, isolation_level: str = "read_uncommitted") -> list[object]:
        """Reads all partitions from the beginning, without a group."""
        config = {"isolation_level": isolation_level, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(topic, **self.common, **config) as consumer:
            return await self.poll(consumer, count)

    async def poll(self, consumer: AIOKafkaConsumer, count: int) -> list[object]:
        """Takes records until there are enough, then looks that no more come."""
        found: list[object] = []

        async def poll() -> bool:
            batches = await consumer.getmany(timeout_ms=500)
            for batch in batches.values():
                found.extend((r.partition, r.offset, r.key, r.value, r.headers, r.timestamp) for r in batch)
            return not batches and len(found) >= count

        await until(f"{count} records", poll)
        return in_order(found)

    async def transactions(self) -> None:
        """Commits, aborts, commits offsets with records, and is fenced."""
        topic = await self.create("tx")
        config: dict[str, Any] = {**self.common, "transactional_id": self.name("tx")}
        producer = AIOKafkaProducer(**config)
        await self.step("init transactions", producer.start())

        async def transact(end: Callable[[], Awaitable[None]]) -> object:
            await producer.begin_transaction()
            reports = await self.send(producer, topic, 0, 3)
            await end()
            return reports

        async def offsets() -> None:
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 2}, self.name("tx-group"))
            await producer.commit_transaction()

        await self.step("commit", transact(producer.commit_transaction))
        await self.step("abort", transact(producer.abort_transaction))
        await self.step("commit again", transact(producer.commit_transaction))
        await self.step("offsets in a transaction", offsets())
        await self.step("read committed", self.read(topic, 6, "read_committed"))
        await self.step("read uncommitted", self.read(topic, 9))
        async with AIOKafkaProducer(**config):
            await self.step("fenced", transact(producer.commit_transaction))
        await producer.stop()

    async def groups(self) -> None:
        """Reads as a classic group (the client has no KIP-848)."""
        topic = await self.create("grouped", 2)
        async with AIOKafkaProducer(**self.common) as producer:
            for partition in range(2):
                await self.send(producer, topic, partition)
        group = self.name("classic")
        config: dict[str, Any] = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with AIOKafkaConsumer(topic, **self.common, **config) as consumer:
            await self.step("read", self.poll(consumer, 10))
            self.script.tell("assignment", answer=in_order(consumer.assignment()))
            await self.step("commit", consumer.commit())
            await self.step("committed", consumer.committed(TopicPartition(topic, 0)))
            await self.step("describe group", self.admin.describe_consumer_groups([group]))
        await self.step("describe when empty", self.admin.describe_consumer_groups([group]))
        await self.step("list offsets", self.admin.list_consumer_group_offsets(group))
        await self.step("find coordinator", self.admin.find_coordinator(group))

    async def errors(self) -> None:
        small = await self.create("small", config={"max.message.bytes": "500"})
        async with AIOKafkaProducer(**self.common, request_timeout_ms=3000) as producer:
            await self.step("message too large", producer.send_and_wait(small, b"x" * 5000))
            await self.step("unknown topic", producer.send_and_wait(self.name("nowhere"), b"x"))
            await self.step("unknown partition", producer.send_and_wait(small, b"x", partition=7))
        await self.step("offset out of range", self.read_at(small, 99))
        await self.step("describe unknown group", self.admin.describe_consumer_groups([self.name("nobody")]))
        await self.step("session timeout too short", self.join_with(6))

    async def read_at(self, topic: str, offset: int) -> object:
        """Reads from an offset where nothing can be."""
        async with AIOKafkaConsumer(**self.common, auto_offset_reset="none") as consumer:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, offset)
            return await self.poll(consumer, 1)

    async def join_with(self, session_timeout_ms: int) -> object:
        """Joins a group with a session timeout the broker refuses."""
        config: dict[str, Any] = {"session_timeout_ms": session_timeout_ms, "heartbeat_interval_ms": 1}
        consumer = AIOKafkaConsumer(self.name("small"), **self.common, group_id=self.name("short"), **config)
        try:
            await consumer.start()
            return await self.poll(consumer, 1)
        finally:
            await consumer.stop()

    async def listings(self) -> None:
        """Lists groups, offsets, brokers and the cluster."""
        topic = self.name("codecs")
        place = TopicPartition(topic, 1)
        await self.step("delete records", self.admin.delete_records({place: RecordsToDelete(3)}))
        async with AIOKafkaConsumer(**self.common) as consumer:
            await self.step("beginning", consumer.beginning_offsets([place]))
            await self.step("end", consumer.end_offsets([place]))
            await self.step("by time", consumer.offsets_for_times({place: TIMESTAMP_MS}))
        await self.step("list groups", self.list_groups())
        await self.step("cluster", self.admin.describe_cluster())

    async def list_groups(self) -> object:
        return in_order(
            group for group in await self.admin.list_consumer_groups() if group[0].startswith(self.script.prefix)
        )


async def main() -> None:
    script = Script.from_arguments()
    admin = AIOKafkaAdminClient(bootstrap_servers=script.bootstrap)
    await admin.start()
    try:
        await Aiokafka(script, admin).run()
    finally:
        await admin.close()


if __name__ == "__main__":
    asyncio.run(main())
