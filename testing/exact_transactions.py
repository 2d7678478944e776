"""A transactional producer of exact words, of either protocol, for tests that say what is sent and when.

It does what clients do: it finds its coordinator and the leaders by Metadata, and asks again upon what is retriable.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kordon.codecs import apis
from kordon.codecs.error_codes import Code, name_of
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.testing.plain_connection import PlainConnection

FIND_COORDINATOR: Final = 10
_METADATA: Final = 9
_INIT: Final = 4
_ADD: Final = 3
_PRODUCE: Final = {Protocol.V1: 11, Protocol.V2: 12}
_END: Final = {Protocol.V1: 4, Protocol.V2: 5}
_TRANSACTION: Final = 1
_PATIENCE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.05
RETRIABLE: Final = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.CONCURRENT_TRANSACTIONS,
    }
)


class TransactionRefused(AssertionError):  # noqa: N818 - says what happened
    """A request was answered by an error that clients do not try again upon.

    Attributes:
        code: The error code.
    """

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {name_of(code)}")
        self.code = code


class ExactTransactions:
    """One producer with a transactional id.

    Args:
        bootstrap: "host:port" of a proxy or broker.
        connect: Connects to an address, and logs in.

    Attributes:
        identity: Producer id and epoch.
        sequences: By topic and partition, the next sequence.
    """

    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        protocol: Protocol = Protocol.V1,
        connect: Callable[[str], PlainConnection] = PlainConnection,
    ) -> None:
        self._connect = connect
        self.transactional_id = transactional_id
        self.protocol = protocol
        self.identity = (-1, -1)
        self.sequences: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._bootstrap = bootstrap
        self._connections: dict[str, PlainConnection] = {}
        self._coordinator = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        for each in self._connections.values():
            each.close()
        self._connections.clear()

    def init(self, timeout_ms: int = 60_000) -> None:
        """Gets a producer id, or the next epoch of it."""
        fields = {"transactional_id": self.transactional_id, "transaction_timeout_ms": timeout_ms}

        def ask() -> Any:
            return self.coordinator().ask(apis.INIT_PRODUCER_ID, _INIT, fields)

        answer = self._insist("InitProducerId", ask, _error_code)
        self.identity = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    def add(self, topic: str, *partitions: int) -> None:
        """Adds partitions, as producers of v1 do; raises TransactionRefused."""
        self._insist("AddPartitionsToTxn", lambda: self.add_once((topic, partitions)), _worst)

    def add_once(self, *topics: tuple[str, Sequence[int]]) -> dict[tuple[str, int], int]:
        """Asks once for partitions; returns error codes."""
        fields = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.identity[0],
            "v3_and_below_producer_epoch": self.identity[1],
            "v3_and_below_topics": [{"name": name, "partitions": list(partitions)} for name, partitions in topics],
        }
        answer = self.coordinator().ask(apis.ADD_PARTITIONS_TO_TXN, _ADD, fields)
        return {
            (row.name, each.partition_index): each.partition_error_code
            for row in answer.results_by_topic_v3_and_below
            for each in row.results_by_partition
        }

    def produce(self, topic: str, partition: int, *values: str) -> int:
        """Writes a batch, until it is acknowledged; returns its base offset; raises TransactionRefused."""
        batch = self.batch(topic, partition, *values)
        answer = self._insist("Produce", lambda: self.send(topic, partition, batch), _error_code, topic)
        self.sequences[topic, partition] += len(values)
        offset: int = answer.base_offset
        return offset

    def batch(self, topic: str, partition: int, *values: str, is_transactional: bool = True) -> bytes:
        """Returns the next batch for a partition."""
        sequence = self.sequences[topic, partition]
        builder = DefaultRecordBatchBuilder(2, 0, is_transactional, *self.identity, sequence, 16_000_000)
        for offset, value in enumerate(values):
            builder.append(offset, timestamp=1_700_000_000_000, key=b"key", value=value.encode(), headers=[])
        return bytes(builder.build())

    def send(self, topic: str, partition: int, batch: bytes, **fields: Any) -> Any:
        """Sends a batch once; returns its row.

        Args:
            fields: Others of the request.
        """
        rows = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
        asked = {"transactional_id": self.transactional_id, "acks": -1, "timeout_ms": 10_000, "topic_data": rows}
        answer = self.leader(topic, partition).ask(apis.PRODUCE, _PRODUCE[self.protocol], asked | fields)
        return answer.responses[0].partition_responses[0]

    def commit(self) -> None:
        """Commits; raises TransactionRefused."""
        self._end(is_commit=True)

    def abort(self) -> None:
        """Aborts; raises TransactionRefused."""
        self._end(is_commit=False)

    def end_once(self, version: int, *, is_commit: bool) -> Any:
        """Asks once for the end; returns the answer."""
        fields = {
            "transactional_id": self.transactional_id,
            "producer_id": self.identity[0],
            "producer_epoch": self.identity[1],
            "committed": is_commit,
        }
        return self.coordinator().ask(apis.END_TXN, version, fields)

    def coordinator(self) -> PlainConnection:
        """Returns the connection to the transactional id's coordinator."""
        asked = {"key": self.transactional_id, "key_type": _TRANSACTION}
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._coordinator:
            answer = self.connection(self._bootstrap).ask(FIND_COORDINATOR, 2, asked)
            if answer.error_code == Code.NONE:
                self._coordinator = f"{answer.host}:{answer.port}"
                break
            assert time.monotonic() < deadline, name_of(answer.error_code)
            time.sleep(_PAUSE_SECONDS)
        return self.connection(self._coordinator)

    def leader(self, topic: str, partition: int) -> PlainConnection:
        """Returns the connection to a partition's leader, which is looked up each time."""
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        answer = self.connection(self._bootstrap).ask(apis.METADATA, _METADATA, asked)
        brokers = {each.node_id: f"{each.host}:{each.port}" for each in answer.brokers}
        leaders = {each.partition_index: each.leader_id for each in answer.topics[0].partitions}
        return self.connection(brokers.get(leaders.get(partition, -1), self._bootstrap))

    def connection(self, address: str) -> PlainConnection:
        """Returns the one connection to an address."""
        if address not in self._connections:
            self._connections[address] = self._connect(address)
        return self._connections[address]

    def _end(self, *, is_commit: bool) -> None:
        version = _END[self.protocol]
        answer = self._insist("EndTxn", lambda: self.end_once(version, is_commit=is_commit), _error_code)
        if self.protocol is Protocol.V2:
            self.identity = answer.producer_id, answer.producer_epoch
            self.sequences.clear()

    def _insist(self, what: str, ask: Callable[[], Any], code_of: Callable[[Any], int], topic: str = "") -> Any:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (code := code_of(answer := ask())) != Code.NONE:
            if code not in RETRIABLE or time.monotonic() > deadline:
                raise TransactionRefused(f"{what} {topic}", code)
            if code == Code.NOT_COORDINATOR:
                self._coordinator = ""
            time.sleep(_PAUSE_SECONDS)
        return answer


def _worst(codes: dict[tuple[str, int], int]) -> int:
    """Returns the error that clients go by: one that ends the transaction, else one upon which they try again."""
    found = [each for each in codes.values() if each != Code.NONE]
    return next((each for each in found if each not in RETRIABLE), found[0] if found else Code.NONE)


def _error_code(answer: Any) -> int:
    code: int = answer.error_code
    return code
