"""A group of librdkafka consumers whose members come and go, and write down what they process."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from random import Random
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from kordon.testing.order.client import Orders, Settings, State, key_of, now_us, sequence_of, work_as_group
from kordon.testing.order.history import Recorder, recorded

GROUP: Final = "librdkafka-group"
AWAY_SECONDS: Final = 1.0


class Member:
    """One member, from joining to leaving."""

    def __init__(self, name: str, settings: Settings, orders: Orders, state: State, recorder: Recorder) -> None:
        self._settings = settings
        self._orders = orders
        self._state = state
        self._recorder = recorder
        self._positions: dict[int, int] = {}
        self._commits_when_revoked = True
        config = {
            "bootstrap.servers": settings.bootstrap,
            "group.id": f"{GROUP}-of-{settings.topic}",  # runs side by side are no members of one group
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 15_000,
            "heartbeat.interval.ms": settings.heartbeat_ms,
            "partition.assignment.strategy": "cooperative-sticky",
            "topic.metadata.refresh.interval.ms": 1000,
            "fetch.wait.max.ms": 200,
            "max.partition.fetch.bytes": settings.fetch_bytes,
            "debug": "cgrp,consumer,fetch,topic",
        }
        self._consumer = Consumer(config, logger=_logger(settings.folder / f"{name}.log"))

    def live(self, until: float, *, commits_at_end: bool) -> None:
        """Works until a time (of time.monotonic), or for ever while the group drains.

        Args:
            until: When it leaves.
            commits_at_end: Or else the next owner of its partitions has to go back.
        """
        self._consumer.subscribe(
            [self._settings.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        next_commit = time.monotonic() + self._settings.commit_seconds
        while not self._orders.stopping.is_set() and (self._orders.finishing.is_set() or time.monotonic() < until):
            self._process_one()
            if time.monotonic() > next_commit:
                self._commit(self._positions)
                next_commit = time.monotonic() + self._settings.commit_seconds
        self._commits_when_revoked = commits_at_end
        self._consumer.close()

    def _process_one(self) -> None:
        # One by one: consume() may return what came before a rebalance that it has just told of.
        message = self._consumer.poll(0.2)
        if message is None or message.error():
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        key, sequence = key_of(message.key()), sequence_of(message.value())
        self._recorder.note("processed", now_us(), p=partition, o=offset, k=key, s=sequence)
        self._positions[partition] = offset + 1
        self._state.reach(partition, offset)
        if self._settings.consume_rate and not self._orders.finishing.is_set():
            self._orders.finishing.wait(1 / self._settings.consume_rate)

    def _commit(self, positions: dict[int, int]) -> None:
        self._recorder.flush()
        if not positions:
            return
        offsets = [TopicPartition(self._settings.topic, partition, offset) for partition, offset in positions.items()]
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return  # it may or may not be there: whoever owns the partition next begins at one or the other
        at = [[each.partition, each.offset] for each in done if each.error is None]
        self._recorder.note("committed", now_us(), at=at)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._recorder.note("assigned", now_us(), p=[each.partition for each in partitions])

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        going = {each.partition for each in partitions}
        if self._commits_when_revoked:
            self._commit({number: offset for number, offset in self._positions.items() if number in going})
        self._drop(going, lost=False)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._drop({each.partition for each in partitions}, lost=True)

    def _drop(self, partitions: set[int], *, lost: bool) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)
        self._recorder.note("revoked", now_us(), p=sorted(partitions), lost=lost)
        self._recorder.flush()


def _logger(file: Path) -> logging.Logger:
    """Keeps what a client does beside its history: it says why a promise was broken."""
    logger = logging.getLogger(file.stem)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    handler = logging.FileHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    return logger


def come_and_go(stem: str, settings: Settings, orders: Orders, state: State) -> None:
    """Lives as one member after another."""
    chance = Random(f"{stem} {settings.seed}")  # noqa: S311 - chance that can be repeated
    life = 0
    while not orders.stopping.is_set():
        stay_seconds = settings.churn_seconds * chance.uniform(1, 2) or float("inf")
        name = f"{stem}.{life}"
        with recorded(settings.folder, name, group=GROUP, member=name) as recorder:
            member = Member(name, settings, orders, state, recorder)
            member.live(time.monotonic() + stay_seconds, commits_at_end=chance.random() < 0.5)
            recorder.note("ended", now_us())
        orders.finishing.wait(AWAY_SECONDS)
        life += 1


if __name__ == "__main__":
    work_as_group(GROUP, come_and_go)
