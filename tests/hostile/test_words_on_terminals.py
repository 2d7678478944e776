"""A client cannot draw on an operator's terminal, hide its own lines there, or turn round what stands behind them."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from kordon.codecs.decision import Decision, Entry, Kind
from kordon.proxy.commands.cli import main
from kordon.proxy.commands.decisions_line import Screen, draw
from kordon.proxy.commands.status import render_status
from kordon.proxy.commands.topics_tables import draw_all, draw_history, draw_topic
from kordon.spark_jobs import report
from kordon.testing.audits import report_sample

HOSTILE = "\x1b]0;owned\x07\x1b[2A\x9b2K\nforged \u202eline\r\x08"
OBEYED = set(HOSTILE) - set("]0;owned[2AKforged line")


def printed(drawn: Any, console: Console) -> str:
    console.print(drawn)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def hostile(entry: Any) -> Any:
    """The same object with the hostile words in place of each text."""
    if isinstance(entry, dict):
        return {key: hostile(value) for key, value in entry.items()}
    if isinstance(entry, list):
        return [hostile(value) for value in entry]
    return HOSTILE if isinstance(entry, str) else entry


CONTROL = {
    "serves": False, "why_not": "why", "generation": 3, "lease_seconds_left": 1.0, "layouts_position": 4,
    "members": [{"host": "host", "leads": True}], "leads": True, "wishes": [{"what": "grow"}],
    "procedures": [{"topic": "t", "undeleted_partition_count": 3, "stage": "s", "seconds": 1.0, "attempts": 1,
                    "waits_for": ["host"]}],
}  # fmt: skip
FINDING = {"found": "now", "kind": "kind", "text": "text"}
TOPIC = {
    "topic": "orders", "undeleted_partition_count": 3, "initial_partition_count": 3, "virtual_partitions": 6,
    "layout_epoch": 1, "ordered_delivery": True, "topic_id": "id", "face_id": "id", "face": "face",
    "findings": [FINDING], "held": [{"partitions": [1], "virtual_partitions": [], "why": "group waits"}],
    "epochs": [], "partitions": [], "chains": [], "control": CONTROL,
}  # fmt: skip
PAGE = {"enabled": True, "control": CONTROL, "findings": [FINDING], "topics": [TOPIC]}
STATUS = {"state": "running", "version": "1", "unready": ["because"], "upstream": {
    "cluster_id": "id", "last_refresh_seconds_ago": 1.0, "bootstrap": ["a"],
    "nodes": [{"node_id": 1, "address": "a", "advertised": "b", "up": False, "error": "error"}]}}  # fmt: skip


@pytest.mark.parametrize(
    ("draw_it", "facts"),
    [(draw_all, PAGE), (draw_topic, TOPIC), (draw_history, TOPIC), (render_status, STATUS)],
    ids=["list", "describe", "explain", "status"],
)
def test_tables_obey_nobody(draw_it: Any, facts: Any) -> None:
    """Each text of the admin pages is shown with its escapes spelled out."""
    text = printed(draw_it(hostile(facts)), Console(file=io.StringIO(), width=4000))
    assert not OBEYED & (set(text) - {"\n"})
    assert not [line for line in text.splitlines() if line.lstrip().startswith("forged")]


def decision() -> Decision:
    """One of a client with a hostile name, group and user."""
    return Decision(
        kind=Kind.REFUSE, connection=1, client_id=HOSTILE, principal=HOSTILE, group_id=HOSTILE, topic=HOSTILE,
        rule="RIGHTS-FIRST", reason="WHY", evidence={"who": HOSTILE},
    )  # fmt: skip


def entry() -> Entry:
    return Entry(at_ms=1_795_000_000_000, host="h", worker="w" * 6, number=1, decision=decision())


def test_a_decision_is_one_line_whatever_its_client_is_called() -> None:
    """`kordon decisions tail` shows one line for it, the client's commands spelled out."""
    text = printed(draw(entry()), Screen(file=io.StringIO(), width=10_000, soft_wrap=True, highlight=False))
    assert text.count("\n") == 1
    assert not OBEYED & (set(text) - {"\n"})


def test_json_of_a_decision_is_fit_for_a_terminal_and_says_the_same(tmp_path: Path) -> None:
    """`--json` prints the record as it is to programs, and nothing that a terminal obeys."""
    (tmp_path / "decisions-h-wwwwww-000001.jsonl").write_bytes(entry().dump() + b"\n")
    arguments = ["decisions", "tail", "--files", str(tmp_path), "--from-beginning", "--no-follow", "--json"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert not OBEYED & (set(done.output) - {"\n"})
    assert json.loads(done.output)["client_id"] == HOSTILE


def test_the_report_turns_nothing_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic's name on the audit's page has neither commands nor marks of direction."""
    monkeypatch.setattr(report_sample, "TOPIC", HOSTILE)
    report_sample.write(tmp_path / "audit", findings=(report_sample.FINDING,))
    report.write(tmp_path / "audit", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not (OBEYED - {"\n", "\r"}) & set(page)
    assert "u202e" in page
