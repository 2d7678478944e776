"""Holds histories of transactions against what read_committed and read_uncommitted promise. Pure, as `checker.py`.

A transaction is committed or aborted as its producer was told. A producer that was killed, or replaced after a fatal
error, was told nothing; what it wrote down before tells: it had not begun to commit, so the transaction is aborted, or
it had, so nobody knows. Each kind of reader is judged as `checker.py` says, by what the records are for it:

| | read_committed | read_uncommitted |
| --- | --- | --- |
| of a committed transaction | acknowledged | acknowledged |
| of an aborted one | not to be shown: **aborted-read** | acknowledged if the producer was told so, or maybe there |
| of an unknown one | maybe there | acknowledged if the producer was told so, or maybe there |

Beside that, of groups with an isolation:

- **atomicity**: a group of read_committed got some records of a transaction that is not aborted, and others not. What
  is missing of a committed one is told as missing, too.
- **disagreement**: a group got other records than the first one of its isolation that began at the start. It is asked
  from where the group began itself, so a group that begins anywhere has to agree with one that began at the start.

All groups are to have read to the end: `transactional.py` writes a last record to each partition, for which they wait.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from kordon.testing.order.checker import check
from kordon.testing.order.findings import WRITES, Anomaly, Example, Findings, Verdict
from kordon.testing.order.history import (
    UNKNOWN_OFFSET,
    Acknowledged,
    Begun,
    Ended,
    Ending,
    Failed,
    Over,
    Processed,
    Read,
    RolledBack,
    Sought,
    Trouble,
    Write,
    reads,
    sources,
    writes,
)

Isolation = Literal["read_committed", "read_uncommitted"]
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
UNKNOWN: Final = "unknown"

Events = Sequence[tuple[str, Read]]


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is known of one.

    Attributes:
        outcome: committed, aborted, unknown.
        told: Answers to its records, by key and sequence; a client may keep none.
    """

    producer: str
    begun: Begun
    outcome: str
    told: Mapping[tuple[str, int], Acknowledged]


@dataclass(frozen=True, slots=True)
class Reader:
    """A group that is shown the topic by one isolation."""

    name: str
    isolation: Isolation
    events: Events
    begins_anywhere: bool = False


