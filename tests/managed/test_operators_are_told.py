"""What an operator is told while a change lasts, on a real broker."""

import json
import re

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
        dead.kill()
        wait_until("it is missed", lambda: members(follower) == len(proxies) - 1)
        asked = ["topics", "grow", "told", "6", "--json", "--bootstrap", follower.bootstrap]
        grown = CliRunner().invoke(main, asked, catch_exceptions=False)
    assert grown.exit_code == 0, grown.output
    lines = [json.loads(line) for line in grown.stdout.splitlines()]
    told = r"growing 3 -> 6: waits for the lease of \S+, at most \d s more"
    assert any(re.fullmatch(told, each.get("state", "")) for each in lines)
    assert lines[-1]["done"] == "told has 6 partitions, 3 before"
