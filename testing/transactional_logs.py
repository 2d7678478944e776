"""Physical partitions in memory that hold transactions, and random histories of them, for tests of readers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

from hypothesis import strategies as st

from kordon.codecs import apis
from kordon.codecs.records import CRC_AT, CRC_FROM
from kordon.codecs.retag import crc32c, retag
from kordon.codecs.split import filler
from kordon.proxy.kafka.batches import BatchIdentity, Copy, build_copies
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.kafka.transaction_coordinators import STATE_TOPIC
from kordon.proxy.kafka.witness_batch import build_witness
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import tag, writer_id
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.transactions.absences import Absence, Absences
from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Batch, Event, Marker, Protocol, Witness
from kordon.proxy.ordering.transactions.outcome import Outcome, outcome_of
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.fake_broker import Answer, Asked, led
from kordon.testing.random_logs import FACE_ID, LEADER_EPOCH, NAME, Log, LogBroker

_COMMIT = bytes.fromhex("08 0000 0001")
_ABORT = bytes.fromhex("08 0000 0000")


def marker(producer_id: int, epoch: int, *, is_commit: bool) -> bytes:
    """Makes what a coordinator writes at the end of a transaction."""
    built = bytearray(filler(0, 1, -1))
    retag(built, 0, producer_id, epoch, -1)
    if not is_commit:
        at = built.rindex(_COMMIT)
        built[at : at + len(_ABORT)] = _ABORT
        built[CRC_AT:CRC_FROM] = crc32c(built[CRC_FROM:]).to_bytes(4, "big")
    return bytes(built)


class Written(NamedTuple):
    """A batch for readers of a virtual partition."""

    v: int
    partition: int
    move: int
    offset: int
    values: tuple[str, ...]
    txn: Batch | None
    """None: of no transaction."""


@dataclass
class History:
    """What stands in the logs of a topic, and what becomes of it.

    Attributes:
        open_at: Producers whose transactions coordinators have open, by physical partition.
    """

    layout: Layout
    logs: dict[int, Log]
    written: list[Written] = field(default_factory=list)
    events: dict[int, list[Event]] = field(default_factory=dict)
    open_at: set[tuple[int, int]] = field(default_factory=set)

    @classmethod
    def begun(cls, n: int, v_count: int) -> History:
        layout = replace(Layout.created(NAME, UUID(int=1), n, v_count), has_transactions=True)
        return cls(layout, {q: Log() for q in range(v_count)}, events={q: [] for q in range(v_count)})

    def witness(self, q: int, producer_id: int, epoch: int, protocol: Protocol) -> None:
        offset = self.logs[q].write(build_witness(BatchIdentity(producer_id, epoch, 0), protocol))
        self.events[q].append(Witness(offset, producer_id, epoch))

    def mark(self, q: int, producer_id: int, epoch: int, *, is_commit: bool) -> None:
        offset = self.logs[q].write(marker(producer_id, epoch, is_commit=is_commit))
        self.events[q].append(Marker(offset, producer_id, epoch, is_commit))

    def write(self, v: int, values: tuple[str, ...], producer_id: int = 9, epoch: int = 0, **more: Any) -> None:
        """Writes a batch to where a virtual partition lives; `protocol` is its transaction's, `at_ms` its time."""
        protocol: Protocol | None = more.get("protocol")
        home = self.layout.chains[v].home
        assert home is not None
        identity = BatchIdentity(tag(v, home.move, writer_id(producer_id, protocol)), epoch, 0)
        at_ms: int = more.get("at_ms", 1_000)
        batch = build_copies([Copy(value.encode(), value.encode(), at_ms) for value in values], identity)
        offset = self.logs[home.partition].write(batch)
        txn = Batch(offset, producer_id, epoch, protocol) if protocol is not None else None
        self.written.append(Written(v, home.partition, home.move, offset, values, txn))

    def grow(self, u: int) -> None:
        ends = {q: log.end for q, log in self.logs.items()}
        self.layout = self.layout.changed(self.layout.next_epoch(u), ends)

    def index(self, q: int) -> EventIndex:
        """Returns all events of a log."""
        index = EventIndex(0, LEADER_EPOCH)
        for event in self.events[q]:
            index.take(event)
        index.read_to(self.logs[q].end)
        return index

    def outcome(self, written: Written) -> Outcome:
        """Returns what becomes of a batch once everything that can be known is known."""
        if written.txn is None:
            return Outcome.COMMITTED
        absences, end = Absences(), self.logs[written.partition].end
        if (written.partition, written.txn.producer_id) not in self.open_at:
            absences.prove(written.txn.producer_id, Absence(end, end, LEADER_EPOCH))
        return outcome_of(written.txn, self.index(written.partition), absences)

    def stays(self, v: int) -> Iterator[tuple[Stay, list[Written]]]:
        """Yields the stays of a virtual partition with what was written in each."""
        for stay in self.layout.chains[v].stays:
            here = (each for each in self.written if stay.holds(each.offset))
            owner = v, stay.partition, stay.move
            yield stay, [each for each in here if (each.v, each.partition, each.move) == owner]

    def last_stable_offset(self, q: int) -> int:
        """Returns what a broker says: where its first open transaction begins."""
        opened: dict[int, int] = {}
        for event in self.events[q]:
            if isinstance(event, Marker):
                opened.pop(event.producer_id, None)
            else:
                opened.setdefault(event.producer_id, event.offset)
        return min(opened.values(), default=self.logs[q].end)

    def given(self, v: int, start: int, *, is_committed: bool) -> tuple[list[str], int]:
        """Returns what a reader gets from a virtual offset on, and where it stands then."""
        values: list[str] = []
        for stay, written in self.stays(v):
            for each in written:
                at = each.offset + stay.delta
                if at + len(each.values) <= start:
                    continue
                outcome = self.outcome(each)
                if is_committed and outcome is Outcome.UNDECIDED:
                    return values, max(at, start)
                if not is_committed or outcome is Outcome.COMMITTED:
                    values += each.values[max(start - at, 0) :]
        home = self.layout.chains[v].stays[-1]
        return values, self.logs[home.partition].end + home.delta

    def stable_end(self, v: int) -> int:
        """Returns the last stable offset of a virtual partition: looked for where brokers know open transactions."""
        for stay, written in self.stays(v):
            begin = self.last_stable_offset(stay.partition)
            undecided = (each for each in written if self.outcome(each) is Outcome.UNDECIDED)
            first = next((each.offset + stay.delta for each in undecided if each.offset >= begin), None)
            if first is not None:
                return first
        home = self.layout.chains[v].stays[-1]
        return self.logs[home.partition].end + home.delta


