"""What is measured: cases, and how often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final


class Client(Enum):
    """Whose client sends and reads."""

    JAVA = "java"
    """Kafka's own kafka-producer-perf-test and kafka-consumer-perf-test."""
    LIBRDKAFKA = "librdkafka"
    """On confluent-kafka, by `bench/load.py`."""


@dataclass(frozen=True)
class Throughput:
    """Records are produced as fast as it goes (acks=all), then all of them are read."""

    client: Client
    connections: int
    """Producers, then consumers; each has its own connections."""
    record_bytes: int
    records: int
    """By all producers together."""
    virtual_partitions: int = 0
    """V, where managed topics are measured too: four to a partition, and as many real ones for all others."""
    topics: int = 1
    """The records are divided over so many; only librdkafka's load can do that."""

    @property
    def name(self) -> str:
        managed = f", V = {self.virtual_partitions}" if self.virtual_partitions else ""
        topics = f", {self.topics} topics" if self.topics > 1 else ""
        return f"{self.client.value} {self.connections} x {self.record_bytes} B{managed}{topics}"

    @property
    def payload_bytes(self) -> int:
        return self.records * self.record_bytes

    @property
    def partitions(self) -> int:
        """Of its topic: no consumer without one, and never fewer than six."""
        return self.virtual_partitions or max(6, self.connections)


@dataclass(frozen=True)
class Latency:
    """One connection sends at a fixed rate, far below what is possible (`bench/paced.py`)."""

    records_per_second: int
    record_bytes: int
    run_seconds: int
    warmup_seconds: int
    """Left out of the percentiles: it shows what is done once on a new connection."""

    @property
    def name(self) -> str:
        return f"latency at {self.records_per_second} records/s"


@dataclass(frozen=True)
class Memory:
    """Connections that asked once for ApiVersions and then say nothing."""

    connections: int

    @property
    def name(self) -> str:
        return f"{self.connections} idle connections"


@dataclass(frozen=True)
class Resizes:
    """A managed topic grows and shrinks while records are written to it steadily."""

    proxies: int
    """Live ones; records go through all of them."""
    resizes: int
    """Changes by one partition."""

    @property
    def name(self) -> str:
        return f"resizes with {self.proxies} {'proxy' if self.proxies == 1 else 'proxies'}"


@dataclass(frozen=True)
class Holding:
    """Every virtual partition of some managed topics has a record, and is read."""

    topics: int
    virtual_partitions: int
    """Of each topic."""

    @property
    def name(self) -> str:
        return f"{self.topics} {'topic' if self.topics == 1 else 'topics'}, V = {self.virtual_partitions}"


@dataclass(frozen=True)
class Live:
    """Consumers on librdkafka wait at the ends of all partitions, and one after the other gets a record."""

    topics: int
    partitions: int
    """Of each topic: virtual ones where it is managed."""
    consumers: int
    records_per_second: int
    seconds: int

    @property
    def name(self) -> str:
        return f"{self.topics} topics with {self.partitions} partitions, {self.records_per_second} records/s"


@dataclass(frozen=True)
class Sdk:
    """aiokafka's own clients, on a bare broker and through Kordon, beside the SDK's, which stand on them.

    All send records with keys, and idempotently; then one member of a group reads them.
    """

    record_bytes: int
    records: int

    @property
    def name(self) -> str:
        return f"SDK, {self.record_bytes} B"

    @property
    def payload_bytes(self) -> int:
        return self.records * self.record_bytes


@dataclass(frozen=True)
class Transacting:
    """One producer sends transactions, one after the other, to all partitions of a topic."""

    client: Client
    per_transaction: int
    """Records."""
    transactions: int
    warm_up: int = 100
    """Transactions before these that are not counted."""
    record_bytes: int = 1_000
    virtual_partitions: int = 12

    @property
    def name(self) -> str:
        return f"{self.client.value}, transactions of {self.per_transaction} x {self.record_bytes} B"


@dataclass(frozen=True)
class Sources:
    """Producers in a group, beside one without (`bench/sources.py`)."""

    transactions: int = 600
    rounds: int = 5
    """Of transactions."""
    takeovers: int = 5
    """By each kind of programs."""
    partitions: int = 1_000
    members: int = 100
    per_transaction: int = 500
    record_bytes: int = 100
    warm_up: int = 50

    @property
    def name(self) -> str:
        return f"sources, transactions of {self.per_transaction} x {self.record_bytes} B"

    @property
    def rebalance(self) -> str:
        """The case of one more member."""
        return f"sources, {self.partitions:,} partitions are shared by {self.members} members"

    @property
    def takeover(self) -> str:
        """The case of programs that are killed."""
        return "sources, kill -9 with a session of 6 s"


