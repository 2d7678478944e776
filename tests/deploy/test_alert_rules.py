"""The scrape configuration and the alert rules, judged by Prometheus' own tool, promtool."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kordon.proxy.process.managed_families import FAMILIES
from kordon.spark_jobs.families import FAMILIES as AUDIT_FAMILIES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
NOT_OURS = {"up", "process_open_fds", "process_max_fds"}


def promtool(*arguments: str) -> str:
    """What promtool says, run in the folder of the rules; fails when promtool finds a mistake."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not here (Debian: apt install prometheus)")
    done = subprocess.run([program, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((FOLDER / "alerts.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def test_prometheus_accepts_the_scrape_configuration() -> None:
    """Prometheus' own check accepts prometheus.yml and the rule files it names."""
    assert "1 rule files found" in promtool("check", "config", "prometheus.yml")


def test_alerts_fire_when_they_should_and_only_then() -> None:
    """Every case of alerts_test.yml holds: what fires, with which labels and words, and what stays quiet."""
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    """No alert is there that nobody has seen fire, or has seen stay quiet."""
    cases = [
        case
        for test in yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    names = {rule["alert"] for rule in rules()}
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == names
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == names


def test_alerts_ask_only_for_metrics_that_kordon_exports() -> None:
    """A renamed metric breaks this test instead of silencing an alert."""
    for rule in rules():
        asked = set(re.findall(r"\b(?:kordon|process)_\w+(?=[{\[ )])|\bup(?=\{)", rule["expr"]))
        asked = {re.sub(r"_bucket$", "", name) for name in asked}
        assert asked, rule["alert"]
        assert asked <= FAMILIES.keys() | AUDIT_FAMILIES.keys() | NOT_OURS, rule["alert"]


def test_every_alert_tells_its_urgency_and_what_to_do() -> None:
    """Who is woken up reads what is wrong in one line, what it means in two, and where to read on."""
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}, rule["alert"]
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}, rule["alert"]


def test_every_alert_leads_to_its_own_paragraph_of_the_runbook() -> None:
    """The runbook has a heading with a paragraph for each alert there is, and for no other."""
    sections = re.split(r"^#{2,} ", (ROOT / "docs" / "runbook.md").read_text(), flags=re.MULTILINE)[1:]
    paragraphs = {heading: text for heading, _, text in (section.partition("\n") for section in sections)}
    named = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules()}
    assert {heading for heading in paragraphs if heading.startswith("Kordon")} == named.keys()
    for alert, url in named.items():
        assert url == f"docs/runbook.md#{alert.lower()}"
        assert len(paragraphs[alert].split()) > 20, alert


def test_every_alert_has_a_first_command_and_says_whom_it_hurts() -> None:
    """Who is woken up at night finds in the same four rows what to type, what clients suffer, and whom to wake."""
    sections = re.split(r"^### ", (ROOT / "docs" / "runbook.md").read_text(), flags=re.MULTILINE)[1:]
    for section in (each for each in sections if each.startswith("Kordon")):
        rows = re.findall(r"^\| ([^|]+) \| .{3,} \|$", section, flags=re.MULTILINE)
        assert rows[:5] == ["---", "means", "first", "harm to clients now", "wake somebody"], section
