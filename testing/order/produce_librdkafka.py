"""A librdkafka producer, idempotent unless told otherwise, that writes down what came of each record."""

from __future__ import annotations

from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from kordon.testing.order.client import Orders, Records, Settings, State, key_of, now_us, work_as_producer
from kordon.testing.order.history import UNKNOWN_OFFSET, Recorder

NAME: Final = "librdkafka"
FLUSH_SECONDS: Final = 60.0
_IDEMPOTENT: Final = {"enable.idempotence": True}
_REFUSED: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED})


def produce(settings: Settings, orders: Orders, recorder: Recorder, state: State) -> bool:
    """Sends until told to finish; returns whether the outcome of every record is known."""
    config: dict[str, str | int | bool] = {
        "bootstrap.servers": settings.bootstrap,
        **(_IDEMPOTENT if settings.acks < 0 else {"acks": settings.acks, "message.send.max.retries": 0}),
        "linger.ms": 5,
        "message.timeout.ms": 60_000,
        "topic.metadata.refresh.interval.ms": 1000,
    }
    producer = Producer(config)
    records = Records(NAME, settings)

    def answered(number: int, sequence: int, sent_us: int, error: KafkaError | None, message: Message) -> None:
        told = {"n": number, "k": key_of(message.key()), "s": sequence, "sent": sent_us}
        if error is not None:
            state.failed += 1
            recorder.note("failed", now_us(), **told, error=error.name(), refused=error.code() in _REFUSED)
            return
        if not settings.acks:  # nobody said whether it is there
            recorder.note("failed", now_us(), **told, error="ACKS_0", refused=False)
            state.records += 1
            return
        # An acknowledgement without an offset (of a duplicate) is None here.
        partition, given = message.partition(), message.offset()
        offset = UNKNOWN_OFFSET if given is None else given
        assert partition is not None
        recorder.note("acked", now_us(), **told, p=partition, o=offset)
        state.reach(partition, offset)

    while not orders.finishing.is_set():
        key, sequence, value = records.next()
        on_delivery = partial(answered, records.number, sequence, now_us())
        while True:
            try:
                producer.produce(settings.topic, value, key, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(max(0.0, records.seconds_ahead()))
    left: int = producer.flush(FLUSH_SECONDS)
    return left == 0


if __name__ == "__main__":
    work_as_producer(NAME, produce)
