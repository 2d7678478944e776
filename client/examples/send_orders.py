"""Sends the orders of some customers, a record each, keyed by the customer: each customer's orders keep their order.

    python -m kordon.client.examples.send_orders --bootstrap kordon:9092 --topic orders --count 10000
    kafka-topics.sh --bootstrap-server kordon:9092 --alter --topic orders --partitions 6

The topic may grow and shrink meanwhile. At the end it says how many orders were written to which partition.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter

from aiokafka.structs import RecordMetadata

from kordon.client import OrderedProducer

_CUSTOMERS = 100


async def send_orders(bootstrap: str, topic: str, count: int) -> Counter[int]:
    """Sends `count` orders; returns how many were written to each partition."""
    async with OrderedProducer(
        bootstrap_servers=bootstrap,
        linger_ms=5,
        compression_type="lz4",
        key_serializer=str.encode,
        value_serializer=lambda order: json.dumps(order).encode(),
    ) as producer:
        written: list[asyncio.Future[RecordMetadata]] = []
        for number in range(count):
            customer = f"customer-{number % _CUSTOMERS}"
            # returns when there is room in the buffer, not when the record is written
            written.append(await producer.send(topic, {"order": number}, key=customer))
        return Counter(told.partition for told in await asyncio.gather(*written))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    partitions = asyncio.run(send_orders(options.bootstrap, options.topic, options.count))
    for partition, count in sorted(partitions.items()):
        sys.stdout.write(f"partition {partition}: {count} orders\n")


if __name__ == "__main__":
    main()
