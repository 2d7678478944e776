"""What is known of transactions in a log: whoever waits for a batch learns of it, however many others wait as well."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from kordon.proxy.ordering.transactions.events import Batch, Event, Marker, Protocol, Witness
from kordon.proxy.ordering.transactions.outcome import Outcome
from kordon.proxy.reads import log_transactions
from kordon.proxy.reads.log_transactions import LogTransactions

FEW = 5
"""Producers for whom a log is read again, in these tests."""
CHUNK = 20
"""Offsets that one read brings."""


class Log:
    """A log whose events are read a few at a time; all but the newest are forgotten at once."""

    def __init__(self, events: Collection[Event], end: int) -> None:
        self.events = events
        self.end = end
        self.reads = 0
        self.known = LogTransactions(lambda: 0, most_events=1)
        for start in range(0, end, CHUNK):
            self.bring(start)

    def bring(self, start: int) -> None:
        """Reads what stands from an offset on."""
        self.reads += 1
        end = min(start + CHUNK, self.end)
        self.known.take(start, end, [each for each in self.events if start <= each.offset < end])

    def ask(self, batch: Batch) -> Outcome:
        """Is one request of a reader that stands in front of a batch: it reads on once."""
        outcome = self.known.decide(batch)
        if outcome is Outcome.UNDECIDED and (at := self.known.needs(batch)) < self.end:
            self.bring(at)
            outcome = self.known.decide(batch)
        return outcome


def batch(offset: int, producer_id: int) -> Batch:
    """Data of the first protocol."""
    return Batch(offset, producer_id, 5, Protocol.V1)


def committed(producers: int, behind: int) -> list[Event]:
    """Markers of producers, far behind their data; and so many of others that each read forgets what came before."""
    end = behind + producers + CHUNK
    markers = {behind + at: Marker(behind + at, 1 + at, 5, is_commit=True) for at in range(producers)}
    return [markers.get(at, Witness(at, 9_999, 5)) for at in range(CHUNK, end)]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small bound."""
    monkeypatch.setattr(log_transactions, "_ALONE", FEW)


def test_readers_of_more_producers_than_are_kept_all_learn_what_they_wait_for() -> None:
    """None drives out what another one has read so far: each would begin again without end."""
    producers, behind = 4 * FEW, 10 * CHUNK
    log = Log(committed(producers, behind), behind + producers + CHUNK)
    waiting = [batch(at, 1 + at) for at in range(producers)]
    for _ in range(20 * producers):
        waiting = [each for each in waiting if log.ask(each) is Outcome.UNDECIDED]
        if not waiting:
            break
    assert waiting == []
    assert log.reads < 20 * producers


def test_two_readers_of_one_producer_do_not_drive_each_other_out() -> None:
    """They stand at different places of the log."""
    behind = 10 * CHUNK
    log = Log(committed(1, behind), behind + 1 + CHUNK)
    waiting = [batch(3, 1), batch(4 * CHUNK, 1)]
    for _ in range(40):
        waiting = [each for each in waiting if log.ask(each) is Outcome.UNDECIDED]
    assert waiting == []


def test_those_that_wait_at_the_end_of_the_log_hold_up_nobody() -> None:
    """Their transactions are open: no more can be read for them, and others are committed."""
    open_ones, behind = 2 * FEW, 10 * CHUNK
    log = Log(committed(1, behind), behind + 1 + CHUNK)
    waiting = [batch(1 + at, 100 + at) for at in range(open_ones)]
    late = batch(50, 1)
    told: set[Outcome] = set()
    for _ in range(200):
        assert {log.ask(each) for each in waiting} == {Outcome.UNDECIDED}
        told.add(log.ask(late))
    assert Outcome.COMMITTED in told


def test_what_is_kept_is_bounded() -> None:
    """However many producers are asked for."""
    log = Log(committed(0, 10 * CHUNK), 11 * CHUNK)
    for producer_id in range(1, 10 * FEW):
        log.ask(batch(0, producer_id))
    assert len(log.known._alone) <= FEW  # pyright: ignore[reportPrivateUsage]
