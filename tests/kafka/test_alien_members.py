"""Members of the proxies' group that are no proxies: whatever they say, they are left out."""

import json

import pytest

from kordon.codecs import apis
from kordon.proxy.kafka import group as module
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.group import MOST_LEASE_MS, About, GroupCoordinator, GroupMember, GroupRefused
from kordon.testing.fake_broker import FakeBroker

PROXY = About("incarnation-1", "host-1", None, "1.0", 20_000)
ALIENS = {
    "empty": b"",
    "not JSON": b"hello",
    "deep": b"[" * 200_000,
    "deep, but short": b"[" * 4_000,
    "no object": b"[1]",
    "a number": b"7",
    "of no incarnation": b'{"host": "a"}',
    "of an empty incarnation": b'{"incarnation": "", "host": "a", "lease_ms": 1}',
    "of a list for an incarnation": b'{"incarnation": ["a"], "host": "a", "lease_ms": 1}',
    "of an endless lease": b'{"incarnation": "a", "host": "a", "lease_ms": 1e999}',
    "not UTF-8": b"\xff\xfe{",
    "long": json.dumps({"incarnation": "a" * 5_000, "host": "a", "lease_ms": 1}).encode(),
}


@pytest.mark.parametrize("metadata", ALIENS.values(), ids=ALIENS.keys())
async def test_an_alien_is_no_member(metadata: bytes) -> None:
    """It ended the tasks of one leader after the other by its depth, and was waited for whatever it said."""
    rows = [{"member_id": "a", "metadata": PROXY.build()}, {"member_id": "b", "metadata": metadata}]
    answer = {"error_code": 0, "generation_id": 4, "member_id": "a", "leader": "a", "members": rows}
    broker = FakeBroker(handlers={apis.JOIN_GROUP: lambda _: answer})
    joined = await GroupCoordinator(Brokers(broker), "test").join(PROXY, 6_000)
    assert joined.members == (GroupMember("a", "incarnation-1", "host-1", 20_000, knows_transactions=True),)
    assert joined.aliens == ("b",)


def test_a_proxy_of_another_version_is_a_member() -> None:
    """It may hold a lease, whatever more or less it tells of itself; but nobody is made to wait for hours."""
    early = {"incarnation": "i", "host": "h", "admin": None, "version": "0.1"}
    assert module.member_told("m", json.dumps(early).encode()) == GroupMember("m", "i", "h", 0)
    later = early | {"lease_ms": 10**9, "speaks": [1, 2]}
    assert module.member_told("m", json.dumps(later).encode()) == GroupMember("m", "i", "h", MOST_LEASE_MS)


@pytest.mark.parametrize(
    "listed", [b"[" * 200_000, b"[" * 2_000_000, b"{}7", b"[7]", b'[{"member_id": "a"}]', b'[{"incarnation": []}]']
)
def test_a_list_by_an_alien_leader_is_refused(listed: bytes) -> None:
    """Joining again asks for another one."""
    with pytest.raises(GroupRefused):
        module.parse_members(listed)


@pytest.mark.parametrize(("said", "knows"), [(True, True), (False, False), (None, False), (1, False), ("true", False)])
def test_a_proxy_knows_transactions_only_if_it_says_so(said: object, knows: bool) -> None:
    """A former version says nothing of them."""
    told = {"incarnation": "i", "host": "h"} | ({} if said is None else {"knows_transactions": said})
    member = module.member_told("m", json.dumps(told).encode())
    assert member is not None
    assert member.knows_transactions is knows
    assert module.parse_members(module.build_members([member])) == (member,)


def test_what_a_leader_builds_is_read() -> None:
    """By members of its own version."""
    members = (GroupMember("a", "i", "h", 20_000), GroupMember("b", "j", "g"))
    assert module.parse_members(module.build_members(members)) == members
