"""What brokers find at their first start is made by Kafka's tool once; each has ids of its own."""

from pathlib import Path

import pytest

from kordon.testing import jars
from kordon.testing.formatted import format_folder, new_id
from kordon.testing.java_process import ClusterFailed

TOOL = "mkdir data && echo made > data/bootstrap.checkpoint && echo ids=of-the-tool > data/meta.properties && pwd >> {}"
"""Stands for Java; writes down where it was run."""


def ids_of(folder: Path) -> dict[str, str]:
    lines = (folder / "data" / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_the_tool_is_run_once_for_each_version_and_its_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later brokers have all of it but the ids: those are the cluster's, the broker's, and one of the folder."""
    monkeypatch.setattr(jars, "PROJECT", tmp_path)
    runs = tmp_path / "runs"
    java = ["sh", "-c", TOOL.format(runs)]
    told = [("4.3.0", False), ("4.3.0", False), ("4.3.0", False), ("4.3.0", True), ("3.9.2", False), ("4.3.0", True)]
    folders = [tmp_path / f"broker-{number}" for number in range(len(told))]
    for number, (folder, (version, with_users)) in enumerate(zip(folders, told, strict=True)):
        folder.mkdir()
        format_folder(number, folder, "of-this-cluster", version, java, with_users=with_users)
        assert (folder / "data" / "bootstrap.checkpoint").read_text() == "made\n"
    assert runs.read_text().split() == [str(folders[number]) for number in (0, 3, 4)]
    second, third = ids_of(folders[1]), ids_of(folders[2])
    assert (second["cluster.id"], second["node.id"], third["node.id"]) == ("of-this-cluster", "1", "2")
    assert len({second["directory.id"], third["directory.id"], new_id()}) == 3


def test_a_tool_that_fails_leaves_nothing_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its words are told."""
    monkeypatch.setattr(jars, "PROJECT", tmp_path)
    with pytest.raises(ClusterFailed, match=r"broker 1 failed:\nno room"):
        format_folder(1, tmp_path, "x", "4.3.0", ["sh", "-c", "echo no room; exit 1"], with_users=False)
    assert not list(tmp_path.glob(".cache/formatted-*[!k]"))
