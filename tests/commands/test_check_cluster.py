"""`kordon check --cluster` without a broker: how findings are drawn, and the exit codes."""

import json
import socket
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner, Result

from kordon.proxy.commands import check_cluster
from kordon.proxy.commands.cli import main
from kordon.proxy.config.config import Ordering, Upstream


def check(folder: Path, *arguments: str, bootstrap: str = "127.0.0.1:1") -> Result:
    """Checks a file whose brokers are there."""
    file = folder / "kordon.yaml"
    file.write_text(json.dumps({"upstream": {"bootstrap": bootstrap}, "listen": {"address": "127.0.0.1:19092"}}))
    return CliRunner().invoke(main, ["check", str(file), *arguments], catch_exceptions=False)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is found at the cluster; a test puts problems into it, and for whom it was asked stands there afterwards."""
    found: list[str] = []

    async def problems_of(upstream: Upstream, ordering: Ordering, principal: str | None) -> list[str]:
        del upstream, ordering
        return [each.replace("WHO", str(principal)) for each in found]

    monkeypatch.setattr(check_cluster, "problems_of", problems_of)
    return found


def test_a_cluster_where_all_is_well_is_good(tmp_path: Path, answers: list[str]) -> None:
    """One line for the file, one for the cluster."""
    assert answers == []
    result = check(tmp_path, "--cluster")
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path}/kordon.yaml: good\ncluster: good\n")


def test_each_problem_is_a_line(tmp_path: Path, answers: list[str]) -> None:
    """They fail the check; what others have named is escaped, and a line stays a line."""
    answers += ["broker 1: kafka:9092: connection refused", "User:\x1b[2Ka\nb may Write"]
    result = check(tmp_path, "--cluster")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1:] == [
        "cluster: broker 1: kafka:9092: connection refused",
        r"cluster: User:\u001b[2Ka\u000ab may Write",
    ]


def test_without_the_flag_nothing_is_asked(tmp_path: Path, answers: list[str]) -> None:
    """The check of a file stays what it is where there is no network."""
    answers += ["never asked for"]
    assert check(tmp_path).exit_code == 0


def test_who_kordon_is_can_be_said(tmp_path: Path, answers: list[str]) -> None:
    """Brokers make that of its certificate by rules that no configuration of Kordon's shows."""
    answers += ["for WHO"]
    assert "cluster: for User:CN=kordon\n" in check(tmp_path, "--cluster", "--principal", "User:CN=kordon").stdout


@pytest.mark.parametrize("arguments", [("--principal", "User:kordon"), ("--cluster", "--principal", "kordon")])
def test_a_principal_is_for_the_cluster_and_has_a_type(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """A name alone would match no ACL, and everything would look wrong."""
    result = check(tmp_path, *arguments)
    assert (result.exit_code, "--principal needs --cluster and a type" in result.stderr) == (2, True)


def test_each_broker_that_is_not_there_is_told(tmp_path: Path) -> None:
    """By the address that is given and by the reason; nothing is logged beside it."""
    before = structlog.get_config()
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [each.getsockname()[1] for each in (one, other)]
    result = check(tmp_path, "--cluster", bootstrap=",".join(f"127.0.0.1:{port}" for port in ports))
    assert result.exit_code == 1
    told = result.output.splitlines()[1:]
    assert [line.split(": ")[2] for line in told] == [f"127.0.0.1:{port}" for port in ports]
    assert all("refused" in line.lower() for line in told)
    assert structlog.get_config() == before