class TransactionBroker(LogBroker):
    """Answers for the logs of a history, and as the coordinator of its transactions."""

    def __init__(self, history: History, most_bytes: int) -> None:
        super().__init__(history.logs, most_bytes)
        self.topics[STATE_TOPIC] = led(range(1))
        self.history = history
        self.told_epoch = LEADER_EPOCH
        """By ListOffsets."""
        self.handlers[apis.LIST_TRANSACTIONS] = self._list
        self.handlers[apis.DESCRIBE_TRANSACTIONS] = self._describe

    def _list_offsets(self, asked: Asked) -> Any:
        told: Any = super()._list_offsets(asked)
        for row in told["topics"][0]["partitions"]:
            row["leader_epoch"] = self.told_epoch
            if asked.body.isolation_level:
                row["offset"] = min(row["offset"], self.history.last_stable_offset(row["partition_index"]))
        return told

    def _read(self, row: Any) -> dict[str, Any]:
        return super()._read(row) | {"last_stable_offset": self.history.last_stable_offset(row.partition)}

    def _list(self, asked: Asked) -> Answer:
        wanted = set(asked.body.producer_id_filters)
        ids = {producer_id for _, producer_id in self.history.open_at if not wanted or producer_id in wanted}
        rows = [{"transactional_id": str(each), "producer_id": each, "transaction_state": "Ongoing"} for each in ids]
        return {"error_code": 0, "unknown_state_filters": [], "transaction_states": rows}

    def _describe(self, asked: Asked) -> Answer:
        return {"transaction_states": [self._state(each) for each in asked.body.transactional_ids]}

    def _state(self, transactional_id: str) -> dict[str, Any]:
        qs = [q for q, producer_id in self.history.open_at if str(producer_id) == transactional_id]
        return {
            "error_code": 0 if qs else 105,
            "transactional_id": transactional_id,
            "transaction_state": "Ongoing",
            "transaction_timeout_ms": 60_000,
            "transaction_start_time_ms": 0,
            "producer_id": int(transactional_id) if qs else -1,
            "producer_epoch": 0,
            "topics": [{"topic": NAME, "partitions": qs}] if qs else [],
        }


