"""Where decisions go, and what becomes of them while nobody takes them: files on a disk, and a sink that fails."""

import asyncio
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kordon.codecs.decision import Decision, Entry, Kind
from kordon.proxy.config.config import Decisions
from kordon.proxy.decisions.events import OwnError
from kordon.proxy.decisions.recorder import Recorder
from kordon.proxy.decisions.sinks import RecordTooLarge, SinkFailed
from kordon.proxy.decisions.to_files import PATTERN, Files


class Fussy:
    """Takes records unless it is told not to."""

    def __init__(self) -> None:
        self.taken: list[Entry] = []
        self.problem: SinkFailed | None = None
        self.tried = asyncio.Event()
        self.most_bytes = 1 << 30
        self.closed = False

    async def write(self, values: Sequence[bytes]) -> None:
        self.tried.set()
        if self.problem is not None:
            raise self.problem
        if sum(map(len, values)) > self.most_bytes:
            raise RecordTooLarge("too large")
        self.taken += [Entry.load(value) for value in values]

    async def close(self) -> None:
        self.closed = True


def a_recorder(sink: Fussy, queue_bytes: int = 1 << 20) -> Recorder:
    """A started one that ends runs often."""
    recorder = Recorder("worker", sink, Decisions(to="topic", run_ms=10, queue_bytes=queue_bytes))
    recorder.start()
    return recorder


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(PATTERN))


def lines(folder: Path) -> Iterator[Entry]:
    """All that stands in a folder's files, file by file."""
    for path in files_in(folder):
        for line in path.read_bytes().splitlines():
            yield Entry.load(line)


async def test_stop_writes_all_that_was_decided() -> None:
    """Open runs included; nothing is lost at an orderly end, and numbers have no gap."""
    sink = Fussy()
    recorder = a_recorder(sink, queue_bytes=1 << 24)
    client = recorder.journal.connected()
    for number in range(5000):
        recorder.journal.note(Decision(kind=Kind.LIMIT, first_offset=number))
    recorder.journal.refused(client, OwnError(0, "NOT_LEADER_OR_FOLLOWER"))
    await recorder.close()
    assert recorder.written == 5001
    assert sink.closed
    assert [entry.number for entry in sink.taken] == list(range(5001))
    assert sink.taken[-1].decision.kind is Kind.REFUSE


async def test_sink_that_comes_back_gets_all_that_waited_and_the_gap() -> None:
    """While it fails decisions wait; what has no room is one GAP, and all else is there once."""
    sink = Fussy()
    sink.problem = SinkFailed("away")
    recorder = a_recorder(sink, queue_bytes=65_536)
    for _ in range(2000):
        recorder.journal.note(Decision(kind=Kind.LIMIT, rule="limits.connections"))
    await sink.tried.wait()
    assert recorder.backlog.dropped > 0
    sink.problem = None
    await recorder.close()
    numbers = [entry.number for entry in sink.taken]
    gaps = [entry.decision for entry in sink.taken if entry.decision.kind is Kind.GAP]
    assert len(gaps) == 1
    assert gaps[0].first_number is not None
    assert gaps[0].last_number is not None
    missing = range(gaps[0].first_number, gaps[0].last_number + 1)
    assert sorted([*numbers, *missing]) == list(range(2001))
    assert len(missing) == recorder.backlog.dropped


async def test_stop_waits_no_longer_than_it_says() -> None:
    """What cannot be written is given up and counted."""
    sink = Fussy()
    sink.problem = SinkFailed("away")
    recorder = a_recorder(sink)
    for _ in range(3):
        recorder.journal.note(Decision(kind=Kind.LIMIT))
    await recorder.close(0.05)
    assert recorder.backlog.dropped == 3
    assert recorder.written == 0


