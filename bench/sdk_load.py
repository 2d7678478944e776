"""Load by aiokafka's clients or by the SDK's, which stand on them; prints what it took as JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from kordon.client.consumer import OrderedConsumer
from kordon.client.producer import OrderedProducer

DEADLINE_SECONDS: Final = 300.0
"""A load that takes longer has failed."""
_KEYS: Final = 1_000
_PRODUCERS: Final = {"aiokafka": AIOKafkaProducer, "sdk": OrderedProducer}
_CONSUMERS: Final = {"aiokafka": AIOKafkaConsumer, "sdk": OrderedConsumer}


class LoadError(RuntimeError):
    """Records were refused, or did not come back in time."""


@dataclass(frozen=True)
class Load:
    """What to send and read."""

    client: str
    """"aiokafka" or "sdk"."""
    bootstrap: str
    topic: str
    record_bytes: int
    records: int


@dataclass(frozen=True)
class Done:
    """What came of it."""

    seconds: float
    """From the first record sent to the last acknowledgement, or from joining the group to the last record read."""
    cpu_seconds: float
    """Of this process in that time."""


async def produce(load: Load) -> Done:
    """Sends all records, of a thousand keys in turn.

    Raises:
        LoadError: A record was not acknowledged.
    """
    failures: list[BaseException] = []
    options: dict[str, Any] = {"enable_idempotence": True, "linger_ms": 5, "max_batch_size": 64 * 1024}
    keys = [f"key-{number}".encode() for number in range(_KEYS)]
    value = os.urandom(load.record_bytes)

    def answered(answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and (error := answer.exception()) is not None:
            failures.append(error)

    async with _PRODUCERS[load.client](bootstrap_servers=load.bootstrap, **options) as producer:
        await producer.partitions_for(load.topic)
        began, cpu = time.monotonic(), time.process_time()
        for number in range(load.records):
            (await producer.send(load.topic, value, keys[number % _KEYS])).add_done_callback(answered)
        await asyncio.wait_for(producer.flush(), DEADLINE_SECONDS)
        done = Done(time.monotonic() - began, time.process_time() - cpu)
    if failures:
        raise LoadError(f"{len(failures)} records refused: {failures[0]!r}")
    return done


async def consume(load: Load) -> Done:
    """Reads the topic from its beginning, as the only member of a group.

    Raises:
        LoadError: Fewer records came than were asked for.
    """
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    read = 0
    deadline = time.monotonic() + DEADLINE_SECONDS
    group = f"bench-{load.topic}"
    async with _CONSUMERS[load.client](
        load.topic, bootstrap_servers=load.bootstrap, group_id=group, **options
    ) as consumer:
        began, cpu = time.monotonic(), time.process_time()  # it has its partitions
        while read < load.records and time.monotonic() < deadline:
            found = await consumer.getmany(timeout_ms=500)
            read += sum(len(records) for records in found.values())
        done = Done(time.monotonic() - began, time.process_time() - cpu)
    if read < load.records:
        raise LoadError(f"{read} of {load.records} records came back")
    return done


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one load and prints a `Done` as JSON."""
    parser = argparse.ArgumentParser(prog="python -m kordon.bench.sdk_load")
    parser.add_argument("direction", choices=["produce", "consume"])
    parser.add_argument("--client", choices=list(_PRODUCERS), required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--record-bytes", type=int, default=500)
    parser.add_argument("--records", type=int, default=100_000)
    told = vars(parser.parse_args(arguments))
    direction = told.pop("direction")
    print(json.dumps(asdict(asyncio.run((produce if direction == "produce" else consume)(Load(**told))))))


if __name__ == "__main__":
    main()