@dataclass(slots=True)
class TransactionsVerdict:
    """The outcome of a check."""

    verdict: Verdict
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How many transactions, by producer and outcome."""
    troubles: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    """How many errors, by producer, kind and name."""


def check_folder(folder: Path) -> TransactionsVerdict:
    """Checks the histories of a run with transactions; raises HistoryError."""
    of_groups = {each.group: each for each in sources(folder) if each.group is not None}
    readers = [
        Reader(name, _isolation(of_groups[name].isolation), list(events), of_groups[name].begins_anywhere)
        for name, events in reads(folder).items()
    ]
    return check_transactions(list(writes(folder)), readers)


def check_transactions(written: Sequence[tuple[str, Write]], readers: Sequence[Reader]) -> TransactionsVerdict:
    """Checks a history of transactions and of readers of both isolations.

    Args:
        written: As `checker.check` takes it, with what transactional producers tell.
    """
    transactions = list(_transactions(written))
    findings = Findings()
    verdict = Verdict(findings)
    for isolation in ("read_committed", "read_uncommitted"):
        whole = {r.name: r.events for r in readers if r.isolation == isolation and not r.begins_anywhere}
        shown = _shown(written, transactions, is_committed=isolation == "read_committed")
        verdict = verdict.with_other(check(shown, whole))
        if isolation == "read_committed":  # what is wrong with writes is found again by the other one
            findings.forget(WRITES)
        _agree([r for r in readers if r.isolation == isolation], findings)
    for reader in readers:
        if reader.isolation == "read_committed" and not reader.begins_anywhere:
            _check_atomicity(reader, transactions, findings)
    outcomes = Counter((each.producer, each.outcome) for each in transactions)
    troubles = Counter((who, event.kind, event.error) for who, event in written if isinstance(event, Trouble))
    return TransactionsVerdict(verdict, outcomes, troubles)


def _isolation(told: str) -> Isolation:
    return "read_committed" if told == "read_committed" else "read_uncommitted"


def _transactions(written: Iterable[tuple[str, Write]]) -> Iterator[Transaction]:
    begun: dict[tuple[str, int], Begun] = {}
    outcomes: dict[tuple[str, int], str] = {}
    told: dict[tuple[str, int], Acknowledged] = {}
    for producer, event in written:
        match event:
            case Begun():
                begun[producer, event.transaction] = event
                outcomes[producer, event.transaction] = ABORTED
            case Ending():
                outcomes[producer, event.transaction] = UNKNOWN if event.commits else ABORTED
            case Over():
                outcomes[producer, event.transaction] = event.outcome
            case Acknowledged():
                told[event.key, event.sequence] = event
            case _:
                pass
    for (producer, number), event in begun.items():
        own = {record: told[record] for record in event.records if record in told}
        yield Transaction(producer, event, outcomes[producer, number], own)


def _shown(
    written: Iterable[tuple[str, Write]], transactions: Sequence[Transaction], *, is_committed: bool
) -> Iterator[tuple[str, Write]]:
    """Returns what producers have written as it is to one isolation, in the words of `checker.check`."""
    transactional = {each.producer for each in transactions}
    for transaction in transactions:
        for place, record in enumerate(transaction.begun.records):
            yield transaction.producer, _as_shown(transaction, place, record, is_committed=is_committed)
    yield from ((producer, event) for producer, event in written if producer not in transactional)
    # what such a producer sends stands in its history before, so that nothing else can come of it, even if it is killed
    yield from ((producer, Ended(0)) for producer in transactional)


def _as_shown(transaction: Transaction, place: int, record: tuple[str, int], *, is_committed: bool) -> Write:
    key, sequence = record
    begun, answer = transaction.begun, transaction.told.get(record)
    number = begun.number + place
    if transaction.outcome == ABORTED and is_committed:
        return RolledBack(begun.time_us, number, key, sequence, begun.time_us)
    if answer is not None and (transaction.outcome == COMMITTED or not is_committed):
        return answer._replace(number=number)
    if transaction.outcome == COMMITTED:
        return Acknowledged(begun.time_us, number, key, sequence, begun.time_us, -1, UNKNOWN_OFFSET)
    return Failed(begun.time_us, number, key, sequence, begun.time_us, transaction.outcome, refused=False)


def _check_atomicity(reader: Reader, transactions: Iterable[Transaction], findings: Findings) -> None:
    got = {(event.key, event.sequence) for _, event in reader.events if isinstance(event, Processed)}
    for transaction in transactions:
        missing = [record for record in transaction.begun.records if record not in got]
        if transaction.outcome == ABORTED or not 0 < len(missing) < len(transaction.begun.records):
            continue
        (key, sequence), count = missing[0], len(transaction.begun.records)
        told = (
            f"missing with {len(missing) - 1} others of {count} of transaction {transaction.begun.transaction} of"
            f" {transaction.producer} ({transaction.outcome})"
        )
        findings.add(Anomaly.ATOMICITY, reader.name, Example(key, sequence, None, None, None, told))


def _agree(readers: Sequence[Reader], findings: Findings) -> None:
    first = next((reader for reader in readers if not reader.begins_anywhere), None)
    if first is None:
        return
    wanted = _got(first)
    for reader in readers:
        got, begins = _got(reader), _begins(reader)
        for place in sorted(wanted.keys() ^ got.keys()):
            partition, offset, key, sequence = place
            if offset >= begins[partition]:
                who, other = (reader, first) if place in got else (first, reader)
                told = f"{who.name} got it, and {other.name} did not"
                findings.add(Anomaly.DISAGREEMENT, reader.name, Example(key, sequence, partition, offset, None, told))


def _got(reader: Reader) -> dict[tuple[int, int, str, int], None]:
    events = (event for _, event in reader.events if isinstance(event, Processed))
    return {(event.partition, event.offset, event.key, event.sequence): None for event in events}


def _begins(reader: Reader) -> Mapping[int, int]:
    begins: dict[int, int] = defaultdict(int)
    if reader.begins_anywhere:
        begins |= {event.partition: event.offset for _, event in reader.events if isinstance(event, Sought)}
    return begins