async def test_record_too_large_for_the_sink_becomes_a_gap() -> None:
    """It is tried alone, once, and does not stop those behind it."""
    sink = Fussy()
    sink.most_bytes = 70_000
    recorder = a_recorder(sink)
    recorder.journal.note(Decision(kind=Kind.LIMIT))
    recorder.journal.note(Decision(kind=Kind.COMMIT, evidence={"layout": "x" * 80_000}))
    recorder.journal.note(Decision(kind=Kind.ADOPT))
    await recorder.close()
    assert [(entry.decision.kind, entry.number) for entry in sink.taken] == [
        (Kind.LIMIT, 0),
        (Kind.ADOPT, 2),
        (Kind.GAP, 3),
    ]
    assert (sink.taken[-1].decision.first_number, sink.taken[-1].decision.last_number) == (1, 1)


async def test_sink_that_takes_not_even_an_ordinary_record_is_waited_for() -> None:
    """Such a topic is set up wrongly: a gap would not be taken either."""
    sink = Fussy()
    sink.most_bytes = 10
    recorder = a_recorder(sink)
    recorder.journal.note(Decision(kind=Kind.LIMIT))
    await sink.tried.wait()
    sink.most_bytes = 4_000
    await recorder.close()
    assert [entry.decision.kind for entry in sink.taken] == [Kind.LIMIT]


def age_by_name(folder: Path) -> None:
    """Files of one moment have the order of their names."""
    for age, path in enumerate(files_in(folder)):
        os.utime(path, (age, age))


def remove_all(folder: Path) -> None:
    for path in files_in(folder):
        path.unlink()


def values(count: int, first: int = 0) -> list[bytes]:
    """Records that are told apart by their numbers."""
    return [
        Entry(at_ms=1, host="host", worker="w", number=number, decision=Decision(kind=Kind.LIMIT)).dump()
        for number in range(first, first + count)
    ]


async def test_files_are_rotated_and_the_oldest_go(tmp_path: Path) -> None:
    """None is larger than it may be, there are no more than there may be, and what is left has no hole."""
    files = Files(tmp_path, "w", 1_000, 3)
    for number in range(100):
        await files.write(values(1, number))
        age_by_name(tmp_path)
    await files.close()
    paths = files_in(tmp_path)
    assert len(paths) == 3
    assert all(path.stat().st_size <= 1_000 for path in paths)
    numbers = [entry.number for entry in lines(tmp_path)]
    assert numbers == list(range(numbers[0], 100))


async def test_many_records_at_once_are_several_files(tmp_path: Path) -> None:
    """What is written at once is shared out over files, a record that is larger than a file has one of its own."""
    files = Files(tmp_path, "w", 1_000, 100)
    await files.write([*values(50), b"x" * 2_000, *values(50, 50)])
    await files.close()
    written = [path.read_bytes() for path in files_in(tmp_path)]
    assert b"".join(written).splitlines() == [*values(50), b"x" * 2_000, *values(50, 50)]
    assert [len(each) for each in written if len(each) > 1_000] == [2_001]
    assert len(written) < 20


async def test_disk_that_fills_up_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line is taken back; when there is room again all of it is written."""
    write, room = os.write, [200]

    def narrow(fd: int, data: bytes) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = write(fd, bytes(data)[: room[0]])
        room[0] -= done
        return done

    files = Files(tmp_path, "w", 1_000_000, 3)
    monkeypatch.setattr("kordon.proxy.decisions.to_files.os.write", narrow)
    with pytest.raises(SinkFailed, match="No space left"):
        await files.write(values(10))
    assert list(lines(tmp_path)) == []
    room[0] = 1 << 20
    await files.write(values(10))
    await files.close()
    assert [entry.number for entry in lines(tmp_path)] == list(range(10))


async def test_file_that_was_taken_away_is_followed_by_another(tmp_path: Path) -> None:
    """Whoever removes the file in use loses what was in it, and not what comes."""
    files = Files(tmp_path, "w", 1_000_000, 3)
    await files.write(values(1))
    remove_all(tmp_path)
    await files.write(values(1, 1))
    await files.close()
    assert [entry.number for entry in lines(tmp_path)] == [1]


def test_folder_that_is_gone_is_a_failure_of_the_sink(tmp_path: Path) -> None:
    """It is told by its name, and waited for."""
    files = Files(tmp_path / "gone", "w", 1_000, 3)
    with pytest.raises(SinkFailed, match="gone"):
        asyncio.run(files.write(values(1)))
