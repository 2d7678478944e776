"""`kordon decisions tail`: one line for each decision, filters, files, and what is said when there is nothing."""

import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kordon.codecs.decision import Decision, Entry, Kind
from kordon.proxy.commands.cli import main
from kordon.proxy.commands.decisions_line import draw

ADMIT = Decision(
    kind=Kind.ADMIT,
    connection=7,
    client_id="app",
    principal="User:ann",
    topic="orders",
    stream=5,
    partition=1,
    layout_epoch=3,
    layouts_offset=40,
    producer_id=9,
    producer_epoch=0,
    first_sequence=0,
    last_sequence=19,
    first_offset=100,
    last_offset=139,
    batches=2,
    records=20,
    bytes=1400,
)


def entry(number: int, decision: Decision = ADMIT, worker: str = "abcdef012345") -> Entry:
    return Entry(at_ms=1_795_000_000_123 + number, host="h", worker=worker, number=number, decision=decision)


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        (
            ADMIT,
            "admit         orders  v5 in q1  epoch 3  @40  producer 9.0 #0-19  offsets 100-139"
            "  2 batches, 20 records, 1,400 bytes  app/7 as User:ann",
        ),
        (
            Decision(kind=Kind.DELIVER, topic="orders", stream=-3, partition=2, first_offset=5, last_offset=5),
            "deliver       orders  q2  offsets 5",
        ),
        (
            Decision(kind=Kind.REWIND, topic="orders", stream=5, first_offset=3, last_offset=9, reason="back"),
            "rewind        orders  v5  from 9 to 3  back",
        ),
        (
            Decision(kind=Kind.COMMIT, topic="orders", fence="0123456789", evidence={"layout": {"n": 3}}),
            'commit        orders  fence 01234567  {"layout": "…"}',
        ),
        (
            Decision(kind=Kind.GAP, first_number=3, last_number=8, batches=6, reason="the queue is full"),
            "gap           numbers 3-8  6 decisions  the queue is full",
        ),
        (
            Decision(kind=Kind.REFUSE, api_key=0, rule="SHORT-FENCE", reason="NOT_LEADER_OR_FOLLOWER", batches=1),
            "refuse        1 time  api 0  (SHORT-FENCE)  NOT_LEADER_OR_FOLLOWER",
        ),
        (
            Decision(kind=Kind.REFUSE, api_key=1, rule="KIP-253 8.6", reason="INVALID_PARTITION_METADATA", batches=1),
            "refuse        1 time  api 1  (KIP-253 8.6)  INVALID_PARTITION_METADATA",  # as logs from before have it
        ),
        (Decision(kind=Kind.JOIN, generation_id=4), "join          generation 4"),
    ],
    ids=lambda value: value.kind.value if isinstance(value, Decision) else "",
)
def test_decision_is_one_line(decision: Decision, told: str) -> None:
    """What was decided, about what, for whom and why, in one order."""
    line = draw(entry(12, decision)).plain
    number, kind, evidence = line.split(" ", 1)[1].split(maxsplit=2)
    assert number == "abcdef:12"
    assert [kind, evidence] == told.split(maxsplit=1)
    assert "\n" not in line


def test_what_was_decided_begins_in_one_column() -> None:
    """A reader finds the topic at the same place in each line, however long the kind's name is."""
    lines = [draw(entry(12, Decision(kind=kind, topic="orders"))).plain for kind in Kind]
    assert len({line.index("orders") for line in lines}) == 1