_BROKERS: WeakKeyDictionary[WorkerReads, TransactionBroker] = WeakKeyDictionary()


def readers_of_history(history: History, most_bytes: int, cache_bytes: int) -> tuple[WorkerReads, ManagedTopic]:
    """Makes a worker's readers in front of such a broker."""
    topics = ManagedTopics()
    topic = ManagedTopic(history.layout, FACE_ID)
    topics.add(topic)
    broker = TransactionBroker(history, most_bytes)
    reads = WorkerReads(topics, broker, Leaders(broker), cache_bytes=cache_bytes)
    _BROKERS[reads] = broker
    return reads, topic


def broker_of(reads: WorkerReads) -> TransactionBroker:
    """Returns the broker that readers are in front of."""
    return _BROKERS[reads]


@dataclass
class _Drawn:
    """A producer of a random history."""

    producer_id: int
    protocol: Protocol
    epoch: int = 0


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Transactions in which nearly everything happens that a log can hold, over a growth or none."""
    n = draw(st.integers(1, 2))
    history = History.begun(n, 2 * n)
    producers = [_Drawn(number, draw(st.sampled_from(Protocol))) for number in range(1, draw(st.integers(1, 3)) + 1)]
    for number in range(draw(st.integers(1, 40))):
        _step(draw, history, draw(st.sampled_from(producers)), f"{number}")
    for q in history.logs:
        history.open_at |= {(q, each.producer_id) for each in producers if draw(st.booleans())}
    return history


_STEPS = ("witness", "data", "data", "data", "commit", "commit", "abort", "plain", "late", "repeated", "epoch", "grow")


def _step(draw: st.DrawFn, history: History, producer: _Drawn, name: str) -> None:
    v = draw(st.integers(0, history.layout.v_count - 1))
    home = history.layout.chains[v].home
    assert home is not None
    q, after = home.partition, producer.epoch + (producer.protocol is Protocol.V2)
    values = tuple(f"{v}:{name}:{each}" for each in range(draw(st.integers(1, 2))))
    match draw(st.sampled_from(_STEPS)):
        case "witness":
            history.witness(q, producer.producer_id, producer.epoch, producer.protocol)
        case "data":
            history.write(v, values, producer.producer_id, producer.epoch, protocol=producer.protocol)
        case "late":
            history.write(v, values, producer.producer_id, max(producer.epoch - 1, 0), protocol=producer.protocol)
        case "commit" | "abort" as how:
            history.mark(q, producer.producer_id, after, is_commit=how == "commit")
            producer.epoch = after
        case "repeated":
            history.mark(q, producer.producer_id, producer.epoch, is_commit=draw(st.booleans()))
        case "epoch":
            producer.epoch += 1
        case "grow":
            if history.layout.u < history.layout.v_count:
                history.grow(history.layout.u + 1)
        case _:
            history.write(v, values)
