"""Handles the orders that `send_orders` sends: many at a time, those of each customer in their order.

    python -m kordon.client.examples.handle_orders --bootstrap kordon:9092 --topic orders --count 10000

Run as many of these as you like, and kill one: what it had finished is not handled again, but for the last second. Each
order takes 20 ms here, some fail at first, and one that fails five times is put aside (`set_aside`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from typing import Any

from aiokafka.structs import ConsumerRecord

from kordon.client import CooperativeConsumer

_WORK_SECONDS = 0.02
_FAILING_PERCENT = 1


class Orders:
    """One member of a group that handles orders."""

    def __init__(self) -> None:
        self.handled = 0
        self.out_of_order = 0
        self._last: dict[str, int] = {}

    async def handle(self, record: ConsumerRecord[str, dict[str, Any]]) -> None:
        """Handles an order; returning finishes it, and raising has it tried again."""
        await asyncio.sleep(_WORK_SECONDS)  # what takes time: a call of a service
        if random.random() * 100 < _FAILING_PERCENT:  # noqa: S311  no secret
            raise ConnectionError("the service does not answer")
        customer, order = str(record.key), (record.value or {}).get("order", 0)
        self.out_of_order += order <= self._last.get(customer, -1)
        self._last[customer] = order
        self.handled += 1

    @property
    def customers(self) -> int:
        """How many customers have had an order handled."""
        return len(self._last)


async def set_aside(record: ConsumerRecord[bytes, bytes], error: BaseException | None) -> None:
    """Takes an order that has failed too often; a real one is sent to another topic."""
    sys.stderr.write(f"set aside: offset {record.offset} of partition {record.partition}: {error!r}\n")


async def handle_orders(bootstrap: str, topic: str, count: int | None, group: str = "orders") -> Orders:
    """Handles orders until so many are handled; with None, forever."""
    orders = Orders()
    async with CooperativeConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        concurrency=1_000,
        max_attempts=5,
        dead_letter=set_aside,
        key_deserializer=bytes.decode,
        value_deserializer=json.loads,
    ) as consumer:
        running = asyncio.ensure_future(consumer.run(orders.handle))
        while not running.done() and (count is None or orders.handled < count):
            await asyncio.wait([running], timeout=0.1)
    await running
    return orders


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="host:port of a Kordon or a broker")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, help="ends after so many orders; by default it continues")
    parser.add_argument("--group", default="orders", help="of all that share the work")
    told = parser.parse_args()
    orders = asyncio.run(handle_orders(told.bootstrap, told.topic, told.count, told.group))
    sys.stdout.write(f"{orders.handled} orders of {orders.customers} customers, {orders.out_of_order} out of order\n")


if __name__ == "__main__":
    main()
