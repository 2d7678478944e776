"""`kordon groups gaps`: what a group that commits offset by offset has left open, read at a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer

from kordon.proxy.commands.cli import main
from kordon.proxy.commands.groups_cli import _age, _line  # pyright: ignore[reportPrivateUsage] - what is printed
from kordon.proxy.own_topics.group_gaps import OpenRanges, PartitionHolder
from kordon.testing.cluster import Cluster
from kordon.testing.individual_member import IndividualMember
from kordon.testing.managed_clients import create_managed
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

ROW = OpenRanges("orders", 3, 41, ((41, 43), (46, 47), (50, 60), (61, 62), (70, 72)), 12, 1_000_000, None)


def test_a_person_reads_where_it_is_open_since_when_and_who_has_it() -> None:
    """Three of the open ranges, and how many there are more."""
    row = replace(ROW, holder=PartitionHolder("m-1", "app-1", "10.0.0.7"))
    assert _line(ROW, 1_000_000 + 90_000) == (
        "orders-3: open for 90 s: 41 to 42, 46, 50 to 59 and 2 ranges more; 12 later offsets done; no member has it now"
    )
    assert _line(row, 1_000_000).endswith("; app-1 at 10.0.0.7 has it")


@pytest.mark.parametrize(("seconds", "told"), [(0, "0 s"), (119, "119 s"), (7_199, "119 min"), (7_200, "2 h")])
def test_ages_are_in_the_largest_unit_of_which_there_are_two(seconds: int, told: str) -> None:
    """So that none is far off."""
    assert _age(seconds) == told


@pytest.fixture(scope="module")
def proxy(open_cluster: Cluster) -> Iterator[ProxyProcess]:
    """One that takes individual commits."""
    with ProxyProcess.start(open_cluster.bootstrap(), config={"ordering": {"individual_commits": True}}) as started:
        yield started


def gaps(bootstrap: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["groups", "gaps", *arguments, "--bootstrap", bootstrap])


@pytest.mark.broker
def test_what_a_group_has_open_is_read_at_the_brokers(proxy: ProxyProcess, open_cluster: Cluster) -> None:
    """By topic as clients know it, with the member that has it; and nothing is changed by looking."""
    topic, bootstrap = f"gaps-{uuid4().hex[:8]}", open_cluster.bootstrap()
    create_managed(proxy.bootstrap, topic)
    unknown = gaps(bootstrap, topic)
    assert unknown.exit_code == 1
    assert "ordering.individual_commits" in unknown.output
    with IndividualMember(PlainConnection(proxy.bootstrap), topic, topic, 2) as member:
        member.ask()
        member.commit(0)
        assert gaps(bootstrap, topic).output == f"Group {topic} has no open offsets before finished ones.\n"
        member.commit(4, (6, 9), (12, 13))
        (line,) = gaps(bootstrap, topic, "--json").output.splitlines()
        told = json.loads(line)
        wanted = {"topic": topic, "partition": 2, "stable_offset": 4, "open": [[4, 5], [9, 11]], "done_behind": 4}
        assert told | wanted | {"client_id": None} == told
        where = member.ask()
    settings: dict[str, Any] = {"bootstrap.servers": proxy.bootstrap, "group.id": topic, "client.id": "app-1"}
    with closing(Consumer(settings | {"enable.auto.commit": False})) as consumer:
        consumer.subscribe([topic])
        wait_until("assigned", lambda: consumer.poll(0.1) or consumer.assignment())
        shown = gaps(bootstrap, topic).output
    assert shown.startswith(f"{topic}-2: open for ")
    assert ": 4 to 5, 9 to 11; 4 later offsets done; app-1 at 127.0.0.1 has it" in shown
    assert where.ranges == ((6, 9), (12, 13))


@pytest.mark.broker
def test_brokers_that_do_not_answer_are_named() -> None:
    """With the exit code of a failure."""
    failed = gaps("127.0.0.1:1", "billing")
    assert failed.exit_code == 1
    assert "127.0.0.1:1" in failed.output
