"""Copies a topic's records to another one, each of them once: records and offsets are committed together.

    python -m kordon.client.examples.copy_records --bootstrap kordon:9092 --source orders --target copied --count 10000

Kill it and start it again: it continues behind the last transaction that was committed. Both topics may grow and shrink
meanwhile. Copiers that run at the same time share the source's partitions, and each needs a --name of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

from kordon.client import OrderedConsumer, OrderedProducer


async def copy_records(bootstrap: str, source: str, target: str, name: str, count: int) -> int:
    """Copies until `count` records are copied; returns how many that were."""
    group = f"copy-{source}-to-{target}"
    copied = 0
    async with (
        OrderedProducer(bootstrap_servers=bootstrap, transactional_id=f"{group}-{name}") as producer,
        OrderedConsumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
    ):
        while copied < count:
            # asking for records says that those before are handled: partitions are given up only then
            records = await consumer.getmany(timeout_ms=1000)
            if records:
                async with producer.transaction():
                    for record in (record for part in records.values() for record in part):
                        await producer.send(target, record.value, key=record.key)
                    await producer.send_offsets_to_transaction(
                        {tp: part[-1].offset + 1 for tp, part in records.items()}, group
                    )
                copied += sum(map(len, records.values()))
    return copied


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--name", default="1", help="of this copier; another one that starts with it replaces it")
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.ERROR)  # it warns of what it sends again by itself
    copied = asyncio.run(copy_records(options.bootstrap, options.source, options.target, options.name, options.count))
    sys.stdout.write(f"{copied} records copied\n")


if __name__ == "__main__":
    main()
