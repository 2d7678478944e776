"""Positions of groups, told by raw members to two proxies in front of a real broker (KIP-253 7)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.codecs.error_codes import Code
from kordon.testing.cluster import Cluster
from kordon.testing.dialect.group import GroupMember, Told, join_all
from kordon.testing.managed_clients import create_managed
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

SECONDS = 90.0
REPORTS = "kordon_positions_reports_total"


@pytest.fixture(scope="module")
def topic(proxies: list[ProxyProcess]) -> str:
    name = f"positions-{uuid4().hex[:6]}"
    create_managed(proxies[0].bootstrap, name)
    return name


@pytest.fixture
def group_id() -> str:
    """The id of a group that no other test uses."""
    return f"group-{uuid4().hex[:6]}"


@pytest.fixture
def members(proxies: list[ProxyProcess], group_id: str) -> Iterator[list[GroupMember]]:
    """Two members of one group, each through a proxy of its own."""
    with ExitStack() as stack:
        made = [stack.enter_context(GroupMember(proxy.bootstrap, group_id)) for proxy in proxies]
        join_all(made)
        yield made


def hears(member: GroupMember, topic: str, owned: dict[int, int], wanted: tuple[int, ...], expected: Told) -> None:
    """Asserts what a member is told sooner or later: another proxy may have to read what was written here first."""
    wait_until(f"{expected} is told", lambda: member.tell(topic, owned, wanted) == expected, SECONDS)


def test_members_behind_two_proxies_hear_of_one_another(members: list[GroupMember], topic: str) -> None:
    """Who waits for a partition is told where its owner stands, and the owner is told that somebody waits."""
    owner, waiting = members
    assert owner.tell(topic, {0: -1, 1: 5}) == Told(Code.NONE, {}, frozenset())
    hears(waiting, topic, {2: -1}, (0,), Told(Code.NONE, {0: -1}, frozenset()))
    hears(owner, topic, {0: 40, 1: 5}, (), Told(Code.NONE, {0: 40}, frozenset({0})))
    hears(waiting, topic, {2: -1}, (0,), Told(Code.NONE, {0: 40}, frozenset()))
    hears(owner, topic, {0: 3, 1: 5}, (), Told(Code.NONE, {0: 3}, frozenset({0})))
    hears(waiting, topic, {2: -1}, (0,), Told(Code.NONE, {0: 3}, frozenset()))


def test_all_proxies_answer_alike(members: list[GroupMember], proxies: list[ProxyProcess], topic: str) -> None:
    """A member that goes on through another proxy hears there what it would have heard here."""
    owner, waiting = members
    owner.tell(topic, {0: 40})
    hears(waiting, topic, {}, (0,), Told(Code.NONE, {0: 40}, frozenset()))
    waiting.go_to(proxies[0].bootstrap)
    hears(waiting, topic, {}, (0,), Told(Code.NONE, {0: 40}, frozenset()))
    owner.go_to(proxies[1].bootstrap)
    hears(owner, topic, {0: 40}, (), Told(Code.NONE, {0: 40}, frozenset({0})))


def test_what_is_known_survives_the_proxy_that_was_told(
    open_cluster: Cluster, proxies: list[ProxyProcess], topic: str, group_id: str
) -> None:
    """A position that was answered is known to all though its proxy was killed, and to that one when it is back."""
    with ProxyProcess.start(open_cluster.bootstrap()) as third, ExitStack() as stack:
        owner, waiting = (stack.enter_context(GroupMember(p.bootstrap, group_id)) for p in (third, proxies[0]))
        join_all([owner, waiting])
        assert owner.tell(topic, {0: 40}).error_code == Code.NONE
        third.kill()
        hears(waiting, topic, {}, (0,), Told(Code.NONE, {0: 40}, frozenset()))
        third.start_again()
        waiting.go_to(third.bootstrap)
        hears(waiting, topic, {}, (0,), Told(Code.NONE, {0: 40}, frozenset()))


def test_a_report_that_says_nothing_new_is_not_written_again(
    members: list[GroupMember], proxies: list[ProxyProcess], topic: str
) -> None:
    """Members report every few seconds; while nothing changes that costs no record."""
    owner, _ = members
    owner.tell(topic, {0: 40})
    before = proxies[0].metric(REPORTS, outcome="written")
    for _ in range(5):
        assert owner.tell(topic, {0: 40}, sequence=owner.sequence).error_code == Code.NONE
    assert proxies[0].metric(REPORTS, outcome="written") == before
    assert proxies[0].metric(REPORTS, outcome="unchanged") >= 5


def test_a_report_that_comes_late_changes_nothing(
    members: list[GroupMember], proxies: list[ProxyProcess], topic: str
) -> None:
    """One of a lower sequence than another that was answered, through whichever proxy, is passed over."""
    owner, waiting = members
    owner.tell(topic, {0: 40})
    owner.tell(topic, {0: 3})
    late = owner.sequence - 1
    owner.go_to(proxies[1].bootstrap)
    owner.tell(topic, {0: 40}, sequence=late)
    hears(waiting, topic, {}, (0,), Told(Code.NONE, {0: 3}, frozenset()))


def test_a_later_generation_begins_without_positions(members: list[GroupMember], topic: str) -> None:
    """Where a partition's former owner stood says nothing of where the next one begins."""
    owner, waiting = members
    owner.tell(topic, {0: 40})
    hears(waiting, topic, {}, (0,), Told(Code.NONE, {0: 40}, frozenset()))
    join_all(members)
    assert waiting.tell(topic, {}, (0,)) == Told(Code.NONE, {0: -1}, frozenset())
    owner.tell(topic, {0: 7})
    hears(waiting, topic, {}, (0,), Told(Code.NONE, {0: 7}, frozenset()))


