"""Files that change are noticed, once, and only when they have been written to the end."""

import asyncio
from pathlib import Path

import pytest

from kordon.proxy.process import watch
from kordon.proxy.process.watch import FileWatch, watch_files


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "k.yaml"
    path.write_text("1")
    return path


def test_file_that_stays_is_no_change(file: Path) -> None:
    """Looking again finds nothing."""
    watching = FileWatch([file])
    assert [watching.changed() for _ in range(3)] == [False, False, False]


def test_change_is_told_once_when_it_has_settled(file: Path) -> None:
    """The first look after a write waits for the second, the third finds nothing new."""
    watching = FileWatch([file])
    file.write_text("22")
    assert [watching.changed() for _ in range(3)] == [False, True, False]


def test_file_that_is_being_written_is_left_alone(file: Path) -> None:
    """While it keeps growing it is not told."""
    watching = FileWatch([file])
    for size in range(2, 5):
        file.write_text("x" * size)
        assert not watching.changed()
    assert watching.changed()


def test_pair_is_told_when_both_halves_are_there(tmp_path: Path) -> None:
    """A certificate and its key that are replaced one after the other are one change."""
    pair = [tmp_path / "c.pem", tmp_path / "c.key"]
    watching = FileWatch(pair)
    told: list[bool] = []
    for path in pair:
        path.write_text("new")
        told.append(watching.changed())
    told += [watching.changed(), watching.changed()]
    assert told == [False, False, True, False]


def test_swapped_link_is_a_change(tmp_path: Path) -> None:
    """Kubernetes delivers secrets as a link to a folder that is swapped; content of equal size counts as well."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tls.key").write_text(name)
    link = tmp_path / "data"
    link.symlink_to("one")
    watching = FileWatch([link / "tls.key"])
    link.unlink()
    link.symlink_to("two")
    assert [watching.changed(), watching.changed()] == [False, True]


def test_file_that_goes_and_comes_is_two_changes(file: Path) -> None:
    """Absence is a state like any other: what reads the file says what it thinks of it."""
    watching = FileWatch([file])
    file.unlink()
    assert [watching.changed(), watching.changed()] == [False, True]
    file.write_text("1")
    assert [watching.changed(), watching.changed()] == [False, True]


async def test_watching_calls_on_each_change(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop looks again and again, and goes on after a change."""
    monkeypatch.setattr(watch, "INTERVAL_SECONDS", 0.01)
    told: asyncio.Queue[str] = asyncio.Queue()

    async def on_change() -> None:
        told.put_nowait(file.read_text())  # noqa: ASYNC240  (a few bytes)

    watching = asyncio.ensure_future(watch_files(FileWatch([file]), lambda: [file], on_change))
    try:
        for text in ("22", "333"):
            file.write_text(text)  # noqa: ASYNC240
            assert await asyncio.wait_for(told.get(), 60) == text
    finally:
        watching.cancel()


async def test_change_during_a_change_is_not_lost(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is written again while its former content is being read is read once more."""
    monkeypatch.setattr(watch, "INTERVAL_SECONDS", 0.01)
    read: list[str] = []
    done = asyncio.Event()

    async def on_change() -> None:
        read.append(file.read_text())  # noqa: ASYNC240  (a few bytes)
        if read == ["22"]:
            file.write_text("333")  # noqa: ASYNC240
        else:
            done.set()

    first_look = FileWatch([file])
    file.write_text("22")  # noqa: ASYNC240
    watching = asyncio.ensure_future(watch_files(first_look, lambda: [file], on_change))
    try:
        await asyncio.wait_for(done.wait(), 60)
    finally:
        watching.cancel()
    assert read == ["22", "333"]


def test_file_that_comes_to_be_watched_is_read_once_more(file: Path, tmp_path: Path) -> None:
    """A new configuration names another certificate, which may have changed between its reading and the first look."""
    watching = FileWatch([file])
    further = tmp_path / "new.pem"
    further.write_text("x")
    watching.watch([file, further])
    assert [watching.changed() for _ in range(3)] == [False, True, False]


def test_file_that_is_watched_no_more_is_forgotten(file: Path, tmp_path: Path) -> None:
    """It may change as it likes."""
    gone = tmp_path / "old.pem"
    watching = FileWatch([file, gone])
    watching.watch([file])
    gone.write_text("x")
    assert [watching.changed() for _ in range(3)] == [False, False, False]
