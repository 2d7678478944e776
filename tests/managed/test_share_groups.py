"""Java's share consumers through Kordon: on managed topics they end with the reason, on others they work as ever."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kordon.testing.broker_features import SHARE_GROUPS
from kordon.testing.cluster import Cluster
from kordon.testing.java_members import JavaMembers
from kordon.testing.managed_clients import create_managed, create_ordinary
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.share_member import configure_group
from kordon.testing.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(SHARE_GROUPS.is_missing, reason=SHARE_GROUPS.reason),
]

PATIENCE = 90
RECORDS = 60


class ShareMembers(JavaMembers):
    """The program with all members, and what these have said."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.said: list[str] = []
        super().__init__("ShareMembers", bootstrap, folder, PATIENCE)

    def hear(self, line: str) -> None:
        self.said.append(line)

    def join(self, name: str, topics: str) -> None:
        """Has a member join the group."""
        self.tell("join", name, topics, "group.id=sharers")


@pytest.fixture
def members(proxy: ProxyProcess, tmp_path: Path) -> Iterator[ShareMembers]:
    """Nobody yet; all leave at the end."""
    started = ShareMembers(proxy.bootstrap, tmp_path)
    yield started
    started.stop()


def test_share_consumers_work_on_topics_that_are_not_managed(
    proxy: ProxyProcess, open_cluster: Cluster, members: ShareMembers
) -> None:
    """Each record is given to one member, and again when it is released; who names a managed topic is told which."""
    create_managed(proxy.bootstrap, "shared")
    create_ordinary(proxy.bootstrap, "open", 2)
    with PlainConnection(open_cluster.bootstrap()) as connection:
        configure_group(connection, "sharers", {"share.auto.offset.reset": "earliest"})
    members.join("mixed", "open,shared")
    for name in ("one", "two"):
        members.join(name, "open")
    producer = Producer({"bootstrap.servers": proxy.bootstrap})
    for number in range(RECORDS):
        what = {0: "release", 1: "reject"}.get(number % 10, "accept")
        producer.produce("open", f"{what}-{number}", f"key-{number}")
    producer.flush()

    def given() -> dict[str, list[int]]:
        found = defaultdict[str, list[int]](list)
        for line in list(members.said):
            if place := re.fullmatch(r"(?:one|two) given open-\d \d+ (\d) key-\d+ (\S+)", line):
                found[place[2]].append(int(place[1]))
        return dict(found)

    def are_done() -> bool:
        acknowledged = [line for line in list(members.said) if " acknowledged " in line]
        return sum(line.split(" ")[3].count(",") + 1 for line in acknowledged) == RECORDS + RECORDS // 10

    wait_until("all is acknowledged", are_done, PATIENCE)
    wait_until("who names a managed topic ends", lambda: "mixed left" in members.said, PATIENCE)
    counts = {value: [1, 2] if value.startswith("release") else [1] for value in given()}
    assert (len(counts), given()) == (RECORDS, counts)
    assert {line.rpartition(" ")[2] for line in members.said if " acknowledged " in line} == {"none"}
    refused = next(line for line in members.said if line.startswith("mixed failed"))
    assert refused.startswith("mixed failed InvalidRequestException: shared is a managed topic")
