"""A transactional producer on librdkafka: `python -m kordon.bench.transact` prints what it took as JSON.

`bench/java/TransactLoad.java` does the same with Kafka's own producer, and prints the same.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from confluent_kafka import Producer

KEYS: Final = 1_000
LINGER_MS: Final = 5
BATCH_BYTES: Final = 64 * 1024
PATIENCE_SECONDS: Final = 120.0


class TransactError(RuntimeError):
    """Records were refused."""


@dataclass(frozen=True)
class Load:
    """What to send.

    Attributes:
        per_transaction: Records.
        warm_up: Transactions before these that are not counted: the first one of a managed topic waits for its layout.
        is_plain: Without transactions: an idempotent producer waits for its answers where the other one commits.
    """

    bootstrap: str
    topic: str
    record_bytes: int
    per_transaction: int
    transactions: int
    warm_up: int
    is_plain: bool = False


@dataclass(frozen=True)
class Done:
    """What it took.

    Attributes:
        seconds: From the first record to the last commit.
        p50_ms, p99_ms: From asking for a commit until it is confirmed; what is unsent is sent in that time.
    """

    seconds: float
    p50_ms: float
    p99_ms: float


def transact(load: Load) -> Done:
    """Sends all, one transaction after the other.

    Raises:
        TransactError: A record was not acknowledged.
        KafkaException: A transaction failed.
    """
    failures: list[str] = []

    def reported(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    settings: dict[str, Any] = {
        "bootstrap.servers": load.bootstrap,
        "linger.ms": LINGER_MS,
        "batch.size": BATCH_BYTES,
        "delivery.report.only.error": True,
        "on_delivery": reported,
    }
    name = {"enable.idempotence": True} if load.is_plain else {"transactional.id": f"bench-{load.topic}"}
    producer = Producer(settings | name)
    if not load.is_plain:
        producer.init_transactions(PATIENCE_SECONDS)
    end = _flush(producer) if load.is_plain else lambda: producer.commit_transaction(PATIENCE_SECONDS)
    _many(producer, load, load.warm_up, end)
    began = time.monotonic()
    commits_ms = _many(producer, load, load.transactions, end)
    seconds = time.monotonic() - began
    if failures:
        raise TransactError(f"{len(failures)} records were refused: {failures[0]}")
    percentiles = statistics.quantiles(commits_ms, n=100, method="inclusive")
    return Done(seconds, percentiles[49], percentiles[98])


def _many(producer: Producer, load: Load, transactions: int, end: Callable[[], object]) -> list[float]:
    """Sends so many transactions; returns how long each commit took, in milliseconds."""
    value, commits_ms = os.urandom(load.record_bytes), []
    for number in range(transactions):
        if not load.is_plain:
            producer.begin_transaction()
        for record in range(load.per_transaction):
            producer.produce(load.topic, value, f"key-{(number * load.per_transaction + record) % KEYS}")
        producer.poll(0)
        asked = time.monotonic()
        end()
        commits_ms.append((time.monotonic() - asked) * 1e3)
    return commits_ms


def _flush(producer: Producer) -> Callable[[], object]:
    def flush() -> None:
        if left := producer.flush(PATIENCE_SECONDS):
            raise TransactError(f"{left} records were not sent")

    return flush


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one load and prints a `Done` as JSON."""
    parser = argparse.ArgumentParser(prog="python -m kordon.bench.transact")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--record-bytes", type=int, required=True)
    parser.add_argument("--per-transaction", type=int, required=True)
    parser.add_argument("--transactions", type=int, required=True)
    parser.add_argument("--warm-up", type=int, required=True)
    parser.add_argument("--is-plain", action="store_true", help="without transactions")
    print(json.dumps(asdict(transact(Load(**vars(parser.parse_args(arguments)))))))


if __name__ == "__main__":
    main()