@dataclass(frozen=True)
class Groups:
    """Groups work on records of a topic of 3 partitions, each of which takes 20 ms (`bench/peers.py`)."""

    records: int = 300_000
    keys: int = 1_000
    consumers: int = 100
    """Where each works on one record at a time."""
    processes: int = 3
    """Where each works on many."""
    concurrency: int = 1_000
    """So many."""
    seconds: float = 30.0
    """At most; less if all are handled before."""
    blocked_seconds: float = 0.0
    """For which the handler of one key does not end then; 0: there is no such time."""
    rounds: int = 3

    @property
    def name(self) -> str:
        work = f"{self.records:,} records of {self.keys:,} keys"
        many = f"{self.processes} x {self.concurrency:,}"
        blocked = f", one key blocked for {self.blocked_seconds:g} s" if self.blocked_seconds else ""
        return f"{work}, {self.consumers} consumers or {many} at a time{blocked}"


@dataclass(frozen=True)
class Audited:
    """The auditor reads a day that was made up: decisions from files, batches from recorded bytes."""

    rounds: int
    """Of a micro-batch: seconds in which each stream has something acknowledged and delivered."""
    micro_batches: int = 1
    idle: int = 14
    """Micro-batches behind them with next to nothing in them."""
    topics: int = 3
    virtual: int = 96

    @property
    def name(self) -> str:
        streams = self.topics * self.virtual
        return f"audit of {self.micro_batches} x {self.rounds:,} s of {streams} streams, then {self.idle} x 1 s of one"


@dataclass(frozen=True)
class Scale:
    """What the parts of a proxy cost by their number, and changes by the number of proxies (`bench/scale.py`)."""

    counts: tuple[int, ...] = (100, 1_000, 10_000)
    proxies: tuple[int, ...] = (3, 10, 30, 100)


class Part(Enum):
    """A part of a plan that can be measured alone."""

    MEMORY = "memory"
    BASE = "base"
    LATENCY = "latency"
    MANAGED = "managed"
    LOG = "log"
    RESIZES = "resizes"
    HOLDING = "holding"
    REQUESTS = "requests"
    LIVE = "live"
    SDK = "sdk"
    TRANSACTIONS = "transactions"
    SOURCES = "sources"
    COOPERATIVE = "cooperative"
    MATRIX = "matrix"
    AUDIT = "audit"
    SCALE = "scale"


@dataclass(frozen=True)
class Plan:
    """All cases of a profile."""

    rounds: int
    base: Throughput
    """The fixed case that ratios are taken from."""
    latency: Latency
    latency_rounds: int
    """Many short ones: percentiles of single rounds differ by more than a proxy adds."""
    memory: Memory
    matrix: tuple[Throughput, ...]
    matrix_rounds: int
    managed: tuple[Throughput, ...]
    """With virtual partitions; the first one is what ratios are taken from."""
    log: Throughput
    """What the decision log costs; no case of `managed`."""
    log_rounds: int
    """Many short ones: the difference is smaller than what a machine's own restlessness makes in one."""
    resizes: tuple[Resizes, ...]
    holding: tuple[Holding, ...]
    requests: int
    """Of each kind, on each connection, in a round."""
    live: tuple[Live, ...]
    sdk: Sdk
    transactions: tuple[Transacting, ...]
    sources: Sources
    cooperative: tuple[Groups, ...]
    audit: tuple[Audited, ...]
    scale: Scale = Scale()
    with_tls: bool = True
    """Whether idle connections are counted over TLS as well."""
    parts: frozenset[Part] = frozenset(Part)
    """What of it is measured."""


_CONNECTIONS: Final = (1, 10, 100)
_RECORD_BYTES: Final = (100, 1_000, 100_000)


