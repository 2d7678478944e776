"""What clients wrote down is read as they meant it, and gaps are measured where they belong."""

from pathlib import Path

import pytest

from kordon.testing.order.checker import check_folder
from kordon.testing.order.findings import Anomaly, Example
from kordon.testing.order.history import (
    Acknowledged,
    Assigned,
    Committed,
    Done,
    Ended,
    Failed,
    HistoryError,
    Processed,
    Revoked,
    Torn,
    actions,
    note_action,
    reads,
    recorded,
    writes,
)
from kordon.testing.order.pauses import Pauses


def write_run(folder: Path) -> None:
    """Writes down one record that was taken and one that was not, and a member that got the first."""
    with recorded(folder, "p", producer="p") as producer:
        producer.note("acked", 2, n=0, k="p-0", s=0, sent=1, p=2, o=7)
        producer.note("failed", 9, n=1, k="p-0", s=1, sent=1, error="TIMED_OUT", refused=False)
        producer.note("ended", 10)
    with recorded(folder, "g-0.0", group="g", member="g-0.0") as member:
        member.note("assigned", 1, p=[2])
        member.note("processed", 5, p=2, o=7, k="p-0", s=0)
        member.note("committed", 6, at=[[2, 8]])
        member.note("revoked", 8, p=[2], lost=False)
        member.note("torn", 8)
        member.note("ended", 8)


def test_events_come_back_as_they_were_noted(tmp_path: Path) -> None:
    """Every kind of event survives the way through a file."""
    write_run(tmp_path)
    assert [event for _, event in writes(tmp_path)] == [
        Acknowledged(2, 0, "p-0", 0, 1, 2, 7),
        Failed(9, 1, "p-0", 1, 1, "TIMED_OUT", refused=False),
        Ended(10),
    ]
    assert list(reads(tmp_path)["g"]) == [
        ("g-0.0", event)
        for event in (
            Assigned(1, (2,)),
            Processed(5, 2, 7, "p-0", 0),
            Committed(6, ((2, 8),)),
            Revoked(8, (2,), lost=False),
            Torn(8),
            Ended(8),
        )
    ]
    assert check_folder(tmp_path).passed


def test_members_of_a_group_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    """A group's history is one, however many files it is in."""
    write_run(tmp_path)
    with recorded(tmp_path, "g-1.0", group="g", member="g-1.0") as member:
        member.note("assigned", 4, p=[0])
        member.note("ended", 7)
    assert [event.time_us for _, event in reads(tmp_path)["g"]] == [1, 4, 5, 6, 7, 8, 8, 8]


def test_line_that_its_writer_did_not_end_is_left_out(tmp_path: Path) -> None:
    """Who is killed while writing leaves half a line, and the record in it may have been sent."""
    write_run(tmp_path)
    file = tmp_path / "p.history"
    file.write_text(file.read_text().rstrip("}\n"))
    assert [type(event) for _, event in writes(tmp_path)] == [Acknowledged, Failed]


@pytest.mark.parametrize("line", ["no json", "[1]", '{"e": "dreamt", "t": 1}', '{"e": "acked", "t": 1}'])
def test_line_that_means_nothing_is_told_with_its_place(tmp_path: Path, line: str) -> None:
    """A history that cannot be read is never taken for a history without anomalies."""
    write_run(tmp_path)
    with (tmp_path / "p.history").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(HistoryError, match=r"p\.history:5"):
        check_folder(tmp_path)


def test_result_has_examples_of_each_anomaly(tmp_path: Path) -> None:
    """It tells which record, where, and what is wrong with it."""
    write_run(tmp_path)
    file = tmp_path / "g-0.0.history"
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "processed" not in line))
    verdict = check_folder(tmp_path)
    assert not verdict.passed
    assert verdict.count(Anomaly.UNSEEN, "g") == 1
    assert verdict.findings.examples == {(Anomaly.UNSEEN, "g"): [Example("p-0", 0, 2, 7, None, "never processed")]}


def test_gap_around_a_resize_is_that_resizes(tmp_path: Path) -> None:
    """The longest wait is told by producer and by partition, apart from what is usual at other times."""
    note_action(tmp_path, Done(10_000_000, 10_500_000, "resize to 6"))
    times = {"a": [1_000_000, 1_300_000, 10_100_000, 10_140_000], "b": [1_200_000, 10_130_000, 10_190_000]}
    events = [
        (name, Acknowledged(time_us, number, f"{name}-0", number, 0, 3, number))
        for name, each in times.items()
        for number, time_us in enumerate(each)
    ]
    pauses = Pauses(actions(tmp_path))
    passed_on = list(pauses.seeing(sorted(events, key=lambda event: event[1].time_us)))
    assert len(passed_on) == len(events)
    (pause,) = pauses.pauses
    assert pause.done.what == "resize to 6"
    assert pause.gaps.by_producer == {"a": 8_800_000, "b": 8_930_000}
    assert pause.gaps.by_partition == {3: 8_800_000}
    assert pauses.usual.by_producer == {"a": 300_000}
    assert pauses.usual.by_partition == {3: 200_000}


def test_clients_that_number_partitions_otherwise_are_judged_by_themselves(tmp_path: Path) -> None:
    """A dialect producer's record stands at 3:0 for dialect groups, and at 7:4 for all others: both are in place."""
    for name, partitions in (("one", {}), ("two", {"partitions": "physical"})):
        with recorded(tmp_path, name, producer=name, **partitions) as recorder:
            at = {"p": 3, "o": 0} if partitions else {"p": 7, "o": 3}
            recorder.note("acked", 1, n=0, k=f"{name}-0", s=0, sent=0, **at)
            recorder.note("ended", 2)
    for name, partitions, places in (
        ("red", {}, [(7, 3), (7, 4)]),
        ("blue", {"partitions": "physical"}, [(3, 1), (3, 0)]),
    ):
        with recorded(tmp_path, name, group=name, member=name, **partitions) as recorder:
            recorder.note("assigned", 3, p=sorted({p for p, _ in places}))
            for (p, o), key in sorted(zip(places, ("one-0", "two-0"), strict=True)):
                recorder.note("processed", 4 + o, p=p, o=o, k=key, s=0)
            recorder.note("ended", 9)
    verdict = check_folder(tmp_path)
    assert verdict.findings.examples == {}
    assert {name: account.records for name, account in verdict.accounts.items()} == {"writes": 2, "red": 2, "blue": 2}
