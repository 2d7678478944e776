"""What the checker says of transactions: nothing of a right history, and of each wrong one exactly what is wrong."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kordon.testing.order.findings import Anomaly
from kordon.testing.order.history import (
    Acknowledged,
    Begun,
    Ended,
    Ending,
    Over,
    Processed,
    Read,
    Sought,
    Trouble,
    Write,
)
from kordon.testing.order.transactions import (
    Reader,
    TransactionsVerdict,
    check_folder,
    check_transactions,
)

PARTITIONS = 2
RECORDS = 4
"""Of each transaction."""
LAST_OFFSET = 100


@dataclass
class Imagined:
    """A writer's transactions, each of which writes two records to each of two partitions under four keys."""

    written: list[tuple[str, Write]] = field(default_factory=list)
    log: list[Processed] = field(default_factory=list)
    """All that stands in the partitions, by transaction."""

    def transact(self, *steps: Write, acknowledged: bool = True, at: int | None = None) -> None:
        """Adds a transaction; `steps` are what the writer tells after its records."""
        number = len(self.log) // RECORDS
        first, base = number * RECORDS, (number if at is None else at) * 3  # a marker follows each two records
        records = [
            Processed(0, key % PARTITIONS, base + key // PARTITIONS, f"one-{key}", number) for key in range(RECORDS)
        ]
        self.log += records
        self.written.append(("one", Begun(0, number, first, tuple((r.key, r.sequence) for r in records))))
        if acknowledged:
            self.written += [
                ("one", Acknowledged(0, first + n, r.key, r.sequence, 0, r.partition, r.offset))
                for n, r in enumerate(records)
            ]
        self.written += [
            ("one", step._replace(transaction=number)) for step in steps if isinstance(step, Ending | Over)
        ]

    def of(self, *transactions: int) -> list[Processed]:
        """Returns the records of some transactions as their partitions hold them, and the last ones."""
        found = [r for n in transactions for r in self.log[n * RECORDS : (n + 1) * RECORDS]]
        return sorted([*found, *LASTS], key=lambda r: (r.offset, r.partition))

    def check(self, *readers: Reader) -> TransactionsVerdict:
        lasts = [("last", Acknowledged(0, r.partition, r.key, 0, 0, r.partition, r.offset)) for r in LASTS]
        return check_transactions([*self.written, *lasts, ("last", Ended(9))], readers)


LASTS = [Processed(0, partition, LAST_OFFSET, f"last-{partition}", 0) for partition in range(PARTITIONS)]
COMMITTED = (Ending(0, 0, commits=True), Over(0, 0, "committed"))
ABORTED = (Ending(0, 0, commits=False), Over(0, 0, "aborted"))
KILLED_IN_COMMIT = (Ending(0, 0, commits=True),)
KILLED: tuple[Write, ...] = ()


def committed(records: Sequence[Processed], name: str = "red", *, begins: Sequence[int] = ()) -> Reader:
    sought = [(name, Sought(0, partition, offset)) for partition, offset in enumerate(begins)]
    events: list[tuple[str, Read]] = [*sought, *((name, record) for record in records)]
    return Reader(name, "read_committed", events, begins_anywhere=bool(begins))


def uncommitted(records: Sequence[Processed], name: str = "grey") -> Reader:
    return Reader(name, "read_uncommitted", [(name, record) for record in records])


@pytest.fixture
def made() -> Imagined:
    """Transactions 0 and 2 are committed, 1 is aborted, 3 was open when its writer was killed, 4 nobody knows of."""
    made = Imagined()
    for steps in (COMMITTED, ABORTED, COMMITTED, KILLED, KILLED_IN_COMMIT):
        made.transact(*steps)
    return made


@pytest.mark.parametrize("unknown", [(), (4,)])
def test_right_history_passes(made: Imagined, unknown: tuple[int, ...]) -> None:
    """A transaction that nobody knows of may be there, as long as all of it is."""
    found = made.check(committed(made.of(0, 2, *unknown)), uncommitted(made.of(0, 1, 2, 3, 4)))
    assert str(found.verdict.findings) == ""
    assert found.outcomes == {("one", "committed"): 2, ("one", "aborted"): 2, ("one", "unknown"): 1}
    assert found.verdict.accounts["red"].records == (2 + len(unknown)) * RECORDS + PARTITIONS


def test_reader_that_begins_anywhere_agrees_with_the_one_from_the_start(made: Imagined) -> None:
    """It is asked from where it has begun; what it is not shown there, or shown alone, is told."""
    whole = made.of(0, 2)
    part = [record for record in whole if record.offset >= (1, 6)[record.partition]]
    assert made.check(committed(whole), committed(part, "blue", begins=(1, 6))).verdict.passed
    found = made.check(committed(whole), committed(part[1:], "blue", begins=(1, 6))).verdict.findings
    assert found.found() == {Anomaly.DISAGREEMENT}
    more = [*part, *made.of(1)]
    found = made.check(committed(whole), committed(more, "blue", begins=(1, 6))).verdict.findings
    assert found.found() == {Anomaly.DISAGREEMENT}
    assert found.counts[Anomaly.DISAGREEMENT, "blue"] == 2, "partition 1 begins behind the first of them"


@pytest.mark.parametrize("aborted", [1, 3], ids=["aborted", "of one killed before its commit"])
def test_record_of_an_aborted_transaction_is_an_aborted_read(made: Imagined, aborted: int) -> None:
    """To read_uncommitted it is to be shown."""
    one = made.log[aborted * RECORDS]
    shown = sorted([*made.of(0, 2), one], key=lambda r: (r.offset, r.partition))
    found = made.check(committed(shown), uncommitted(made.of(0, 1, 2, 3, 4))).verdict.findings
    assert found.counts == {(Anomaly.ABORTED_READ, "red"): 1}
    assert (found.examples[Anomaly.ABORTED_READ, "red"][0].key, one.sequence) == (one.key, aborted)


def test_part_of_a_transaction_that_nobody_knows_of_is_not_atomic(made: Imagined) -> None:
    """Nothing is lost that somebody was promised."""
    found = made.check(committed([r for r in made.of(0, 2, 4) if r != made.log[-1]])).verdict.findings
    assert found.counts == {(Anomaly.ATOMICITY, "red"): 1}


def test_part_of_a_committed_transaction_is_lost_too(made: Imagined) -> None:
    """Both names fit."""
    half = [r for r in made.of(0, 2) if r not in made.log[2 * RECORDS : 2 * RECORDS + 2]]
    found = made.check(committed(half)).verdict.findings
    assert found.counts == {(Anomaly.ATOMICITY, "red"): 1, (Anomaly.LOST_WRITE, "red"): 2}


@pytest.mark.parametrize("acknowledged", [True, False], ids=["with offsets", "of a client that tells none"])
def test_whole_transaction_that_is_missing_is_lost(*, acknowledged: bool) -> None:
    """What was committed is promised, whether or not the client has told where it stands."""
    made = Imagined()
    for _ in range(3):
        made.transact(*COMMITTED, acknowledged=acknowledged)
    found = made.check(committed(made.of(0, 2))).verdict.findings
    assert found.counts == {(Anomaly.LOST_WRITE, "red"): RECORDS}


def test_record_that_stands_twice_is_a_duplicate(made: Imagined) -> None:
    """A retry of a committed one, behind a later transaction."""
    again = made.log[0]._replace(offset=50)
    shown = sorted([*made.of(0, 2), again], key=lambda r: (r.offset, r.partition))
    found = made.check(committed(shown)).verdict.findings
    assert found.counts == {(Anomaly.DUPLICATE, "red"): 1}


def test_record_that_was_passed_over_and_came_later_is_a_poll_skip(made: Imagined) -> None:
    """The reader had to begin its partition anew to get it."""
    whole = made.of(0, 2)
    skipped = whole[2]
    events: list[tuple[str, Read]] = [("red", r) for r in whole if r != skipped]
    events += [
        ("red", Sought(0, skipped.partition, 0)),
        *(("red", r) for r in whole if r.partition == skipped.partition),
    ]
    found = made.check(Reader("red", "read_committed", events)).verdict.findings
    assert found.counts == {(Anomaly.POLL_SKIP, "red"): 1}


def test_later_transaction_that_stands_first_is_nonmonotonic(made: Imagined) -> None:
    """Two transactions of one writer: the log has turned them round."""
    made.transact(*COMMITTED, at=8)
    made.transact(*COMMITTED, at=7)
    found = made.check(committed(made.of(0, 2, 5, 6))).verdict.findings
    assert found.counts == {(Anomaly.NONMONOTONIC_SEND, "writes"): RECORDS}


def test_acknowledged_record_of_an_aborted_transaction_is_missed_by_read_uncommitted(made: Imagined) -> None:
    """Kafka shows it, and so it is promised."""
    found = made.check(uncommitted(made.of(0, 2, 3, 4))).verdict.findings
    assert found.counts == {(Anomaly.LOST_WRITE, "grey"): RECORDS}


def test_record_that_nobody_sent_is_g1a(made: Imagined) -> None:
    """A killed writer has told what it was about to send, so that nothing else can be its own."""
    foreign = Processed(0, 0, 60, "one-0", 77)
    found = made.check(committed(sorted([*made.of(0, 2), foreign], key=lambda r: r.offset))).verdict.findings
    assert found.counts == {(Anomaly.G1A, "red"): 1}


def test_history_of_transactions_is_read_from_files(tmp_path: Path) -> None:
    """The lives of a writer are one producer, and its troubles are counted."""
    lines = {
        "one.0": [
            {"producer": "one"}, {"e": "begun", "t": 1, "x": 0, "n": 0, "r": [["one-0", 0]]},
            {"e": "acked", "t": 2, "n": 0, "k": "one-0", "s": 0, "sent": 0, "p": 0, "o": 0},
            {"e": "ending", "t": 3, "x": 0, "commits": True},
            {"e": "trouble", "t": 4, "kind": "fatal", "error": "_FENCED"},
        ],
        "one.1": [
            {"producer": "one"}, {"e": "begun", "t": 5, "x": 9, "n": 9, "r": [["one-0", 9]]},
            {"e": "ending", "t": 6, "x": 9, "commits": True}, {"e": "over", "t": 7, "x": 9, "outcome": "committed"},
        ],
        "red": [
            {"group": "red", "member": "red", "isolation": "read_committed", "begins": "2"},
            {"e": "sought", "t": 8, "p": 0, "o": 2}, {"e": "processed", "t": 9, "p": 0, "o": 2, "k": "one-0", "s": 9},
        ],
        "blue": [
            {"group": "blue", "member": "blue", "isolation": "read_committed"},
            {"e": "processed", "t": 9, "p": 0, "o": 2, "k": "one-0", "s": 9},
        ],
    }  # fmt: skip
    for name, told in lines.items():
        (tmp_path / f"{name}.history").write_text("".join(json.dumps(line) + "\n" for line in told))
    found = check_folder(tmp_path)
    assert found.verdict.passed, str(found.verdict.findings)
    assert found.outcomes == {("one", "unknown"): 1, ("one", "committed"): 1}
    assert found.troubles == {("one", "fatal", "_FENCED"): 1}
    assert Trouble(4, "fatal", "_FENCED").kind == "fatal"
