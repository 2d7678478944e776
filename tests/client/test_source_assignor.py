"""Source partitions are shared out evenly, and nothing moves that need not."""

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st

from kordon.client.sources.assignor import Had, SourceAssignor, share_out, told, user_data

# pyright: reportPrivateUsage=false

HAD = st.builds(Had, st.integers(-1, 9), st.frozensets(st.integers(-2, 20), max_size=8))


@given(st.integers(0, 20), st.dictionaries(st.text("abcdef", min_size=1, max_size=2), HAD, min_size=1, max_size=8))
def test_each_partition_has_one_owner_and_shares_are_even(count: int, members: dict[str, Had]) -> None:
    """Whatever members believe that they had."""
    shares = share_out(count, members)
    assert shares.keys() == members.keys()
    assert sorted(each for share in shares.values() for each in share) == list(range(count))
    assert max(map(len, shares.values())) - min(map(len, shares.values())) <= 1


def test_a_newcomer_takes_as_little_as_is_fair() -> None:
    """And stands by if everybody has one."""
    assert share_out(3, {"b": Had(1, frozenset({0, 1, 2})), "a": Had()}) == {"b": [0, 1], "a": [2]}
    assert share_out(2, {"b": Had(1, frozenset({0})), "c": Had(1, frozenset({1})), "a": Had()}) == {
        "b": [0],
        "c": [1],
        "a": [],
    }


def test_what_the_dead_had_goes_to_those_with_the_least() -> None:
    """The others keep what they have."""
    members = {"a": Had(4, frozenset({0, 1})), "b": Had(4, frozenset({2}))}
    assert share_out(6, members) == {"a": [0, 1, 3], "b": [2, 4, 5]}


def test_of_two_who_had_a_partition_the_later_one_keeps_it() -> None:
    """The other has slept over a generation."""
    members = {"a": Had(3, frozenset({0, 1})), "b": Had(4, frozenset({1, 2})), "c": Had()}
    assert share_out(3, members) == {"a": [0], "b": [1], "c": [2]}


@given(HAD)
def test_members_tell_what_they_had(had: Had) -> None:
    """A later version may append to it."""
    assert told(user_data(had)) == had
    assert told(user_data(had) + b"more") == had


def test_what_stock_members_and_junk_tell_is_nothing() -> None:
    """They get their share all the same."""
    assert told(b"") == Had()
    assert told(b"\x00\x00\xff") == Had()


def test_stock_members_share_the_group() -> None:
    """By the protocol that all clients know; who has not subscribed to the source topic gets nothing of it."""
    cluster = ClusterMetadata()
    cluster._partitions = {"s": dict.fromkeys(range(3))}
    assignor = SourceAssignor("s")
    assignor.had = Had(1, frozenset({2}))
    members = {
        "a": ConsumerProtocolMemberMetadata(0, ["s"], b""),
        "b": assignor.metadata(["s"]),
        "c": ConsumerProtocolMemberMetadata(0, ["other"], b""),
    }
    shares = {member: each.assignment for member, each in assignor.assign(cluster, members).items()}
    assert shares == {"a": [("s", [0])], "b": [("s", [1, 2])], "c": []}
    assert assignor.name == "range"
