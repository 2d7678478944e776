"""A producer of exact words: it says which id, epoch and sequence a request has, and how the answer is written down."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, Final, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kordon.codecs import apis
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.headers import parse_response_header
from kordon.codecs.messages import response
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.waiting import wait_until

WRITTEN: Final = "written"
KNOWN: Final = "known, at its offset"
KNOWN_WITHOUT_OFFSET: Final = "known, no offset"

_TRANSACTION: Final = 1
"""The kind of coordinator."""
_FIND_COORDINATOR: Final = 1
_API_VERSIONS: Final = 0
_PRODUCE: Final = 8
_ADD_PARTITIONS: Final = 1
_END_TXN: Final = 1
_DELETE_RECORDS: Final = 1
_DESCRIBE_PRODUCERS: Final = 0
"""Versions that all brokers here take."""
_TIMEOUT_MS: Final = 60_000
_STARTING: Final = frozenset({Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR})
_COMING: Final = frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION, Code.LEADER_NOT_AVAILABLE, Code.NOT_LEADER_OR_FOLLOWER})
"""What a broker answers that has not heard of a new topic yet; nothing is written then."""
_AT_ONCE: Final = 500
"""Requests that are under way together; a broker takes those of one connection one by one."""
NO_ID: Final = -1


class Identity(NamedTuple):
    """What a broker knows a producer by."""

    producer_id: int
    epoch: int

    def at(self, epoch: int) -> Identity:
        """Returns the same producer in another epoch."""
        return Identity(self.producer_id, epoch)


NOBODY: Final = Identity(NO_ID, NO_ID)
"""What a new instance says of itself."""


@dataclass(frozen=True)
class Stage:
    """Where the requests go."""

    bootstrap: str
    """host:port of a broker or a Kordon."""
    topic: str
    """Where is written."""
    ordinary: str
    """A topic that takes transactions."""
    partition: int = 0
    emptied: int = 1
    """The partition whose records are deleted."""


class Client(PlainConnection):
    """Asks as a producer does; answers are words that are the same wherever the same was answered.

    Ids are letters in the order in which they came, so that `A 1` is the first id in its epoch 1.
    """

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage.bootstrap)
        self.stage = stage
        self.transactional_id = f"{stage.topic}-{name}"
        self.last = NOBODY
        """What the last InitProducerId without an error has given."""
        self._letters: dict[int, str] = {}
        self._offsets: dict[tuple[Identity, int], int] = {}

    def go_on_at(self, bootstrap: str) -> None:
        """Goes on as the same producer on another connection."""
        self.close()
        PlainConnection.__init__(self, bootstrap)

    def wait_for_coordinator(self) -> None:
        """Returns when transactional ids are served, which begins with the first that asks."""
        asked = {"key": self.transactional_id, "key_type": _TRANSACTION}
        wait_until(
            "there is a coordinator",
            lambda: self.ask(apis.FIND_COORDINATOR, _FIND_COORDINATOR, asked).error_code == Code.NONE,
        )

    def newest_init(self) -> int:
        """The newest version of InitProducerId that is offered here; its answers are those of 4 from there on."""
        offered = self.ask(apis.API_VERSIONS, _API_VERSIONS, {}).api_keys
        (newest,) = (each.max_version for each in offered if each.api_key == apis.INIT_PRODUCER_ID)
        return min(int(newest), 5)

    def init(self, given: Identity = NOBODY, version: int = 1) -> str:
        """InitProducerId of the client's transactional id; waits only while its coordinator starts.

        Args:
            given: What a producer has been; from version 3 on.
        """
        return self._init(self.transactional_id, given, version)

    def init_without_transactions(self, given: Identity = NOBODY, version: int = 1) -> str:
        """InitProducerId of a producer that is idempotent only."""
        return self._init(None, given, version)

    def new_producer(self) -> Identity:
        """Returns an id of the client's own, in epoch 0."""
        self.init_without_transactions()
        return self.last

    def _init(self, transactional_id: str | None, given: Identity, version: int) -> str:
        fields = _init_fields(transactional_id, given)

        def answered() -> Any:
            answer = self.ask(apis.INIT_PRODUCER_ID, version, fields)
            return None if answer.error_code in _STARTING else answer

        answer = wait_until("the coordinator answers", answered)
        if answer.error_code != Code.NONE:
            return name_of(answer.error_code)
        self.last = Identity(answer.producer_id, answer.producer_epoch)
        return self.word(self.last)

    def word(self, identity: Identity) -> str:
        """Returns how an id and epoch are written down."""
        letter = self._letters.setdefault(identity.producer_id, ascii_uppercase[len(self._letters)])
        return f"{letter} {identity.epoch}"

    def init_many(self, given: Iterable[Identity], version: int) -> Identity:
        """InitProducerId again and again, each by what is given; returns what the last one was given.

        Raises:
            AssertionError: One of them was refused.
        """
        asked = [_init_fields(self.transactional_id, each) for each in given]
        for first in range(0, len(asked), _AT_ONCE):
            some = asked[first : first + _AT_ONCE]
            self._send_all([self._frame(apis.INIT_PRODUCER_ID, version, fields) for fields in some])
            for _ in some:
                answer = self._answer(apis.INIT_PRODUCER_ID, version)
                assert answer.error_code == Code.NONE, name_of(answer.error_code)
                self.last = Identity(answer.producer_id, answer.producer_epoch)
        self.word(self.last)
        return self.last

    def begin(self, identity: Identity) -> str:
        """Adds a partition of the ordinary topic to a transaction."""
        fields = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": identity.producer_id,
            "v3_and_below_producer_epoch": identity.epoch,
            "v3_and_below_topics": [{"name": self.stage.ordinary, "partitions": [0]}],
        }

        def answered() -> str:
            (topic,) = self.ask(apis.ADD_PARTITIONS_TO_TXN, _ADD_PARTITIONS, fields).results_by_topic_v3_and_below
            code = topic.results_by_partition[0].partition_error_code
            return "" if code in _COMING else name_of(code)

        return wait_until("the partition is there", answered)

    def end(self, identity: Identity) -> str:
        """Asks for an abort."""
        fields = {
            "transactional_id": self.transactional_id,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.epoch,
            "committed": False,
        }
        return name_of(self.ask(apis.END_TXN, _END_TXN, fields).error_code)

    def write(self, identity: Identity, sequence: int, partition: int | None = None) -> str:
        """Writes a batch of one record with acks=all.

        Returns:
            The error; or whether the batch was written now, or is said to have been written before.
        """
        place = self.stage.partition if partition is None else partition
        rows = [{"index": place, "records": _batch(identity, sequence)}]
        topics = [{"name": self.stage.topic, "partition_data": rows}]
        fields = {"acks": -1, "timeout_ms": _TIMEOUT_MS, "topic_data": topics}

        def answered() -> Any:
            found = self.ask(apis.PRODUCE, _PRODUCE, fields).responses[0].partition_responses[0]
            return None if found.error_code in _COMING else found

        row = wait_until("the partition is there", answered)
        if row.error_code != Code.NONE:
            return name_of(row.error_code)
        if row.base_offset == -1:
            return KNOWN_WITHOUT_OFFSET
        batch = identity, sequence
        before = self._offsets.get(batch)
        self._offsets[batch] = row.base_offset
        return KNOWN if before == row.base_offset else WRITTEN

    def write_first(self, identity: Identity, count: int, partition: int | None = None) -> None:
        """Writes the first batches of an epoch; raises AssertionError if one is not taken."""
        told = [self.write(identity, sequence, partition) for sequence in range(count)]
        assert told == [WRITTEN] * count, told

    def empty(self) -> None:
        """Deletes all records of one partition."""
        rows = [{"partition_index": self.stage.emptied, "offset": -1}]
        fields = {"topics": [{"name": self.stage.topic, "partitions": rows}], "timeout_ms": _TIMEOUT_MS}
        answer = self.ask(apis.DELETE_RECORDS, _DELETE_RECORDS, fields)
        assert answer.topics[0].partitions[0].error_code == Code.NONE

    def known_producers(self) -> set[int]:
        """The ids that the partition's leader remembers."""
        asked = {"topics": [{"name": self.stage.topic, "partition_indexes": [self.stage.partition]}]}
        (topic,) = self.ask(apis.DESCRIBE_PRODUCERS, _DESCRIBE_PRODUCERS, asked).topics
        (row,) = topic.partitions
        assert row.error_code == Code.NONE
        return {each.producer_id for each in row.active_producers}

    def _send_all(self, frames: list[bytes]) -> None:
        self._socket.sendall(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))

    def _answer(self, api_key: int, version: int) -> Any:
        frame = self._read(int.from_bytes(self._read(4), "big"))
        _, consumed = parse_response_header(api_key, version, frame)
        return response(api_key).parse(version, frame[consumed:])


def _batch(identity: Identity, sequence: int) -> bytes:
    """Returns one record that is new: brokers forget a producer by the age of what it has written."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, *identity, sequence, 16_000_000)
    builder.append(0, timestamp=int(time.time() * 1000), key=b"key", value=b"value", headers=[])
    return bytes(builder.build())


def _init_fields(transactional_id: str | None, given: Identity) -> Mapping[str, Any]:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": _TIMEOUT_MS,
        "producer_id": given.producer_id,
        "producer_epoch": given.epoch,
    }
