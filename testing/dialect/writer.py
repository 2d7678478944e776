"""An idempotent producer of the dialect that says exactly what it sends, by the SDK's rule of what a refusal proves.

It sends one batch at a time, so that each has an end before the next one: acknowledged, or not written for good.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from aiokafka.partitioner import murmur2
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kordon.codecs import apis
from kordon.codecs.error_codes import Code, name_of
from kordon.proxy.ordering.hashing import linear, slot
from kordon.testing.dialect.connection import DialectConnection

_KEYS: Final = 12
_PATIENCE_SECONDS: Final = 90.0
_PAUSE_SECONDS: Final = 0.005
_REMEMBERED: Final = 4
"""Batches of one partition that are sent again; brokers know five."""
_AGAIN_SHARE: Final = 0.3
_CHANGE_SHARE: Final = 0.05
_TRANSIENT: Final = frozenset(
    {Code.NOT_LEADER_OR_FOLLOWER, Code.REQUEST_TIMED_OUT, Code.LEADER_NOT_AVAILABLE, Code.UNKNOWN_TOPIC_OR_PARTITION}
)

Numbered = tuple[bytes, int]
"""A key and the number that is the value."""


class _Layout(NamedTuple):
    n: int
    u: int
    v: int
    epoch: int


class _Batch(NamedTuple):
    partition: int
    records: tuple[Numbered, ...]
    data: bytes
    chosen_by: _Layout
    """What was sent with it last."""


class DialectWriter(threading.Thread):
    """Writes numbered records of keys of its own until it is stopped, and sends what was acknowledged again.

    Args:
        bootstraps: Of Kordons; it goes to another one now and then, and when its connection ends.
        name: Begins its keys.
    """

    def __init__(self, bootstraps: Sequence[str], topic: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.acknowledged: list[Numbered] = []
        self.refused = 0
        """Batches that were refused for their count."""
        self.taken_back = 0
        """Those of them that were not written, and went to other partitions."""
        self.found_written = 0
        """Those of them that were asked about, and were written."""
        self.repeated = 0
        """Batches that were sent again after they had been acknowledged."""
        self.errors: list[str] = []
        self._bootstraps, self._topic = bootstraps, topic
        self._random = Random(name)  # noqa: S311 - chance that can be repeated
        self._stopping = threading.Event()
        self._numbers: defaultdict[bytes, int] = defaultdict(int)
        self._back: defaultdict[bytes, deque[int]] = defaultdict(deque)
        """By key, the numbers of what was taken back; they go before all others."""
        self._sequences: defaultdict[int, int] = defaultdict(int)
        self._sent: defaultdict[int, deque[_Batch]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))
        self._connection: DialectConnection | None = None
        self._layout = _Layout(0, 0, 0, -1)
        self._producer_id = -1

    def run(self) -> None:
        try:
            self._begin()
            while not self._stopping.is_set() or any(self._back.values()):
                self._write(self._random.choice(self._keys))
                if self._random.random() < _AGAIN_SHARE:
                    self._repeat()
                if self._random.random() < _CHANGE_SHARE:
                    self._hang_up()
        except (AssertionError, EOFError, OSError) as error:  # is told by `finish`, in the thread of the test
            self.errors.append(f"{type(error).__name__}: {error}")
        finally:
            self._hang_up()

    @property
    def layout_epoch(self) -> int:
        """Of the newest layout that it knows; -1: none."""
        return self._layout.epoch

    def finish(self) -> None:
        """Stops it when nothing that it has begun is open; there must have been no error."""
        self._stopping.set()
        self.join(_PATIENCE_SECONDS)
        assert not self.is_alive()
        assert not self.errors

    @property
    def _keys(self) -> list[bytes]:
        return [f"{self.name}-{number}".encode() for number in range(_KEYS)]

    def _begin(self) -> None:
        self._refresh()
        asked = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        self._producer_id = self._connect().ask(apis.INIT_PRODUCER_ID, 3, asked).producer_id

    def _write(self, key: bytes) -> None:
        """Writes a few records of all keys that share a partition with one, until they are where they belong."""
        partition = self._partition(key)
        others = [each for each in self._keys if self._partition(each) == partition]
        picked = [key, *self._random.choices(others, k=self._random.randint(0, 2))]
        batch = self._batch(partition, tuple((each, self._take(each)) for each in picked))
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (code := self._send(batch)) != Code.NONE:
            assert time.monotonic() < deadline, f"{name_of(code)} for {_PATIENCE_SECONDS} s"
            if code != Code.INVALID_PARTITION_METADATA:
                assert code in _TRANSIENT, name_of(code)
                continue
            self.refused += 1
            self._refresh()
            if all(self._partition(each) == partition for each, _ in batch.records):
                batch = batch._replace(chosen_by=self._layout)
            elif self._was_written(batch):
                self.found_written += 1
                break
            else:
                self._take_back(batch)
                return
        self._sequences[partition] += len(batch.records)
        self._sent[partition].append(batch)
        self.acknowledged += batch.records

    def _was_written(self, batch: _Batch) -> bool:
        """Asks after the refresh, by sending it once more as it was (OUTCOME-FIRST)."""
        while (code := self._send(batch)) in _TRANSIENT:
            pass
        assert code in (Code.NONE, Code.INVALID_PARTITION_METADATA), name_of(code)
        return code == Code.NONE

    def _take_back(self, batch: _Batch) -> None:
        self.taken_back += 1
        for key, number in reversed(batch.records):
            self._back[key].appendleft(number)

    def _repeat(self) -> None:
        """Sends something again that was acknowledged: it is known, or refused for its count; nothing else."""
        batches = self._sent[self._random.choice([*self._sent, 0])]
        if batches:
            self.repeated += 1
            code = self._send(self._random.choice(batches))
            assert code in (Code.NONE, Code.INVALID_PARTITION_METADATA, *_TRANSIENT), name_of(code)

    def _take(self, key: bytes) -> int:
        if self._back[key]:
            return self._back[key].popleft()
        self._numbers[key] += 1
        return self._numbers[key]

    def _batch(self, partition: int, records: tuple[Numbered, ...]) -> _Batch:
        builder = DefaultRecordBatchBuilder(2, 0, 0, self._producer_id, 0, self._sequences[partition], 1 << 20)
        for offset, (key, number) in enumerate(records):
            builder.append(offset, timestamp=1_700_000_000_000, key=key, value=b"%d" % number, headers=[])
        return _Batch(partition, records, bytes(builder.build()), self._layout)

    def _partition(self, key: bytes) -> int:
        n, u, v, _ = self._layout
        return linear(slot((murmur2(key) & 0x7FFFFFFF) % v, n, v), n, u)

    def _refresh(self) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                row = self._connect().metadata(self._topic)
            except (EOFError, OSError):
                self._hang_up()
                continue
            if row.error_code == Code.NONE and row.layout_epoch >= max(0, self._layout.epoch):  # never an older one
                n, u, v = row.initial_partition_count, row.undeleted_partition_count, row.virtual_partition_count
                self._layout = _Layout(n, u, v, row.layout_epoch)
                return
            self._hang_up()
            time.sleep(_PAUSE_SECONDS)
        raise AssertionError("no metadata")

    def _send(self, batch: _Batch) -> int:
        """Sends a batch once; a connection that ends is an answer that never comes."""
        try:
            layout, connection = batch.chosen_by, self._connect()
            answer = connection.produce(self._topic, batch.partition, batch.data, layout.u, layout.epoch)
            code = int(answer.error_code)
        except (EOFError, OSError):
            self._hang_up()
            code = int(Code.REQUEST_TIMED_OUT)
        if code != Code.NONE:
            time.sleep(_PAUSE_SECONDS)
        return code

    def _connect(self) -> DialectConnection:
        if self._connection is None:
            try:
                self._connection = DialectConnection(self._random.choice(self._bootstraps))
            except OSError:
                time.sleep(_PAUSE_SECONDS)
                raise
        return self._connection

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
