"""A fault of Kafka's own client that applications meet where leaders move, with Kordon or without (docs/limits.md)."""

import subprocess

import pytest

from kordon.testing.cluster import Cluster
from kordon.testing.jars import PROJECT, jars_dir, need

PROGRAM = PROJECT / "tests" / "clients" / "java" / "LeaderMoves.java"
_SECONDS = {"consumer": 600, "classic": 120}


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("protocol", "outcome"), [("consumer", "torn"), ("classic", "whole")])
def test_new_consumer_gives_up_on_bare_brokers_where_leaders_move(
    cluster3: Cluster, protocol: str, outcome: str
) -> None:
    """With no Kordon in between. When a Kafka without the fault is taken in, this fails: then docs and rigs change."""
    command = [need("java"), "-Xmx512m", "-cp", f"{jars_dir()}/*", str(PROGRAM)]
    command += [cluster3.bootstrap(), f"moving-{protocol}", protocol, str(_SECONDS[protocol])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1000, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told, moves, _ = done.stdout.split()
    assert told == outcome
    assert int(moves) > 0
