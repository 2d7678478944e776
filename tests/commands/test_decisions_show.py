"""`kordon decisions show`: single decisions by worker and number, and what is said of those that are not there."""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

from kordon.codecs.decision import Decision, Entry, Kind
from kordon.codecs.error_codes import Code
from kordon.proxy.commands import decisions_found, decisions_source
from kordon.proxy.commands.cli import main
from kordon.proxy.commands.decisions_found import Name, Search, search_topic, searches
from kordon.proxy.commands.decisions_source import DecisionsTopic, LogUnreadable, PartitionSpan, decisions_topic
from kordon.proxy.commands.topic_reader import TopicUnreadable
from kordon.proxy.config.config import Upstream
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core.errors import KordonError, UpstreamUnavailable
from kordon.proxy.kafka.ends import TopicsRefused

HOSTILE = "'; rm -rf ~; echo \"$(id)"


def entry(worker: str, number: int, **more: Any) -> Entry:
    decision = Decision(kind=Kind.ADMIT, topic="orders", client_id="a\x1b[2Kb\u202e", **more)
    return Entry(at_ms=1_795_000_000_123, host="h", worker=worker, number=number, decision=decision)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Decisions of two workers in files: of worker a, 5 was dropped, and 9 is being written."""
    numbers = {"a-000000": [3, 4], "a-000001": [6, 8], "b-000000": [0]}
    for name, of_file in numbers.items():
        lines = b"".join(entry(name[0], number).dump() + b"\n" for number in of_file)
        (tmp_path / f"decisions-{name}.jsonl").write_bytes(lines)
    with (tmp_path / "decisions-a-000001.jsonl").open("ab") as file:
        file.write(entry("a", 9).dump()[:-20])
    return tmp_path


def show(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["decisions", "show", *map(str, arguments)])


def test_decisions_are_shown_whole_in_the_order_in_which_they_are_asked_for(folder: Path) -> None:
    """Each once, with every field that the log has; what clients choose cannot command a terminal."""
    result = show("--files", folder, "b:0", "a:6", "b:0")

    assert result.exit_code == 0
    heads = [line for line in result.output.splitlines() if " at " in line]
    assert heads == ["b:0  admit at 2026-11-18 11:06:40.123 UTC", "a:6  admit at 2026-11-18 11:06:40.123 UTC"]
    _, _, fields = result.output.rpartition(" UTC\n")
    assert json.loads(fields) == json.loads(entry("a", 6).dump())
    assert "\x1b" not in result.output
    assert "\u202e" not in result.output


def test_as_json_each_decision_is_a_line_as_in_the_log(folder: Path) -> None:
    """Other programs read it."""
    result = show("--files", folder, "a:3", "b:0", "--json")

    assert [Entry.load(line.encode()) for line in result.output.splitlines()] == [entry("a", 3), entry("b", 0)]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a:1", "the log has this worker's decisions from number 3 on"),
        ("a:5", "Kordon has dropped it; `kordon decisions tail --kind gap --from-beginning` shows when and why"),
        ("a:9", "the last decision of this worker is number 8. This one is not written yet"),
        ("nobody:0", "there is no decision of this worker. Is it the log of that Kordon"),
        (f"{HOSTILE}:0", "there is no decision of this worker"),
    ],
)
def test_of_a_decision_that_is_not_there_the_reason_is_told(folder: Path, name: str, told: str) -> None:
    """Those that are there are shown all the same, and the exit code says that not all are."""
    result = show("--files", folder, name, "b:0")

    assert result.exit_code == 1
    assert f"{name} was not found: " in result.stderr
    assert told in result.stderr
    assert "b:0  admit" in result.stdout


@pytest.mark.parametrize(
    ("flags", "code", "told"),
    [
        (["a:1"], 2, "name a broker"),
        ([], 2, "Missing argument 'WORKER:NUMBER"),
        (["--files", ".", "a-1"], 2, "'a-1' is not WORKER:NUMBER"),
        (["--files", ".", "a:-1"], 2, "'a:-1' is not WORKER:NUMBER"),
        (["--files", ".", f"a:{'9' * 5000}"], 2, "is not WORKER:NUMBER"),
        (["--files", ".", os.fsdecode(b"\xff:1")], 2, "is not WORKER:NUMBER"),
        (["--files", "/nowhere", "a:1"], 1, "/nowhere is no folder"),
        (["--bootstrap", "127.0.0.1:1,127.0.0.1", "a:1"], 2, "--bootstrap: the port is missing"),
        (["--bootstrap", "127.0.0.1:1,127.0.0.1:2", "a:1"], 1, "127.0.0.1:1, 127.0.0.1:2 cannot be read from"),
        (["--since", "noon", "a:1"], 2, "'noon' is not a time"),
    ],
)
def test_what_cannot_be_done_is_told_with_what_would_help(flags: list[str], code: int, told: str) -> None:
    """In a line, with the exit codes of all commands."""
    result = show(*flags)

    assert result.exit_code == code
    assert told in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "text",
    [
        '{"number": 7, "kind": "admit", "worker": "a", "host": "h", "at_ms": 1, "schema": 1}',
        '{"schema": 1, "at_ms": 1, "host": "h", "worker": "a", "number": 7, "kind": "admit"}',
    ],
    ids=["in another order", "with spaces"],
)
def test_files_that_another_program_has_rewritten_are_read_too(tmp_path: Path, text: str) -> None:
    """A collector may have taken them away and put their fields down in its own way."""
    (tmp_path / "decisions-collected-000000.jsonl").write_text(f"no decision\n{text}\n")

    assert show("--files", tmp_path, "a:7").exit_code == 0


def test_a_decision_of_another_worker_that_names_this_one_is_not_taken(tmp_path: Path) -> None:
    """Its number says nothing of this worker's decisions."""
    named = entry("b", 7, evidence={"members": ["a"]})
    (tmp_path / "decisions-b-000000.jsonl").write_bytes(named.dump() + b"\n")

    result = show("--files", tmp_path, "a:7")

    assert "there is no decision of this worker" in result.output


