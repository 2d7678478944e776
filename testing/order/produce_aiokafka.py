"""An idempotent aiokafka producer that writes down what came of each record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError, TopicAuthorizationFailedError

from kordon.testing.order.client import Orders, Records, Settings, State, now_us, work_as_producer
from kordon.testing.order.history import Recorder

NAME: Final = "aiokafka"
FLUSH_SECONDS: Final = 60.0
_REFUSED: Final = (MessageSizeTooLargeError, TopicAuthorizationFailedError)


class Outcomes:
    """Waits for the answers to records that are on their way."""

    def __init__(self, recorder: Recorder, state: State) -> None:
        self._recorder = recorder
        self._state = state
        self.waiting: set[asyncio.Future[Any]] = set()

    def expect(self, answer: asyncio.Future[Any], told: dict[str, Any]) -> None:
        """Writes down what comes of a record."""
        self.waiting.add(answer)
        answer.add_done_callback(lambda done: self._answered(done, told))

    def _answered(self, answer: asyncio.Future[Any], told: dict[str, Any]) -> None:
        self.waiting.discard(answer)
        if answer.cancelled():
            return
        error = answer.exception()
        if error is not None:
            self._state.failed += 1
            refused = isinstance(error, _REFUSED)
            self._recorder.note("failed", now_us(), **told, error=type(error).__name__, refused=refused)
            return
        at = answer.result()
        self._recorder.note("acked", now_us(), **told, p=at.partition, o=at.offset)
        self._state.reach(at.partition, at.offset)


async def produce(
    kind: Callable[..., AIOKafkaProducer], settings: Settings, orders: Orders, recorder: Recorder, state: State
) -> bool:
    """Sends until told to finish; returns whether the outcome of every record is known."""
    config: dict[str, Any] = {
        "enable_idempotence": True,
        "linger_ms": 5,
        "metadata_max_age_ms": 1000,
        "request_timeout_ms": 15_000,
    }
    outcomes = Outcomes(recorder, state)
    async with kind(bootstrap_servers=settings.bootstrap, **config) as producer:
        records = Records(state.name, settings)
        while not orders.finishing.is_set():
            key, sequence, value = records.next()
            told = {"n": records.number, "k": key, "s": sequence, "sent": now_us()}
            try:
                outcomes.expect(await producer.send(settings.topic, value, key.encode()), told)
            except KafkaTimeoutError as error:  # there was no room for it
                recorder.note("failed", now_us(), **told, error=type(error).__name__, refused=True)
                state.failed += 1
            await asyncio.sleep(max(0.0, records.seconds_ahead()))
        if outcomes.waiting:
            await asyncio.wait(set(outcomes.waiting), timeout=FLUSH_SECONDS)
        return not outcomes.waiting


def main(name: str = NAME, kind: Callable[..., AIOKafkaProducer] = AIOKafkaProducer, **whose: str) -> None:
    """Works as a producer of some kind."""

    def run(settings: Settings, orders: Orders, recorder: Recorder, state: State) -> bool:
        return asyncio.run(produce(kind, settings, orders, recorder, state))

    work_as_producer(name, run, **whose)


if __name__ == "__main__":
    main()
