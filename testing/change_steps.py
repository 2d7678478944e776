"""Tells tests how far a change of a managed topic has come, so that they can break something at that moment."""

from __future__ import annotations

import time
from typing import Final, Self

from confluent_kafka import Consumer, TopicPartition

LAYOUTS: Final = "__kordon.layouts"
STEPS: Final = ("wish", "fence", "ack", "image", "topic", "outcome")
"""What a change writes, in this order: by the first record of each kind a test knows that a step has begun."""


class ChangeSteps:
    """Follows the layouts topic from its end, records of open transactions included; use it as a context manager."""

    def __init__(self, bootstrap: str) -> None:
        config = {"bootstrap.servers": bootstrap, "group.id": "steps", "isolation.level": "read_uncommitted"}
        self._consumer = Consumer(config | {"fetch.wait.max.ms": "5"})
        _, end = self._consumer.get_watermark_offsets(TopicPartition(LAYOUTS, 0), timeout=60)
        self._consumer.assign([TopicPartition(LAYOUTS, 0, end)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._consumer.close()

    def wait_for(self, step: str, seconds: float = 60) -> None:
        """Returns when the first record of a step is written from now on; raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            message = self._consumer.poll(1.0)
            if message is not None and (message.key() or b"").startswith(f"{step}/".encode()):
                return
        raise TimeoutError(f"no record of the step {step}")
