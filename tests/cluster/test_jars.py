"""Kafka's jars are those that the project knows, wherever they come from."""

from pathlib import Path

import pytest

from kordon.spark_jobs.jars import LISTED, sum_line
from kordon.testing import jars
from kordon.testing.jars import NEWEST, kafka_clients_jar

NAME = f"kafka-clients-{NEWEST}.jar"


@pytest.mark.parametrize("is_known", [True, False])
def test_mavens_own_copy_is_taken_if_it_is_the_one_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    """Another one is left where it is, and the project's own copy is made."""
    copied = tmp_path / "copied"
    mavens = tmp_path / ".m2" / "repository" / "org" / "apache" / "kafka" / "kafka-clients" / NEWEST / NAME
    mavens.parent.mkdir(parents=True)
    mavens.write_bytes(b"a jar")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(jars, "jars_dir", lambda _: copied)
    if is_known:
        monkeypatch.setattr(jars, "_DEPLOY", tmp_path)
        (tmp_path / LISTED).write_text(f"{sum_line(mavens)}\n")
    assert kafka_clients_jar(NEWEST) == (mavens if is_known else copied / NAME)