def test_a_group_that_was_deleted_and_made_anew_knows_nothing_of_the_former_one(
    proxies: list[ProxyProcess], topic: str, group_id: str
) -> None:
    """Its generations are numbered from 1 again: what was reported in generation 1 before says nothing of this one."""
    with GroupMember(proxies[0].bootstrap, group_id) as former:
        join_all([former])
        former.tell(topic, {0: 40})
        former.leave()
    admin = AdminClient({"bootstrap.servers": proxies[0].bootstrap})
    admin.delete_consumer_groups([group_id])[group_id].result(60)
    with GroupMember(proxies[1].bootstrap, group_id) as now:
        join_all([now])
        assert now.generation_id == former.generation_id
        assert now.tell(topic, {1: 0}, (0,)) == Told(Code.NONE, {0: -1}, frozenset())


def test_whoever_is_no_member_is_refused_as_by_heartbeat(
    members: list[GroupMember], proxies: list[ProxyProcess], topic: str
) -> None:
    """ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, and REBALANCE_IN_PROGRESS: the coordinator's own answers."""
    owner, _ = members
    generation, member_id = owner.generation_id, owner.member_id
    owner.generation_id += 1
    assert owner.report(topic, {0: 1}).error_code == owner.heartbeat() == Code.ILLEGAL_GENERATION
    owner.generation_id, owner.member_id = generation, "somebody"
    assert owner.report(topic, {0: 1}).error_code == owner.heartbeat() == Code.UNKNOWN_MEMBER_ID
    owner.member_id = member_id
    with GroupMember(proxies[0].bootstrap, owner.group_id) as third, ThreadPoolExecutor(3) as pool:
        joining = pool.submit(third.join)
        wait_until("the group rebalances", lambda: owner.heartbeat() == Code.REBALANCE_IN_PROGRESS, SECONDS)
        assert owner.report(topic, {0: 1}).error_code == Code.REBALANCE_IN_PROGRESS
        list(pool.map(GroupMember.join, members))
        joining.result()


def test_a_static_member_whose_place_was_taken_is_fenced(
    proxies: list[ProxyProcess], topic: str, group_id: str
) -> None:
    """FENCED_INSTANCE_ID, and what the new one says counts in its place, in the same generation."""
    with ExitStack() as stack:
        former, now, waiting = (
            stack.enter_context(GroupMember(proxies[n].bootstrap, group_id, instance))
            for n, instance in ((0, "static"), (1, "static"), (1, None))
        )
        join_all([waiting])  # leads: a leader's place is not taken without another generation
        join_all([former, waiting])
        former.tell(topic, {0: 40})
        hears(waiting, topic, {}, (0,), Told(Code.NONE, {0: 40}, frozenset()))
        now.join()
        now.sync()
        assert former.report(topic, {0: 41}).error_code == former.heartbeat() == Code.FENCED_INSTANCE_ID
        assert now.generation_id == waiting.generation_id
        assert now.tell(topic, {0: -1}) == Told(Code.NONE, {0: -1}, frozenset({0}))
        hears(now, topic, {0: 5}, (), Told(Code.NONE, {0: 5}, frozenset({0})))
        hears(waiting, topic, {}, (0,), Told(Code.NONE, {0: 5}, frozenset()))
