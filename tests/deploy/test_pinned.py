"""What is fetched to build Kordon is what was looked at: each base image and each jar is named by its content."""

import re
import shutil
from pathlib import Path

import pytest

from kordon.spark_jobs.jars import LISTED, unlisted
from kordon.testing.jars import PROJECT, VERSIONS, jars_dir

DEPLOY = PROJECT / "deploy"


def test_the_base_of_the_image_is_pinned_by_its_digest() -> None:
    """Every stage comes of one base, whose digest stands in one place."""
    text = (PROJECT / "Dockerfile").read_text()
    bases = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) - set(re.findall(r" AS (\S+)$", text, re.MULTILINE))
    assert bases == {"${BASE}"}
    (base,) = re.findall(r"^ARG BASE=(.*)$", text, re.MULTILINE)
    assert re.fullmatch(r"debian:bookworm-slim@sha256:[0-9a-f]{64}", base)


def test_jars_of_brokers_are_those_that_were_listed() -> None:
    """What lies in the cache is, byte for byte, what the project's list has."""
    assert unlisted(jars_dir(), DEPLOY / LISTED) == []


@pytest.mark.parametrize("harm", ["other bytes", "another name"])
def test_a_jar_that_is_another_is_named(harm: str, tmp_path: Path) -> None:
    """One bit or one name that differs is enough."""
    jar = next(iter(jars_dir().glob("kafka-clients-*.jar")))
    copy = tmp_path / (jar.name if harm == "other bytes" else "kafka-clients-evil.jar")
    shutil.copyfile(jar, copy)
    if harm == "other bytes":
        with copy.open("ab") as file:
            file.write(b"x")
    assert unlisted(tmp_path, DEPLOY / LISTED) == [copy.name]


def test_all_versions_that_tests_run_are_listed() -> None:
    """`KAFKA=3.9` and the auditor's connector are pinned, too."""
    names = {line.split("  ")[1] for line in (DEPLOY / LISTED).read_text().splitlines()}
    assert {f"kafka-clients-{version}.jar" for version in VERSIONS.values()} <= names
    assert any(name.startswith("spark-sql-kafka") for name in names)
