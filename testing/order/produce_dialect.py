"""The SDK's producer, writing down what came of each record."""

from __future__ import annotations

from typing import Final

from kordon.client.producer import OrderedProducer
from kordon.testing.order import produce_aiokafka

NAME: Final = "dialect"

if __name__ == "__main__":
    produce_aiokafka.main(NAME, OrderedProducer, partitions="physical")
