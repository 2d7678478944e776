"""What an operator is told while a change lasts, on a real broker."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner

from kordon.proxy.commands.cli import main
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_managed
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.short_leases import PROGRAM
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker


def members(proxy: ProxyProcess) -> int:
    """How many workers a proxy knows to be in the proxies' group."""
    return len(proxy.topics()["control"]["members"])


def test_whoever_changes_a_topic_when_a_proxy_has_died_is_told_of_its_lease(
    unled_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By any proxy, with the most that it may take; the last line says what has come of it."""
    for name in ("LOOK_SECONDS", "QUIET_SECONDS"):
        monkeypatch.setattr(f"kordon.proxy.commands.topics_progress.{name}", 0.05)
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    with (
        ProxyProcess.start(bootstrap, program=PROGRAM) as first,
        ProxyProcess.start(bootstrap, program=PROGRAM) as second,
        ProxyProcess.start(bootstrap, program=PROGRAM) as third,
    ):
        create_managed(first.bootstrap, "told")
        proxies = [first, second, third]
        wait_until("all are members", lambda: all(members(each) == len(proxies) for each in proxies))
        follower, dead = [each for each in proxies if not each.leads()]
        before, is_told = 3, False
        for count in (4, 5, 6):  # on a slow machine the lease may end before anybody has asked
            dead.kill()
            wait_until("it is missed", lambda: members(follower) == len(proxies) - 1)
            lines = told(["topics", "grow", "told", f"{count}", "--json", "--bootstrap", follower.bootstrap])
            assert lines[-1]["done"] == f"told has {count} partitions, {before} before"
            waits = rf"growing {before} -> {count}: waits for the lease of \S+, at most \d s more"
            if is_told := any(re.fullmatch(waits, each.get("state", "")) for each in lines):
                break
            before = count
            dead.start_again()
            wait_until("all are members", lambda: all(members(each) == len(proxies) for each in proxies))
    assert is_told


def told(arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Runs a command of `kordon` that does what it shall; returns its lines."""
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]
