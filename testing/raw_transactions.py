"""Transactions as Kordon writes them to a managed topic, request by request, straight to a broker that leads all.

The coordinator, its markers and what brokers verify are real; only who decides what is written is the test.
"""

from __future__ import annotations

from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.error_codes import Code, name_of
from kordon.proxy.kafka.batches import BatchIdentity, Copy, build_copies
from kordon.proxy.kafka.witness_batch import build_witness
from kordon.proxy.ordering.identity import tag, writer_id
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.waiting import wait_until

_INIT: Final = {Protocol.V1: 3, Protocol.V2: 5}
_PRODUCE: Final = {Protocol.V1: 9, Protocol.V2: 12}
_ADD: Final = 3
_END: Final = {Protocol.V1: 3, Protocol.V2: 5}
"""Versions by which brokers tell the protocols apart."""
_TIMEOUT_MS: Final = 60_000
_AGAIN: Final = frozenset(
    {
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.NOT_COORDINATOR,
        Code.CONCURRENT_TRANSACTIONS,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NOT_LEADER_OR_FOLLOWER,
    }
)
_FIND_COORDINATOR: Final = 1


class RawTransactions:
    """A transactional producer of one protocol; each step raises AssertionError if a broker refuses it."""

    def __init__(self, bootstrap: str, transactional_id: str, protocol: Protocol) -> None:
        self._link = PlainConnection(bootstrap)
        self._transactional_id = transactional_id
        self._protocol = protocol
        self._witnesses: dict[tuple[str, int], int] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        asked = {"key": transactional_id, "key_type": 1}
        self._until_taken(lambda: self._link.ask(apis.FIND_COORDINATOR, _FIND_COORDINATOR, asked).error_code)
        self.producer_id, self.epoch = self._init()

    def close(self) -> None:
        """Closes the connection; an open transaction stays open."""
        self._link.close()

    def add(self, topic: str, partition: int) -> None:
        """Has the coordinator add a partition (AddPartitionsToTxn); on v2 the witness does."""
        fields = {f"v3_and_below_{name}": value for name, value in self._who().items()}
        fields["v3_and_below_topics"] = [{"name": topic, "partitions": [partition]}]

        def asked() -> int:
            (told,) = self._link.ask(apis.ADD_PARTITIONS_TO_TXN, _ADD, fields).results_by_topic_v3_and_below
            code: int = told.results_by_partition[0].partition_error_code
            return code

        self._until_taken(asked)

    def witness(self, topic: str, partition: int) -> None:
        """Writes a witness."""
        sequence = self._witnesses.get((topic, partition), 0) if self._protocol is Protocol.V1 else 0
        batch = build_witness(BatchIdentity(self.producer_id, self.epoch, sequence), self._protocol)
        self._produce(topic, partition, batch, self._transactional_id)
        self._witnesses[topic, partition] = sequence + 1

    def write(self, topic: str, partition: int, v: int, value: str, move: int = 0) -> None:
        """Writes a record of a virtual partition, under its tag and outside of what brokers take for a transaction."""
        sequence = self._sequences.get((topic, v), 0)
        writer = tag(v, move, writer_id(self.producer_id, self._protocol))
        batch = build_copies([Copy(b"key", value.encode(), None)], BatchIdentity(writer, self.epoch, sequence))
        self._produce(topic, partition, batch, None)
        self._sequences[topic, v] = sequence + 1

    def end(self, *, is_commit: bool = True) -> None:
        """Ends the transaction; markers may come a little later (the next one waits for them)."""

        def asked() -> int:
            answer = self._link.ask(apis.END_TXN, _END[self._protocol], {**self._who(), "committed": is_commit})
            if not answer.error_code and self._protocol is Protocol.V2:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
            code: int = answer.error_code
            return code

        self._until_taken(asked)

    def _init(self) -> tuple[int, int]:
        found: list[tuple[int, int]] = []

        def asked() -> int:
            fields = {"transactional_id": self._transactional_id, "transaction_timeout_ms": _TIMEOUT_MS}
            answer = self._link.ask(apis.INIT_PRODUCER_ID, _INIT[self._protocol], fields)
            found.append((answer.producer_id, answer.producer_epoch))
            code: int = answer.error_code
            return code

        self._until_taken(asked)
        return found[-1]

    def _who(self) -> dict[str, Any]:
        return {
            "transactional_id": self._transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def _produce(self, topic: str, partition: int, batch: bytes, transactional_id: str | None) -> None:
        row = {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
        fields = {"transactional_id": transactional_id, "acks": -1, "timeout_ms": _TIMEOUT_MS, "topic_data": [row]}

        def asked() -> int:
            answer = self._link.ask(apis.PRODUCE, _PRODUCE[self._protocol], fields)
            code: int = answer.responses[0].partition_responses[0].error_code
            return code

        self._until_taken(asked)

    @staticmethod
    def _until_taken(ask: Any) -> None:
        def answered() -> str:
            code = ask()
            return "" if code in _AGAIN else name_of(code)

        told = wait_until("the broker takes it", answered)
        assert told == name_of(Code.NONE), told
