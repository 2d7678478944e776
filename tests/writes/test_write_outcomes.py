"""What a client is told of a write whose offset does not lie where its virtual partition lives (LATE-ANSWER)."""

from dataclasses import asdict
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kordon.codecs.produce import WriteOutcome
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.write_sequencer import Binding, Write
from kordon.proxy.writes.write_outcomes import ProduceCounts, told

NONE, NOT_LEADER_OR_FOLLOWER = 0, 6
MOVER = 3
"""Lived on partition 0 up to its end at 10, and on partition 3 from 40 on, as partition 3 had been used before."""


def layout() -> Layout:
    """V = 4 on one partition that has grown to four."""
    created = Layout.created("orders", UUID(int=1), 1, 4)
    return created.changed(created.next_epoch(4), {0: 10, 1: 0, 2: 0, 3: 40})


def answer(base_offset: int, counts: ProduceCounts) -> WriteOutcome:
    """What the client gets when the broker has written its batch at an offset of partition 3."""
    home = layout().chains[MOVER].home
    assert home is not None
    assert (home.partition, home.start) == (3, 40)
    bound = Binding(home.partition, home.move, 7, tag(MOVER, home.move, 7), 0, 0, opens=True)
    write = Write(7, 0, 0, records=1, size=100, acks=-1, since=0.0, bound=bound)
    return told(layout(), MOVER, write, WriteOutcome(home.partition, NONE, base_offset), counts)


def test_a_write_in_its_segment_is_a_success() -> None:
    """It gets its virtual offset, which goes on where its former home has ended."""
    counts = ProduceCounts()
    found = answer(42, counts)
    assert (found.error_code, found.base_offset, counts.batches) == (NONE, 12, 1)


@pytest.mark.parametrize(("grown", "start"), [(False, 5), (True, 0)])
def test_a_writer_is_told_where_its_own_log_begins(*, grown: bool, start: int) -> None:
    """What brokers have removed of its home is the beginning of its log while it has lived nowhere else."""
    held = layout() if grown else Layout.created("orders", UUID(int=1), 1, 4)
    home = held.chains[MOVER].home
    assert home is not None
    bound = Binding(home.partition, home.move, 7, tag(MOVER, home.move, 7), 0, 0, opens=True)
    write = Write(7, 0, 0, records=1, size=100, acks=-1, since=0.0, bound=bound)
    written = WriteOutcome(home.partition, NONE, 42, log_start_offset=5)
    assert told(held, MOVER, write, written, ProduceCounts()).log_start_offset == start


def test_a_worker_that_has_written_nothing_counts_nothing() -> None:
    """Rates begin at 0."""
    assert not any(asdict(ProduceCounts()).values())


@pytest.mark.parametrize("base_offset", [0, 39])
def test_a_write_below_its_segment_is_never_acknowledged(base_offset: int) -> None:
    """Readers would not find it: an unclean election has shortened the log under the cut; the log says so once."""
    counts = ProduceCounts()
    with capture_logs() as logs:
        codes = {answer(base_offset, counts).error_code for _ in range(3)}
    assert (codes, counts.batches, counts.strays) == ({NOT_LEADER_OR_FOLLOWER}, 0, 3)
    assert [(each["event"], each["partition"], each["cut"]) for each in logs] == [("log_shortened", 3, 40)]
