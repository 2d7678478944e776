"""Java's members on managed topics: assignors, static members, expressions, topics that come and go (FACE-NAMES)."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing.broker_features import NEW_GROUPS
from kordon.testing.java_members import JavaMembers
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, Sender, create_managed, create_ordinary, resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(300),
    pytest.mark.skipif(NEW_GROUPS.is_missing, reason=NEW_GROUPS.reason),
]

PATIENCE = 90
STRATEGY = "partition.assignment.strategy=org.apache.kafka.clients.consumer."
KINDS = {
    "range": (f"{STRATEGY}RangeAssignor",),
    "roundrobin": (f"{STRATEGY}RoundRobinAssignor",),
    "sticky": (f"{STRATEGY}StickyAssignor",),
    "cooperative-sticky": (f"{STRATEGY}CooperativeStickyAssignor",),
    "kip848-uniform": ("group.protocol=consumer", "group.remote.assignor=uniform"),
    "kip848-range": ("group.protocol=consumer", "group.remote.assignor=range"),
}
"""Settings of each kind of group."""
IN_A_ROW = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
IN_TURN = [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
SHAPES = {"range": IN_A_ROW, "roundrobin": IN_TURN, "kip848-range": IN_A_ROW}
"""What three members get of an ordinary topic with 12 partitions (Kafka 4.3); of the other kinds it depends on who was
there first: each keeps what it had."""


class Members(JavaMembers):
    """The program with all members, and what these have said."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.events: list[str] = []
        """All lines but those about reading."""
        self.owned: defaultdict[str, set[str]] = defaultdict(set)
        self.read: defaultdict[str, int] = defaultdict(int)
        super().__init__("Members", bootstrap, folder, PATIENCE)

    def hear(self, line: str) -> None:
        name, what, rest = (*line.split(" ", 2), "")[:3]
        partitions = set(filter(None, rest.split(",")))
        match what:
            case "read":
                self.read[name] = int(rest)
                return
            case "assigned":
                self.owned[name] |= partitions
            case "revoked" | "lost":
                self.owned[name] -= partitions
            case _:
                pass
        self.events.append(line)

    def join(self, name: str, topics: str, group: str, *settings: str) -> None:
        """Has a member join; it asks for metadata every half second, and makes no topics."""
        quick = ("metadata.max.age.ms=500", "allow.auto.create.topics=false")
        self.tell("join", name, topics, f"group.id={group}", *quick, *settings)

    def leave(self, name: str) -> None:
        """Closes a member, and waits until that is done."""
        before = self.events.count(f"{name} left")
        self.tell("leave", name)
        wait_until(f"{name} has left", lambda: self.events.count(f"{name} left") > before, PATIENCE)
        self.owned[name].clear()

    def numbers(self, name: str) -> list[int]:
        """Returns the numbers of the partitions that a member has."""
        return sorted(int(each.rpartition("-")[2]) for each in self.owned[name])

    def topics(self, name: str) -> set[str]:
        """Returns the topics that a member has partitions of."""
        return {each.rpartition("-")[0] for each in list(self.owned[name])}


@pytest.fixture
def members(proxy: ProxyProcess, tmp_path: Path) -> Iterator[Members]:
    """Nobody yet; all leave at the end."""
    started = Members(proxy.bootstrap, tmp_path)
    yield started
    started.stop()


def are_fair(kind: str, shares: list[list[int]]) -> bool:
    """Whether all virtual partitions are given out once, as many to each, and as Kafka does where that is certain."""
    shares.sort()
    is_whole = sorted(chain(*shares)) == list(range(VIRTUAL_PARTITIONS))
    return is_whole and {len(each) for each in shares} == {4} and shares == SHAPES.get(kind, shares)


@pytest.mark.deep
def test_every_assignor_does_as_on_an_ordinary_topic(proxy: ProxyProcess, members: Members) -> None:
    """Each gives all virtual partitions out once, as Kafka would; no resize takes any from anybody."""
    topic = "assigned"
    admin = create_managed(proxy.bootstrap, topic)
    groups = {kind: [f"{kind}.{number}" for number in range(3)] for kind in KINDS}
    for kind, names in groups.items():
        for name in names:
            members.join(name, topic, kind, *KINDS[kind])
    for kind, names in groups.items():
        wait_until(kind, lambda: are_fair(kind, [members.numbers(name) for name in names]), PATIENCE)  # noqa: B023
    before = list(members.events)

    sender = Sender(proxy.bootstrap, topic)
    for count in (6, 12, 3):
        sender.send_for(0.3, resize(admin, topic, count))
    sender.send_for(0.3)
    sender.finish()
    for kind, names in groups.items():
        wait_until(f"{kind} has read", lambda: sum(members.read[n] for n in names) == sender.sent, PATIENCE)  # noqa: B023
    assert members.events == before


