"""`make deep`: it goes on where it was stopped, keeps the seeds that fail, and says what ran."""

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kordon.testing.deep import ROOT, Journal, Piece, code_of, pieces_of_seeds, pieces_of_tests, report, work
from kordon.testing.simulation import __main__ as simulation
from kordon.testing.simulation.__main__ import BROKEN
from kordon.testing.simulation.kept_seeds import DIALECT_WRITERS, KINDS, PLAIN, kept


def piece(name: str, program: str, kind: str = "") -> Piece:
    """Makes a piece of a program in Python."""
    return Piece(name, (sys.executable, "-c", program), kind, seeds=1 if kind else 0)


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    """By a command of another day either; what is new is."""
    counted = tmp_path / "counted"
    first, second = (piece(name, f"open({str(counted)!r}, 'a').write({name!r})") for name in ("a", "b"))
    assert work([first], Journal(tmp_path / "deep", "code"), 2)
    assert work([first, second], Journal(tmp_path / "deep", "code"), 2)
    assert counted.read_text() == "ab"


def test_with_other_code_all_is_done_anew(tmp_path: Path) -> None:
    """What was shown of the code of before is not shown of this one."""
    counted = tmp_path / "counted"
    only = piece("a", f"open({str(counted)!r}, 'a').write('a')")
    for code in ("of before", "of now"):
        assert work([only], Journal(tmp_path / "deep", code), 1)
    assert counted.read_text() == "aa"


def test_what_was_under_way_when_it_was_stopped_is_done_again(tmp_path: Path) -> None:
    """Ctrl-C ends it at once; what had ended before counts, and nothing further is begun."""
    interrupting = f"import os, signal, time; os.kill({os.getpid()}, signal.SIGINT); time.sleep(600)"
    pieces = [piece("ends", "pass"), piece("interrupts", interrupting), piece("follows", "pass")]
    journal = Journal(tmp_path, "code")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have it ignored in the background
    try:
        assert not work(pieces, journal, 1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [*journal.done] == [*Journal(tmp_path, "code").done] == ["ends"]


def test_a_seed_that_breaks_a_promise_is_kept_and_told(tmp_path: Path) -> None:
    """With the command that shows it again."""
    found: list[tuple[str, int]] = []
    program = f"import sys; print('{BROKEN}17'); sys.exit(1)"
    pieces = [piece("breaks", program, DIALECT_WRITERS), piece("holds", "pass", PLAIN)]
    journal = Journal(tmp_path, "code")
    assert work(pieces, journal, 1, lambda *seed: found.append(seed))
    assert found == [(DIALECT_WRITERS, 17)]
    words, is_fine = report(pieces, journal)
    assert not is_fine
    assert "python -m kordon.testing.simulation 17 --kind dialect-writers" in words
    assert BROKEN in (tmp_path / "breaks.txt").read_text()


def test_a_seed_in_which_something_fails_is_told_and_those_behind_it_are_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An assertion of the product's own does not end the process with the seeds that it still has to run."""
    lived: list[int] = []

    def run(seed: int, *, has_dialect_writers: bool) -> SimpleNamespace:
        assert not has_dialect_writers
        lived.append(seed)
        if seed == 17:
            raise AssertionError("what cannot be")
        return SimpleNamespace(wrong=[])

    monkeypatch.setattr(simulation, "run", run)
    assert simulation.main(["16-18"]) == 1
    assert lived == [16, 17, 18]
    words = capsys.readouterr().out
    assert words.startswith(f"{BROKEN}17\n")
    assert "what cannot be" in words


def test_a_file_of_tests_that_fails_is_told(tmp_path: Path) -> None:
    """One without tests for this machine (pytest's code 5) does not fail."""
    pieces = [piece("tests/test_a.py", "import sys; sys.exit(1)"), piece("tests/test_b.py", "import sys; sys.exit(5)")]
    journal = Journal(tmp_path, "code")
    assert work(pieces, journal, 2)
    words, is_fine = report(pieces, journal)
    assert not is_fine
    assert "pytest -m deep tests/test_a.py" in words
    assert "pytest -m deep tests/test_b.py" not in words


def test_all_seeds_are_in_one_piece_each() -> None:
    """Whoever asks for more of them later finds the same pieces, up to the last of before."""
    few, many = pieces_of_seeds(PLAIN, range(450)), pieces_of_seeds(PLAIN, range(1000))
    assert [each.name for each in few] == ["plain 0-199", "plain 200-399", "plain 400-449"]
    assert few[:2] == many[:2]
    assert sum(each.seeds for each in many) == 1000


def test_files_of_deep_tests_are_found() -> None:
    """Those of this project."""
    assert "tests/codecs/test_unreadable_bytes.py" in [each.name for each in pieces_of_tests(ROOT)]


def test_a_change_of_a_test_is_other_code(tmp_path: Path) -> None:
    """And of anything else in Python that a result rests on."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("")
    before = code_of(tmp_path)
    (tmp_path / "tests" / "test_a.py").write_text("pass")
    assert code_of(tmp_path) != before


def test_kept_seeds_can_be_read() -> None:
    """Whatever stands in the file."""
    assert all(seed >= 0 for kind in KINDS for seed in kept(kind))
