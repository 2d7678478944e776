"""Temporary folders are in memory where that is asked for and possible, and on disk otherwise."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from kordon.testing import folders
from kordon.testing.folders import LEAST_FREE_BYTES, make_folder, remove_folder

PREFIX = "kordon-folders-"


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What a machine has free, on its file system in memory and of memory itself; such folders are in `memory`."""
    free = {"shared": LEAST_FREE_BYTES, "memory": LEAST_FREE_BYTES}
    for name in ("memory", "disk"):
        (tmp_path / name).mkdir()
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(folders, "_MEMORY", tmp_path / "memory")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "disk"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free["shared"]))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free["memory"]))
    return free


def place(*, in_memory: bool) -> str:
    """Where a folder is made."""
    folder = make_folder(PREFIX, in_memory=in_memory)
    assert folder.is_dir()
    remove_folder(folder)
    assert not folder.exists()
    return folder.parent.name


def test_a_folder_is_in_memory_if_that_is_asked_for(room: dict[str, int]) -> None:
    """There, nobody waits for a disk."""
    assert set(room.values()) == {LEAST_FREE_BYTES}
    assert [place(in_memory=True), place(in_memory=False)] == ["memory", "disk"]


@pytest.mark.parametrize("scarce", ["shared", "memory"])
def test_a_folder_is_on_disk_where_there_is_less(room: dict[str, int], scarce: str) -> None:
    """A container has 64 MiB at that place, and a small machine needs its memory."""
    room[scarce] -= 1
    assert place(in_memory=True) == "disk"


def test_a_folder_is_on_disk_where_there_is_no_such_place(
    room: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only Linux has it."""
    assert room
    monkeypatch.setattr(folders, "_MEMORY", tmp_path / "nothing")
    assert place(in_memory=True) == "disk"


def test_who_names_a_place_gets_it(room: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By TMPDIR, as everywhere."""
    assert room
    monkeypatch.setenv("TMPDIR", str(tmp_path / "disk"))
    assert place(in_memory=True) == "disk"


def test_what_an_owner_that_was_killed_has_left_goes_with_the_next_folder(room: dict[str, int], tmp_path: Path) -> None:
    """Where that one is made; a folder whose owner lives stays."""
    assert room
    left, held = tmp_path / "memory" / f"{PREFIX}left", make_folder(PREFIX, in_memory=True)
    left.mkdir()
    (left / "owner").touch()
    assert place(in_memory=True) == "memory"
    assert (left.exists(), held.exists()) == (False, True)
    remove_folder(held)