@pytest.mark.parametrize("kind", [pytest.param("range", marks=pytest.mark.deep), "kip848-uniform"])
def test_static_members_come_back_to_what_they_had(proxy: ProxyProcess, members: Members, kind: str) -> None:
    """Within the session timeout, over a resize, and nobody else notices; a second one of the same name is an error."""
    topic = f"static-{kind}"
    admin = create_managed(proxy.bootstrap, topic)
    for name in ("one", "two"):
        members.join(name, topic, topic, f"group.instance.id={name}", *KINDS[kind])
    wait_until("both have half", lambda: [len(members.numbers(n)) for n in ("one", "two")] == [6, 6], PATIENCE)
    had, events = members.numbers("one"), [each for each in members.events if each.startswith("two")]

    members.leave("one")
    resize(admin, topic, 6).result(60)
    members.join("one", topic, topic, "group.instance.id=one", *KINDS[kind])
    wait_until("it is back", lambda: members.numbers("one") == had, PATIENCE)
    assert [each for each in members.events if each.startswith("two")] == events

    members.join("other", topic, topic, "group.instance.id=one", *KINDS[kind])
    fenced = "other failed UnreleasedInstanceId" if "848" in kind else "one failed FencedInstanceId"
    wait_until("one of them is told", lambda: any(each.startswith(fenced) for each in members.events), PATIENCE)


def test_a_member_follows_a_topic_through_all_that_it_becomes(proxy: ProxyProcess, members: Members) -> None:
    """In a KIP-848 group: the topic is made after it has joined, deleted, and made again as the other kind, twice."""
    topic, name = "becomes", "follower"
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    members.join(name, topic, "followers", "group.protocol=consumer")

    def followed(step: str, count: int) -> None:
        wait_until(f"{step}: assigned", lambda: len(members.numbers(name)) == count, PATIENCE)
        producer, expected = Producer({"bootstrap.servers": proxy.bootstrap}), members.read[name] + count
        for partition in range(count):
            producer.produce(topic, step, partition=partition)
        assert producer.flush(60) == 0
        wait_until(f"{step}: read", lambda: members.read[name] >= expected, PATIENCE)

    def delete() -> None:
        admin.delete_topics([topic])[topic].result(60)
        wait_until("it is gone", lambda: not members.numbers(name), PATIENCE)

    create_managed(proxy.bootstrap, topic)
    followed("managed", VIRTUAL_PARTITIONS)
    delete()
    create_ordinary(proxy.bootstrap, topic, 5)
    followed("made again as an ordinary one", 5)
    delete()
    create_managed(proxy.bootstrap, topic)
    followed("made again as a managed one", VIRTUAL_PARTITIONS)


def test_expressions_match_what_clients_see(proxy: ProxyProcess, members: Members) -> None:
    """Managed and ordinary topics, also later ones; nothing that is Kordon's own, whoever matches."""
    admin = create_managed(proxy.bootstrap, "seen.managed")
    create_ordinary(proxy.bootstrap, "seen.plain", 2)
    ways = {"client": ("/{}/",), "kip848-client": ("/{}/", "group.protocol=consumer")}
    ways["kip848-broker"] = ("re2j:{}", "group.protocol=consumer")
    for name, (subscription, *settings) in ways.items():
        members.join(name, subscription.format(".*seen.*"), name, *settings)
        members.join(f"{name}.own", subscription.format("__kordon.*"), f"{name}.own", *settings)
    for name in ways:
        wait_until(name, lambda: len(members.numbers(name)) == VIRTUAL_PARTITIONS + 2, PATIENCE)  # noqa: B023
        assert members.topics(name) == {"seen.managed", "seen.plain"}
    resize(admin, "seen.managed", 6).result(60)
    create_managed(proxy.bootstrap, "seen.later")
    for name in ways:
        everything = {"seen.managed", "seen.plain", "seen.later"}
        wait_until(f"{name} later", lambda: members.topics(name) == everything, PATIENCE)  # noqa: B023
        assert not members.owned[f"{name}.own"]
