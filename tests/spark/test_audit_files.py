"""Decision files as a stream, what an audit keeps, and its command line: without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from click.testing import CliRunner

from kordon.commands import main
from kordon.spark_jobs.brokers import Security
from kordon.spark_jobs.decisions_source import java_security
from kordon.spark_jobs.errors import CannotCheck, MissingPart
from kordon.spark_jobs.files_source import Lines, LinesStream, lines_of
from kordon.spark_jobs.jars import CONNECTOR, jars_of
from kordon.spark_jobs.judging.shipments import VERSION
from kordon.spark_jobs.known import KnownState, Totals
from kordon.spark_jobs.metrics import AuditMetrics, Behind, Counted


def read(stream: LinesStream, start: dict[str, int], end: dict[str, int]) -> list[list[bytes]]:
    """The lines of each part."""
    parts = (part for part in stream.partitions(start, end) if isinstance(part, Lines))
    return [[line for _, _, lines in lines_of(part) for line in lines] for part in parts]


def test_whole_lines_are_read_once_while_files_grow(tmp_path: Path) -> None:
    """A line that is being written waits; a worker's files are one part, in their order."""
    first, second = tmp_path / "decisions-a-000000.jsonl", tmp_path / "decisions-a-000001.jsonl"
    first.write_bytes(b"one\ntwo\nthr")
    stream = LinesStream({"folder": str(tmp_path), "tasks": "4"})
    at = stream.latestOffset()
    assert read(stream, stream.initialOffset(), at) == [[b"one", b"two"]]
    assert stream.latestOffset() == at
    first.write_bytes(b"one\ntwo\nthree\n")
    second.write_bytes(b"four\n")
    (tmp_path / "decisions-b-000000.jsonl").write_bytes(b"other\n")
    following = stream.latestOffset()
    assert read(stream, at, following) == [[b"three", b"four"], [b"other"]]
    assert read(stream, stream.initialOffset(), following)[0] == [b"one", b"two", b"three", b"four"]


def test_a_micro_batch_of_files_is_bounded(tmp_path: Path) -> None:
    """What is too much comes next, also when the stream was begun again in between; removed files are passed over."""
    (tmp_path / "decisions-a-000000.jsonl").write_bytes(b"12345678\n" * 10)
    (tmp_path / "decisions-a-000001.jsonl").write_bytes(b"12345678\n" * 10)
    options = {"folder": str(tmp_path), "max_bytes": "100"}
    stream, at, found = LinesStream(options), dict[str, int](), list[bytes]()
    for _ in range(5):
        following = stream.latestOffset()
        found += [line for part in read(stream, at, following) for line in part]
        at = following
        stream = LinesStream({**options, "positions": json.dumps(at)})
    assert found == [b"12345678"] * 20
    (tmp_path / "decisions-a-000000.jsonl").unlink()
    assert read(stream, {}, at) == [[b"12345678"] * 10]


def test_workers_have_their_shares_of_a_micro_batch(tmp_path: Path) -> None:
    """So no worker's time runs ahead of the others'; whose share is less than a line is given one all the same."""
    (tmp_path / "decisions-a-000000.jsonl").write_bytes(b"12345678\n" * 60)
    (tmp_path / "decisions-a-000001.jsonl").write_bytes(b"12345678\n" * 20)
    (tmp_path / "decisions-b-000000.jsonl").write_bytes(b"12345678\n" * 40)
    (tmp_path / "decisions-c-000000.jsonl").write_bytes(b"12345678\n")
    stream = LinesStream({"folder": str(tmp_path), "max_bytes": "360", "tasks": "4"})
    at, shares = dict[str, int](), list[list[int]]()
    while (following := stream.latestOffset()) != at:
        shares.append([len(lines) for lines in read(stream, at, following)])
        at = following
    assert shares == [[26, 13, 1], [26, 13], [26, 13], [2, 1]]


def test_a_pinned_stream_leaves_alone_what_comes_later(tmp_path: Path) -> None:
    """`--once` ends, however busy the proxy is."""
    file = tmp_path / "decisions-a-000000.jsonl"
    file.write_bytes(b"one\n")
    stream = LinesStream({"folder": str(tmp_path), "pinned": "true"})
    at = stream.latestOffset()
    file.write_bytes(b"one\ntwo\n")
    (tmp_path / "decisions-b-000000.jsonl").write_bytes(b"other\n")
    assert stream.latestOffset() == at


def test_what_is_known_adds_up_over_the_parts_and_the_micro_batches() -> None:
    """Of times the newest; and a file of which half is written is none."""
    news = {"newest_ms": 8, "decisions": 2, "batches": 1, "bytes": 100, "unreadable": 0}
    totals = Totals(newest_ms=9, decisions=3).with_news([news, {**news, "newest_ms": 7, "unreadable": 1}])
    assert totals == Totals(newest_ms=9, decisions=7, batches=2, bytes=200, unreadable=1)
    known = KnownState(parts=2, managed=("t",), totals=totals).with_ranges([(1, "pass"), (1, "pass"), (4, "unknown")])
    known = known.with_ranges([(1, "pass")])
    assert known.ranges == {1: {"pass": 3}, 4: {"unknown": 1}}
    assert KnownState.load(json.dumps(known.dump())) == replace(known, version=VERSION)
    with pytest.raises(ValueError, match=r"(?i)json"):
        KnownState.load(json.dumps(known.dump())[:-5])


