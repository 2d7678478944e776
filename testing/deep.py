"""The long profiles, for a night on two cores: `make deep`, or `python -m kordon.testing.deep`.

Simulated clusters by the thousand, and the tests marked `deep`, file by file. What was done is not done again: whoever
stops it (Ctrl-C) and begins anew goes on where it was, unless a file of Kordon or of its tests has changed meanwhile.
A seed that breaks a promise is kept in `tests/ordering/kept_seeds.txt`, to be committed; quick tests run it from then
on. At the end stands what ran, and by which command each failure is seen again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from kordon.testing.java_process import DIES_WITH_PARENT
from kordon.testing.simulation.__main__ import BROKEN
from kordon.testing.simulation.kept_seeds import DIALECT_WRITERS, KEPT, PLAIN, keep

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = Path(".cache", "deep")
"""In the project: what was done, and the words of what failed."""
_AT_ONCE: Final = 200
"""Seeds of one process: what is lost at most when somebody stops it."""
_CODE: Final = ("proxy", "client", "codecs", "spark_jobs", "testing", "tests")
_WITHOUT_FAILURE: Final = (0, 5)
"""Codes of pytest: all passed; no tests were there for this machine."""


@dataclass(frozen=True)
class Piece:
    """A part of the work, done by one process.

    Attributes:
        command: What is run, at the root of the project.
        kind: Of clusters; empty: it is a file of tests.
        seeds: How many of them.
    """

    name: str
    command: tuple[str, ...]
    kind: str = ""
    seeds: int = 0


@dataclass(frozen=True)
class Done:
    """A piece that has come to its end."""

    name: str
    code: int
    seconds: float
    broken: tuple[int, ...] = ()


class Journal:
    """What was done with this code, by this command or an earlier one.

    Args:
        folder: For the journals of all codes, and for what failing pieces say.
    """

    def __init__(self, folder: Path, code: str) -> None:
        self.folder = folder
        self._file = folder / f"{code}.jsonl"
        self._lock = threading.Lock()
        self.done: dict[str, Done] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if self._file.exists():
            for line in self._file.read_text().splitlines():
                row = json.loads(line)
                self.done[row["name"]] = Done(row["name"], row["code"], row["seconds"], tuple(row["broken"]))

    def add(self, done: Done) -> None:
        with self._lock:
            self.done[done.name] = done
            with self._file.open("a") as file:
                print(json.dumps(vars(done)), file=file)


def pieces_of_seeds(kind: str, seeds: range) -> list[Piece]:
    """Cuts seeds into pieces; the same seeds always in the same."""
    starts = range(seeds.start - seeds.start % _AT_ONCE, seeds.stop, _AT_ONCE)
    parts = [range(max(start, seeds.start), min(start + _AT_ONCE, seeds.stop)) for start in starts]
    return [
        Piece(
            f"{kind} {part[0]}-{part[-1]}",
            (sys.executable, "-m", "kordon.testing.simulation", f"{part[0]}-{part[-1]}", "--kind", kind),
            kind,
            len(part),
        )
        for part in parts
    ]


def pieces_of_tests(root: Path) -> list[Piece]:
    """Finds the files of tests that are marked `deep`."""
    files = sorted(each for each in (root / "tests").rglob("test_*.py") if "mark.deep" in each.read_text())
    pytest = (sys.executable, "-m", "pytest", "-q", "-m", "deep", "-p", "no:cacheprovider")
    names = [str(each.relative_to(root)) for each in files]
    return [Piece(name, (*pytest, name)) for name in names]


def code_of(root: Path) -> str:
    """Returns a digest of all that a result rests on."""
    digest = sha256()
    for folder in _CODE:
        for file in sorted((root / folder).rglob("*.py")):
            digest.update(f"{file.relative_to(root)}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def work(
    pieces: Iterable[Piece], journal: Journal, processes: int, on_broken: Callable[[str, int], None] = keep
) -> bool:
    """Does what is not done yet.

    Args:
        pieces: Of the work, those first that are to be begun first.
        on_broken: Is told the kind of clusters and the seed of one that broke a promise.

    Returns:
        False: somebody stopped it (Ctrl-C).
    """
    is_stopped = threading.Event()
    one_at_a_time = threading.Lock()
    left = [each for each in pieces if each.name not in journal.done]

    def one(piece: Piece) -> None:
        if not is_stopped.is_set() and (done := _ended(piece, journal.folder, is_stopped)) is not None:
            for seed in done.broken:
                with one_at_a_time:
                    on_broken(piece.kind, seed)
            journal.add(done)
            failed = "" if done.code in _WITHOUT_FAILURE else ": FAILS"
            print(f"{piece.name}, {done.seconds:.0f} s{failed}", flush=True)

    with ThreadPoolExecutor(processes) as threads:
        waiting = [threads.submit(one, piece) for piece in left]
        try:
            for each in waiting:
                each.result()
        except KeyboardInterrupt:
            is_stopped.set()
            print("stops; what was done is kept", flush=True)
    return not is_stopped.is_set()


def _ended(piece: Piece, folder: Path, is_stopped: threading.Event) -> Done | None:
    """Runs a piece to its end; None: it was stopped."""
    began = time.monotonic()
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    words = folder / f"{piece.name.replace('/', '+').replace(' ', '-')}.txt"
    with words.open("w") as file:
        # In a group of its own: Ctrl-C reaches this process alone, which ends the others.
        process = subprocess.Popen(
            [*DIES_WITH_PARENT, *piece.command],
            cwd=ROOT,
            env=environment,
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
        while True:
            try:
                code = process.wait(0.5)
                break
            except subprocess.TimeoutExpired:
                if is_stopped.is_set():
                    process.terminate()
    if is_stopped.is_set():
        return None
    lines = words.read_text().splitlines()
    broken = tuple(int(line.removeprefix(BROKEN)) for line in lines if line.startswith(BROKEN))
    if code in _WITHOUT_FAILURE:
        words.unlink()
    return Done(piece.name, code, time.monotonic() - began, broken)


def report(pieces: Sequence[Piece], journal: Journal) -> tuple[str, bool]:
    """Says what ran and what failed; and whether nothing failed."""
    lines: list[str] = []
    for kind in (PLAIN, DIALECT_WRITERS):
        mine = [each for each in pieces if each.kind == kind]
        ran = [each for each in mine if each.name in journal.done]
        broken = sorted(seed for each in ran for seed in journal.done[each.name].broken)
        asked, seeds = sum(each.seeds for each in mine), sum(each.seeds for each in ran)
        seconds = sum(journal.done[each.name].seconds for each in ran)
        lines.append(f"{seeds:,} of {asked:,} {kind} clusters in {seconds:,.0f} s; {len(broken)} broke a promise")
        lines += [f"  python -m kordon.testing.simulation {seed} --kind {kind}" for seed in broken]
    files = [each for each in pieces if not each.kind]
    lines.append(f"{sum(each.name in journal.done for each in files)} of {len(files)} files of deep tests")
    failed = [each for each in pieces if each.name in journal.done]
    failed = [each for each in failed if journal.done[each.name].code not in _WITHOUT_FAILURE]
    lines += [f"  pytest -m deep {each.name}" for each in failed if not each.kind]
    if failed:
        lines.append(f"What they said is in {journal.folder}; such seeds are in {KEPT.relative_to(ROOT)}.")
    return "\n".join(lines), not failed


def main(arguments: Sequence[str]) -> int:
    """Does what is asked for, as far as it is not done.

    Returns:
        0: all is done, and nothing failed. 1: something failed. 130: it was stopped.
    """
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(prog="python -m kordon.testing.deep", description=summary, epilog=rest)
    parser.add_argument("--seeds", type=int, default=100_000, help="clusters (default: 100,000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="at once (default: one for each core)"
    )
    parser.add_argument("--only", choices=("seeds", "tests"), help="leave the other out")
    asked = parser.parse_args(arguments)
    seeds = range(asked.first, asked.first + asked.seeds)
    few = range(asked.first, asked.first + asked.seeds // 10)
    pieces: list[Piece] = []
    if asked.only != "seeds":
        pieces += pieces_of_tests(ROOT)
    if asked.only != "tests":
        pieces += [*pieces_of_seeds(DIALECT_WRITERS, few), *pieces_of_seeds(PLAIN, seeds)]
    journal = Journal(ROOT / FOLDER, code_of(ROOT))
    is_done = work(pieces, journal, asked.processes)
    words, is_fine = report(pieces, journal)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n{words}\n{used.ru_utime + used.ru_stime:,.0f} s of CPU this time")
    if not is_done:
        print("The same command goes on.")
        return 130
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
