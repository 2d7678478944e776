"""The SDK's transactional producer, and aiokafka's readers of virtual partitions beside it."""

from __future__ import annotations

from functools import partial

from kordon.client import OrderedProducer
from kordon.testing.order.transact import work
from kordon.testing.order.transact_aiokafka import Writer, consume, write


class OrderedWriter(Writer):
    """One life. Its places are physical, and those of readers are not."""

    kind = OrderedProducer
    tells_places = False


if __name__ == "__main__":
    work({"write": partial(write, kind=OrderedWriter), "read": consume})