def _matrix(payload_bytes: int, most_records: int) -> tuple[Throughput, ...]:
    """Every number of connections with every size of record, by librdkafka."""
    return tuple(
        Throughput(Client.LIBRDKAFKA, connections, size, min(payload_bytes // size, most_records))
        for connections in _CONNECTIONS
        for size in _RECORD_BYTES
    )


def _java_sizes(payload_bytes: int, most_records: int) -> tuple[Throughput, ...]:
    """Every size of record with one Java client; a hundred virtual machines would measure themselves."""
    return tuple(Throughput(Client.JAVA, 1, size, min(payload_bytes // size, most_records)) for size in _RECORD_BYTES)


_LOGGED: Final = Throughput(Client.LIBRDKAFKA, 8, 1_000, 200_000, 24)


def _transactions(records: int, least: int, warm_up: int) -> tuple[Transacting, ...]:
    """Each client with small transactions and with large ones: what a transaction costs, and what its bytes do.

    Args:
        records: Of all transactions of a case that are counted.
        least: Transactions of a case.
        warm_up: Transactions before the small ones; before larger ones there are fewer.
    """
    return tuple(
        Transacting(client, each, max(records // each, least), max(warm_up * 100 // each, 3))
        for client in (Client.LIBRDKAFKA, Client.JAVA)
        for each in (100, 1_000, 10_000)
    )


_BLOCKED: Final = Groups(400_000, concurrency=34, seconds=15, blocked_seconds=60, rounds=1)
"""As many records at a time as where each consumer works on one, so that there are enough for so long."""
_NEARLY_NOTHING: Final = Audited(24, topics=1, virtual=24)

PROFILES: Final = {
    "full": Plan(
        rounds=5,
        base=Throughput(Client.JAVA, 1, 500, 1_000_000),
        latency=Latency(10_000, 500, run_seconds=5, warmup_seconds=1),
        latency_rounds=20,
        memory=Memory(1_000),
        matrix=_java_sizes(400_000_000, 1_000_000) + _matrix(400_000_000, 1_000_000),
        matrix_rounds=3,
        managed=(
            *(Throughput(Client.JAVA, 1, 500, 1_000_000, virtual) for virtual in (24, 96, 384)),
            *(Throughput(Client.LIBRDKAFKA, consumers, 1_000, 200_000, 24) for consumers in (1, 4, 16)),
            *(Throughput(Client.LIBRDKAFKA, 4, 1_000, 200_000, 24, topics) for topics in (10, 100)),
        ),
        log=_LOGGED,
        log_rounds=30,
        resizes=(Resizes(1, 100), Resizes(3, 100)),
        holding=tuple(Holding(*each) for each in ((1, 24), (1, 384), (10, 24), (100, 24))),
        requests=400,
        live=(Live(60, 24, 4, 0, 20), Live(60, 24, 4, 100, 20)),
        sdk=Sdk(500, 500_000),
        transactions=_transactions(200_000, 50, 200),
        sources=Sources(),
        cooperative=(Groups(), _BLOCKED),
        audit=(_NEARLY_NOTHING, Audited(75, 24), Audited(300, 12), Audited(750, 10)),
    ),
    "quick": Plan(
        rounds=3,
        base=Throughput(Client.JAVA, 1, 500, 1_000_000),
        latency=Latency(10_000, 500, run_seconds=5, warmup_seconds=1),
        latency_rounds=10,
        memory=Memory(1_000),
        matrix=_matrix(100_000_000, 200_000),
        matrix_rounds=3,
        managed=(Throughput(Client.JAVA, 1, 500, 500_000, 24), Throughput(Client.LIBRDKAFKA, 16, 1_000, 100_000, 24)),
        log=_LOGGED,
        log_rounds=15,
        resizes=(Resizes(1, 20), Resizes(3, 20)),
        holding=(Holding(1, 384), Holding(10, 24)),
        requests=200,
        live=(Live(15, 24, 4, 0, 10), Live(15, 24, 4, 100, 10)),
        sdk=Sdk(500, 250_000),
        transactions=_transactions(100_000, 30, 200),
        sources=Sources(transactions=300, rounds=3, takeovers=2),
        cooperative=(Groups(seconds=20, rounds=1), replace(_BLOCKED, records=150_000, seconds=8, blocked_seconds=20)),
        audit=(_NEARLY_NOTHING, Audited(300, 8)),
    ),
    "smoke": Plan(
        rounds=1,
        base=Throughput(Client.JAVA, 1, 500, 100_000),
        latency=Latency(2_000, 500, run_seconds=1, warmup_seconds=0),
        latency_rounds=1,
        memory=Memory(50),
        matrix=(
            Throughput(Client.LIBRDKAFKA, 1, 1_000, 10_000),
            Throughput(Client.LIBRDKAFKA, 10, 100_000, 200),
        ),
        matrix_rounds=1,
        managed=(Throughput(Client.JAVA, 1, 500, 50_000, 24),),
        log=Throughput(Client.LIBRDKAFKA, 8, 1_000, 10_000, 24),
        log_rounds=2,
        resizes=(Resizes(1, 2),),
        holding=(Holding(2, 8),),
        requests=4,
        live=(Live(2, 8, 2, 5, 2),),
        sdk=Sdk(500, 5_000),
        transactions=_transactions(2_000, 3, 10),
        sources=Sources(20, rounds=1, takeovers=0, partitions=20, members=4, warm_up=5),
        cooperative=(Groups(20_000, 100, 4, 2, 10, seconds=2, blocked_seconds=5, rounds=1),),
        audit=(Audited(24, idle=1, topics=1, virtual=24),),
        scale=Scale((10, 20), (3, 5)),
    ),
}
