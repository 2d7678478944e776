"""The commands that the report gives for each finding: they name exactly what they should, whatever its name."""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kordon.spark_jobs.report.commands import MOST_RECORDS, Commands
from kordon.spark_jobs.report.findings import MOST_DECISIONS, MOST_PROOFS, MOST_SHOWN
from kordon.spark_jobs.report.page import render, report_of
from kordon.spark_jobs.report.tables import Row, Tables, read
from kordon.testing.audits import report_sample
from kordon.testing.cluster import Cluster

HOSTILE: Final = (
    "'; touch owned; echo '",
    '"$(touch owned)`touch owned`',
    "a\ntouch owned\n",
    "\x1b[2K\u202e!touch\\'owned",
    "</pre><script>alert(1)</script>",
    "-rf ~ && touch owned",
    "--config=owned",
)
WORKER: Final = "kordon-1-7f3a"


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Those of the sample."""
    report_sample.write(tmp_path / "audit")
    return read(tmp_path / "audit")


def about(tables: Tables, **more: Any) -> Tables:
    """The tables of an audit that was run in another way."""
    return replace(tables, about={**tables.about, **more})


def finding(**more: Any) -> Row:
    return {**report_sample.FINDING, **more}


def typed(command: str, folder: Path) -> list[str]:
    """What a shell makes of a command: the program and its arguments."""
    program = shlex.split(command)[0]
    stand_in = f"{program}() {{ printf '%s\\0' {program} \"$@\"; }}\n"
    done = subprocess.run(["bash", "-c", stand_in + command], cwd=folder, capture_output=True, timeout=60, check=True)
    return done.stdout.decode().split("\0")[:-1]


def commands_of(page: str) -> list[str]:
    return [unescape(text) for text in re.findall(r'<pre class="command"[^>]*>(.*?)</pre>', page, re.DOTALL)]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_one_word_of_the_command_and_never_another_command(tables: Tables, tmp_path: Path, name: str) -> None:
    """Of a worker, a topic, a folder and the brokers, as a reader copies it from the page."""
    hostile = about(replace(tables, findings=[finding(topic=name, decisions=[f"{name}:7"])]), bootstrap=name)

    page = render(report_of(hostile), 0)
    shown, read_ = (typed(command, tmp_path) for command in commands_of(page))
    (of_files, _) = commands_of(render(report_of(about(hostile, files=name)), 0))

    assert shown[:5] == ["kordon", "decisions", "show", "--bootstrap", name]
    assert shown[-1] == f"{name}:7"
    assert (shown[-2] == "--") == name.startswith("-")
    assert read_[:4] == ["kafka-console-consumer.sh", "--bootstrap-server", name, f"--topic={name}"]
    assert typed(of_files, tmp_path)[3:5] == ["--files", name]
    assert not (tmp_path / "owned").exists()
    assert "<script>alert" not in page
    assert not re.search("[\x1b\u202e]", page)


def test_each_finding_has_the_command_that_shows_its_decisions(tables: Tables, tmp_path: Path) -> None:
    """All of them, with a minute more than the oldest is old, as far as its time is known."""
    (shown,), (decision,) = report_of(tables).findings, report_of(tables).decisions

    assert typed(shown.show, tmp_path)[3:] == [
        *("--bootstrap", "broker-1:9092"),
        *("--since", "2026-11-21T22:25:40Z"),  # the second is not at hand: since its worker began
        *(f"{WORKER}:8812", f"{WORKER}:8840"),
    ]
    assert typed(decision.command, tmp_path)[5:] == ["--since", "2026-11-21T22:29:51Z", f"{WORKER}:8812"]


def test_a_search_begins_at_the_beginning_if_nobody_knows_since_when(tables: Tables) -> None:
    """A worker of which no decision is at hand."""
    assert "--since" not in Commands(tables).show([f"{WORKER}:8812", "other:1"])
    assert Commands(tables).show([]) == ""


def test_decisions_that_came_from_files_are_shown_from_files(tables: Tables, tmp_path: Path) -> None:
    """The records still come from the brokers, if the audit knew any."""
    from_files = Commands(about(tables, files="/var/log/kordon"))

    command = from_files.show([f"{WORKER}:8812"])
    assert typed(command, tmp_path)[3:] == ["--files", "/var/log/kordon", f"{WORKER}:8812"]
    assert "--bootstrap-server broker-1:9092" in from_files.read(finding())
    assert Commands(about(tables, files="/var/log/kordon", bootstrap=None)).read(finding()) == ""


def test_without_any_place_there_is_no_command(tables: Tables) -> None:
    """An audit of an earlier version did not write down where it read."""
    page = render(report_of(replace(tables, about={})), 0)

    assert commands_of(page) == []
    assert f"{WORKER}:8840" in page


@pytest.mark.parametrize(
    ("changes", "offset", "count"),
    [
        ({}, 48_211, 20),
        ({"last_offset": None}, 48_211, 1),
        ({"last_offset": 48_211 + 5 * MOST_RECORDS}, 48_211, MOST_RECORDS),
        ({"first_offset": 0, "last_offset": 0}, 0, 1),
    ],
)
def test_the_records_of_a_finding_are_asked_for_by_partition_and_offsets(
    tables: Tables, tmp_path: Path, changes: Mapping[str, Any], offset: int, count: int
) -> None:
    """No more than a person can look at; the command ends even if there are fewer."""
    words = typed(Commands(tables).read(finding(**changes)), tmp_path)

    assert words[1:5] == ["--bootstrap-server", "broker-1:9092", "--topic=orders", "--partition"]
    options = dict(zip(words[4:12:2], words[5:12:2], strict=True))
    assert options["--partition"] == "4"
    assert (options["--offset"], options["--max-messages"]) == (str(offset), str(count))
    assert options["--timeout-ms"] == "10000"


@pytest.mark.parametrize("missing", ["topic", "partition", "first_offset"])
def test_a_finding_without_offsets_has_no_command_for_records(tables: Tables, missing: str) -> None:
    """As one of GAPS, which names decisions alone."""
    assert Commands(tables).read(finding(**{missing: None})) == ""


def test_a_decision_stands_once_on_the_page_and_findings_link_to_it(tables: Tables) -> None:
    """However many name it; no link leads to nowhere."""
    twice = replace(tables, findings=[finding(), finding(finding_id="another")])

    page = render(report_of(twice), 0)

    assert page.count(f'<a href="#decision-1"><code>{WORKER}:8812</code></a>') == 2
    assert page.count("&#34;sent_epoch&#34;: 3") == 1
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r'id="([^"]+)"', page))


def test_evidence_that_the_auditor_has_cut_is_shown_as_it_is(tables: Tables) -> None:
    """It is no JSON any more; the rest of the decision is."""
    (proof,) = tables.proofs
    cut = {**proof, "decision": json.dumps({**json.loads(proof["decision"]), "evidence": '{"sent_epo'})}

    (decision,) = report_of(replace(tables, proofs=[cut])).decisions

    assert json.loads(decision.decision)["evidence"] == '{"sent_epo'
    assert (decision.kind, decision.when) == ("admit", "2026-11-21 22:30:51.900")


def test_a_page_of_very_many_findings_stays_small(tables: Tables) -> None:
    """Findings, decisions of each, and decisions with their fields are bounded."""
    names = [f"{WORKER}:{number}" for number in range(20_000)]
    (proof,) = tables.proofs
    many = replace(
        tables,
        findings=[finding(finding_id=str(at), decisions=names[20 * at :][:60]) for at in range(2 * MOST_SHOWN)],
        proofs=[{**proof, "number": number} for number in range(20_000)],
    )

    told = report_of(many)

    assert len(told.findings) == MOST_SHOWN
    assert len(told.decisions) == MOST_DECISIONS
    assert {len(each.proofs) for each in told.findings} == {MOST_PROOFS}
    assert {each.left_out for each in told.findings} == {60 - MOST_PROOFS}
    assert len(render(told, 0)) < 8_000_000


def test_kafkas_own_consumer_shows_the_records_of_a_finding(
    tables: Tables, open_cluster: Cluster, tmp_path: Path
) -> None:
    """The page's command is typed as it is, for a topic with a name that looks like an option."""
    topic, bootstrap = "-orders_1.x", open_cluster.bootstrap("PLAINTEXT")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, f"value-{number}", f"key-{number}", partition=2)
    assert producer.flush(60) == 0
    script = tmp_path / "kafka-console-consumer.sh"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(open_cluster.tool_command("kafka-console-consumer"))} "$@"\n')
    script.chmod(0o755)
    where = finding(topic=topic, partition=2, first_offset=4, last_offset=6)

    command = Commands(about(tables, bootstrap=bootstrap)).read(where)
    assert command.count("--timeout-ms 10000") == 1
    command = command.replace("--timeout-ms 10000", "--timeout-ms 100000")  # other tests may have the processors
    done = subprocess.run(
        ["bash", "-c", f"PATH={tmp_path}:$PATH\n{command}"], capture_output=True, text=True, timeout=120, check=False
    )

    lines = [line for line in done.stdout.splitlines() if "value" in line]
    assert [re.findall(r"Offset:(\d+)\s+key-(\d)\s+value-(\d)", line) for line in lines] == [
        [(str(number),) * 3] for number in (4, 5, 6)
    ], done.stderr