def test_java_is_told_of_log_ins_as_the_auditor_is() -> None:
    """Names and passwords are quoted as JAAS wants them."""
    told = java_security(
        Security.of(
            {
                "security_protocol": "SASL_SSL",
                "ssl_cafile": "/ca.pem",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_plain_username": "me",
                "sasl_plain_password": 'a"b\\c',
            }
        )
    )
    assert told["kafka.security.protocol"] == "SASL_SSL"
    assert told["kafka.ssl.truststore.location"] == "/ca.pem"
    assert told["kafka.sasl.jaas.config"].endswith('ScramLoginModule required username="me" password="a\\"b\\\\c";')
    assert java_security(Security()) == {"kafka.security.protocol": "PLAINTEXT"}


def test_jars_are_found_where_the_user_says_or_spark_has_them(tmp_path: Path) -> None:
    """A folder without the connector is told as such."""
    (tmp_path / "jars").mkdir()
    with pytest.raises(CannotCheck, match="spark-sql-kafka"):
        jars_of([CONNECTOR], tmp_path / "jars", tmp_path, {})
    jar = tmp_path / "jars" / "spark-sql-kafka-0-10_2.13-4.1.3.jar"
    jar.touch()
    assert jars_of([CONNECTOR], tmp_path / "jars", Path("/nowhere"), {}) == [jar]
    assert jars_of([CONNECTOR], None, Path("/nowhere"), {"KORDON_SPARK_JARS": str(tmp_path / "jars")}) == [jar]
    assert jars_of([CONNECTOR], None, tmp_path, {}) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name the brokers"),
        (("--bootstrap", "x:1", "--config", "{config}"), "remove password"),
        (("--bootstrap", "x:1", "--conf", "wrong"), "NAME=VALUE"),
        (("--bootstrap", "x:1", "--metrics-address", "nowhere"), "HOST:PORT"),
    ],
)
def test_mistakes_on_the_command_line_are_explained(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """With exit code 2, before Spark is started."""
    (tmp_path / "config.yaml").write_text("security_protocol: SSL\npassword: x\n")
    given = [each.format(config=tmp_path / "config.yaml") for each in arguments]
    ended = CliRunner().invoke(main, ["audit", "run", "--out", str(tmp_path / "out"), *given])
    assert (ended.exit_code, words in ended.output) == (2, True), ended.output


def test_a_missing_part_names_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with a stack, but with a command."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ended = CliRunner().invoke(main, ["audit", "run", "--bootstrap", "x:1", "--out", str(tmp_path)])
    assert (ended.exit_code, "pip install '.[audit]'" in ended.output) == (2, True)
    ended = CliRunner().invoke(main, ["audit", "report", "--from", str(tmp_path)])
    assert (ended.exit_code, "pip install '.[audit]'" in ended.output) == (2, True)
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    from kordon.spark_jobs.session import Setup, open_session  # noqa: PLC0415

    with pytest.raises(MissingPart, match="openjdk"):
        open_session(Setup(master="local[1]"))


def test_metrics_count_what_is_new_only() -> None:
    """What an earlier process counted is not counted again; series are there from the start."""
    metrics = AuditMetrics({1: "COUNT-FENCE"})
    metrics.resume({"decisions": 10, "bytes": 5})
    metrics.count_batch({"decisions": 12, "bytes": 5}, 3.0)
    metrics.lag(Behind(7, 2.5, 100))
    metrics.count_findings(
        [
            Counted("COUNT-FENCE", "fail", "bypass", 2),
            Counted("COUNT-FENCE", "unknown", "gap", 1),
            Counted("COUNT-FENCE", "late", None, 4),
        ]
    )

    def value(name: str, **labels: str) -> Any:
        return metrics.registry.get_sample_value(name, labels)

    assert value("kordon_audit_decisions_total") == 2
    assert value("kordon_audit_bytes_total") == 0
    assert value("kordon_audit_lag_decisions") == 7
    assert value("kordon_audit_lag_seconds") == 2.5
    assert value("kordon_audit_findings_total", rule="COUNT-FENCE", verdict="fail") == 2
    assert value("kordon_audit_bypasses_total") == 2
    assert value("kordon_audit_gaps_total") == 1
    assert value("kordon_audit_late_total", rule="COUNT-FENCE") == 4
    assert value("kordon_audit_undelivered_findings", to="topic") == 0
    assert value("kordon_audit_batch_seconds_count") == 1
