"""A share group of librdkafka's consumers, each a process: they come and go, are killed, and release records.

Each writes down what it starts and finishes (`cooperative.py`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from random import Random
from typing import Any, Final

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

from kordon.codecs import apis
from kordon.testing.order.client import TELL_SECONDS, Settings, State, key_of, now_us, sequence_of
from kordon.testing.order.consume_dialect import work_by_processes
from kordon.testing.order.cooperative import cooperative_history
from kordon.testing.order.history import Recorder
from kordon.testing.plain_connection import PlainConnection

_POLL_SECONDS: Final = 0.3
_ASK_SECONDS: Final = 1.0
_HANDLER_SECONDS: Final = 0.01
"""At most; drawn for each record."""
_RELEASED_PERCENT: Final = 2


def group_of(topic: str) -> str:
    """Returns the group that reads a topic: its config has to be set before."""
    return f"share-{topic}"


class Member:
    """One member, from joining to leaving; its process tells the group's by a pipe."""

    def __init__(self, settings: Settings, group: str, name: str, pipe: Connection, recorder: Recorder) -> None:
        self._settings = settings
        self._pipe = pipe
        self._recorder = recorder
        self._chance = Random(f"{name} {settings.seed}")  # noqa: S311 - chance that can be repeated
        self._counted = State("group", group)
        """What the group has not been told yet."""
        self._is_finishing = self._is_stopping = False
        self._told_at = self._asked_at = 0.0
        config = {
            "bootstrap.servers": settings.bootstrap,
            "group.id": group_of(settings.topic),
            "share.acknowledgement.mode": "explicit",
            "topic.metadata.refresh.interval.ms": 1000,
        }
        self._said: set[tuple[int, int]] = set()
        """Partitions and offsets of records that it has accepted, and has no answer for."""
        self._consumer = ShareConsumer(config)
        self._consumer.set_acknowledgement_commit_callback(self._answered)
        self._consumer.subscribe([settings.topic])

    def live(self, until: float) -> None:
        """Works until a time (of time.monotonic), or for ever while the group drains."""
        while not self._is_stopping and (self._is_finishing or time.monotonic() < until):
            for message in self._consumer.poll(_POLL_SECONDS) or ():
                if not message.error():
                    self._handle(message)
            self._tell()
        self._consumer.close()
        self._told_at = 0.0
        self._tell()

    def _handle(self, message: Any) -> None:
        at = {"p": message.partition(), "o": message.offset(), "k": key_of(message.key())}
        at["s"] = sequence_of(message.value())
        self._note("started", at)
        time.sleep(self._chance.uniform(0, _HANDLER_SECONDS))
        is_done = self._chance.random() * 100 >= _RELEASED_PERCENT
        self._note("finished" if is_done else "failed", at)
        self._counted.records += is_done
        if is_done:
            self._said.add((message.partition(), message.offset()))
        self._consumer.acknowledge(message, AcknowledgeType.ACCEPT if is_done else AcknowledgeType.RELEASE)
        with suppress(KafkaException):  # the record is given again
            self._consumer.commit_async()

    def _answered(self, offsets: Mapping[Any, Collection[int]], error: KafkaException | None) -> None:
        """Notes what was accepted, and never comes again."""
        these = {(partition.partition, offset) for partition, those in offsets.items() for offset in those}
        if error is None:
            for partition, offset in sorted(these & self._said):
                self._note("accepted", {"p": partition, "o": offset})
        self._said -= these

    def _note(self, event: str, at: dict[str, Any]) -> None:
        self._recorder.note(event, now_us(), **at)
        self._recorder.flush()

    def _tell(self) -> None:
        now = time.monotonic()
        if now < self._told_at + TELL_SECONDS:
            return
        while self._pipe.poll():
            self._is_finishing = True
            self._is_stopping = self._pipe.recv() == "stop" or self._is_stopping
        if self._is_finishing and now > self._asked_at + _ASK_SECONDS:
            self._counted.ends = self._stable()
            self._asked_at = now
        self._pipe.send(self._counted)
        self._counted = State("group", self._counted.name)
        self._told_at = now

    def _stable(self) -> dict[int, int]:
        """Returns the last offset of each partition before which all is done."""
        asked = {"groups": [{"group_id": group_of(self._settings.topic), "topics": None}]}
        try:
            with PlainConnection(self._settings.bootstrap.split(",")[0]) as connection:
                told = connection.ask(apis.DESCRIBE_SHARE_GROUP_OFFSETS, 0, asked).groups[0]
        except (OSError, EOFError):
            return {}  # its proxy is away
        return {row.partition_index: row.start_offset - 1 for topic in told.topics for row in topic.partitions}


def live(group: str, settings: Settings, name: str, pipe: Connection, stay_seconds: float) -> None:
    """Runs one member, in a process of its own."""
    with cooperative_history(settings.folder, name) as recorder:
        Member(settings, group, name, pipe, recorder).live(time.monotonic() + stay_seconds)


if __name__ == "__main__":
    name = sys.argv.pop()
    work_by_processes(name, partial(live, name))