class Topic:
    """Stands in for the topic at the brokers: it gives one record at a time.

    Args:
        partitions: The decisions in each.
    """

    def __init__(self, *partitions: list[Entry]) -> None:
        self._partitions = partitions
        self.positions: dict[int, int] = {}
        self.given: list[tuple[int, int]] = []
        """Partition and offset of each record that was given."""

    async def spans(self, *_asked: object) -> dict[int, PartitionSpan]:
        return {number: PartitionSpan(0, len(rows)) for number, rows in enumerate(self._partitions)}

    async def read(self, partitions: list[int]) -> list[bytes]:
        (number,) = partitions
        offset = self.positions[number]
        self.given.append((number, offset))
        self.positions[number] += 1
        return [self._partitions[number][offset].dump()]


async def found(topic: Topic, *names: str) -> Search:
    """Looks for decisions of one worker in a topic."""

    @asynccontextmanager
    async def opened(_upstream: Upstream) -> AsyncGenerator[Topic]:
        yield topic

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decisions_found, "decisions_topic", opened)
        (wanted,) = searches(Name.parse(name) for name in names)
        await search_topic(Upstream(bootstrap=(HostPort("h", 1),)), [wanted], None)
    return wanted


OF_A: Final = [entry("c", 0), entry("a", 3), entry("a", 4), entry("c", 1), entry("a", 6), entry("a", 7), entry("c", 2)]
"""Partition 0 of three is where workers a and c write to."""


@pytest.mark.parametrize(
    ("name", "read", "is_found"),
    [("a:4", 3, True), ("a:5", 5, False), ("a:7", 6, True)],
)
async def test_a_partition_is_read_as_far_as_the_decision_and_others_not_at_all(
    name: str, read: int, *, is_found: bool
) -> None:
    """The same where the record has a gap: what comes behind has higher numbers."""
    topic = Topic(OF_A, [entry("x", 0)], [entry("b", 0)])

    wanted = await found(topic, name)

    assert (not wanted.missing) == is_found
    assert topic.given == [(0, offset) for offset in range(read)]


async def test_partitions_that_a_topic_has_got_later_are_no_hindrance() -> None:
    """The worker wrote by the former number of partitions until it connected anew; then all are read."""
    topic = Topic([entry("b", 0), entry("a", 8), entry("b", 1)], [entry("x", 0)], OF_A)

    wanted = await found(topic, "a:3", "a:6")

    assert [wanted.found[number] for number in (3, 6)] == [entry("a", 3), entry("a", 6)]


async def test_a_decision_that_is_nowhere_costs_one_reading_of_the_topic() -> None:
    """The end is where the topic ended when the search began."""
    topic = Topic(OF_A, [entry("x", 0)], [entry("b", 0)])

    wanted = await found(topic, "a:99")

    assert len(topic.given) == len(OF_A) + 2
    assert wanted.why_missing(99).startswith("the last decision of this worker is number 7.")


class Silence:
    """Stands in for brokers that do not answer, or that refuse."""

    def __init__(self, error: Exception) -> None:
        self.leaders = self
        self._error = error

    def forget(self, topic: str) -> None:
        assert topic == "__kordon.decisions"

    async def leader(self, *_asked: object) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "raised", "told"),
    [
        (UpstreamUnavailable("broker 2: connection refused"), LogUnreadable, "for 0 s: are all of them up"),
        (TopicsRefused("reading", Code.TOPIC_AUTHORIZATION_FAILED), TopicsRefused, "TOPIC_AUTHORIZATION_FAILED"),
    ],
    ids=["silent", "refused"],
)
async def test_brokers_that_give_nothing_end_the_reading(
    monkeypatch: pytest.MonkeyPatch, error: UpstreamUnavailable, raised: type[KordonError], told: str
) -> None:
    """Nobody waits for ever, and who may not read is told at once."""
    monkeypatch.setattr(decisions_source, "_PATIENCE_SECONDS", 0.02)
    monkeypatch.setattr(decisions_source, "_POLL_SECONDS", 0.01)
    topic = DecisionsTopic(Silence(error))  # type: ignore[arg-type]
    topic.positions = {0: 7}

    with pytest.raises(raised, match=told):
        await topic.read([0])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TopicsRefused("reading", Code.TOPIC_AUTHORIZATION_FAILED), "nobody, .* may not read __kordon.decisions"),
        (UpstreamUnavailable("it is down"), "the brokers at h:1 cannot be read from: it is down"),
        (TopicUnreadable("records are lost there"), "records are lost there"),
    ],
    ids=["not allowed", "down", "lost"],
)
async def test_why_the_topic_cannot_be_read_is_told(
    monkeypatch: pytest.MonkeyPatch, error: KordonError, told: str
) -> None:
    """In words that name the brokers, or the right that is missing."""

    @asynccontextmanager
    async def failing(_upstream: Upstream) -> AsyncGenerator[None]:
        raise error
        yield

    monkeypatch.setattr(decisions_source, "brokers_at", failing)
    with pytest.raises(LogUnreadable, match=told):
        async with decisions_topic(Upstream(bootstrap=(HostPort("h", 1),))):
            pass