def test_long_evidence_is_cut() -> None:
    """A line stays one that a person can read."""
    line = draw(entry(1, Decision(kind=Kind.HOLD, evidence={"asks": "x" * 1000}))).plain
    assert line.endswith("…")
    assert len(line) < 250


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Decisions of two workers in files, one of which is being written."""
    rows: list[tuple[str, list[Entry]]] = [
        ("a", [entry(0, worker="a"), entry(1, Decision(kind=Kind.LEASE, reason="alive"), worker="a")]),
        ("b", [entry(2, Decision(kind=Kind.DELIVER, topic="bills", group_id="g"), worker="b")]),
    ]
    for worker, entries in rows:
        text = b"".join(each.dump() + b"\n" for each in entries)
        (tmp_path / f"decisions-{worker}-000000.jsonl").write_bytes(text + b'{"schema": 1, "half')
    return tmp_path


def tail(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["decisions", "tail", *map(str, arguments)])


def test_files_are_shown_in_the_order_of_time(folder: Path) -> None:
    """Of all workers; half a line is left for later."""
    result = tail("--files", folder, "--from-beginning", "--no-follow")
    assert result.exit_code == 0
    assert [line.split()[2] for line in result.output.splitlines()] == ["admit", "lease", "deliver"]


def test_last_is_the_end(folder: Path) -> None:
    """As tail -n does."""
    result = tail("--files", folder, "--last", 1, "--no-follow")
    assert [line.split()[2] for line in result.output.splitlines()] == ["deliver"]


def test_last_counts_what_is_wanted(folder: Path) -> None:
    """Whoever asks for one kind wants the last of these, however much else came since."""
    result = tail("--files", folder, "--last", 1, "--no-follow", "--kind", "admit")
    assert [line.split()[2] for line in result.output.splitlines()] == ["admit"]


@pytest.mark.parametrize(
    ("flags", "kinds"),
    [
        (["--kind", "admit", "--kind", "lease"], [Kind.ADMIT, Kind.LEASE]),
        (["--topic", "bills"], [Kind.DELIVER]),
        (["--client", "app"], [Kind.ADMIT]),
        (["--client", "7"], [Kind.ADMIT]),
        (["--client", "8"], []),
        (["--group", "g"], [Kind.DELIVER]),
        (["--principal", "ann"], [Kind.ADMIT]),
        (["--principal", "User:ann"], [Kind.ADMIT]),
        (["--principal", "an"], []),
    ],
    ids=str,
)
def test_filters_choose(folder: Path, flags: list[str], kinds: list[Kind]) -> None:
    """By kind, topic, client id or connection, group and user; as JSON each stands as in the log."""
    result = tail("--files", folder, "--from-beginning", "--no-follow", "--json", *flags)
    assert [Entry.load(line.encode()).decision.kind for line in result.output.splitlines()] == kinds


MOMENT = datetime.fromtimestamp(1_795_000_000.1245)
"""Between the first and the second decision of the folder."""


@pytest.mark.parametrize(
    ("since", "kinds"),
    [
        (MOMENT.isoformat(), ["lease", "deliver"]),
        (MOMENT.astimezone(timezone(timedelta(hours=5))).isoformat(), ["lease", "deliver"]),
        ("2000d", ["admit", "lease", "deliver"]),
        ("0s", []),
    ],
)
def test_a_time_from_which_on_decisions_are_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, since: str, kinds: list[str]
) -> None:
    """All of them, however many; local time unless it says otherwise."""
    monkeypatch.setattr(time, "time", lambda: 1_795_000_010.0)
    result = tail("--files", folder, "--no-follow", "--since", since, "--last", 1)
    assert result.exit_code == 0
    assert [line.split()[2] for line in result.output.splitlines()] == kinds


@pytest.mark.parametrize(
    ("flags", "code", "told"),
    [
        ([], 2, "name a broker"),
        (["--files", "/nowhere"], 1, "/nowhere is no folder"),
        (
            ["--bootstrap", "127.0.0.1:1", "--no-follow"],
            1,
            "the brokers at 127.0.0.1:1 cannot be read from: 127.0.0.1:1: connection refused",
        ),
        (["--kind", "nothing"], 2, "'nothing' is not one of"),
        (["--since", "noon"], 2, "'noon' is not a time: write 10m"),
    ],
    ids=str,
)
def test_what_is_missing_is_told(flags: list[str], code: int, told: str) -> None:
    """One line, and the exit codes of all commands."""
    result = tail(*flags)
    assert result.exit_code == code
    assert told in result.output
    assert "Traceback" not in result.output


def test_configuration_says_where_the_files_are(folder: Path, tmp_path: Path) -> None:
    """As Kordon itself is told."""
    file = tmp_path / "kordon.yaml"
    file.write_text(
        "upstream: {bootstrap: 127.0.0.1:1}\nlisten: {address: 127.0.0.1:2}\ndecisions: {to: files, folder: .}\n"
    )
    result = tail("--config", file, "--no-follow")
    assert len(result.output.splitlines()) == 3


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_who_has_read_enough_ends_it_without_a_word(folder: Path, flags: list[str]) -> None:
    """As of `| head -1`: a closed pipe is no error."""
    (folder / "decisions-c-000000.jsonl").write_bytes(b"".join(entry(n).dump() + b"\n" for n in range(20_000)))
    tail = [sys.executable, "-m", "kordon.proxy", "decisions", "tail", "--files", str(folder), "--from-beginning"]
    with subprocess.Popen([*tail, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


def test_following_shows_what_comes_and_ends_by_ctrl_c(folder: Path) -> None:
    """Lines appear as they are written, and the end is no traceback."""
    tail = [sys.executable, "-m", "kordon.proxy", "decisions", "tail", "--files", str(folder), "--json"]
    command = ["env", "--default-signal=INT", *tail]  # where the tests run in the background, they are deaf to it
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(3):
            Entry.load(process.stdout.readline())
        new = folder / "decisions-b-000001.jsonl"
        new.write_bytes(entry(3, worker="b").dump() + b"\n")
        assert Entry.load(process.stdout.readline()).number == 3
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr.read() == b""
