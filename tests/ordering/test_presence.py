"""Who may serve besides the members of the present generation (MISSING-WAITED)."""

from math import inf

from kordon.proxy.ordering.presence import Presence, sealed

L = 20.0


def presence(*members: str, number: int = 5, now: float = 0.0) -> Presence:
    """Makes the presence of a proxy that has joined one generation."""
    made = Presence()
    made.joined(number, members, L, now)
    return made


def test_before_the_first_generation_nobody_is_known() -> None:
    """No change can begin."""
    assert Presence().alone_from == inf


def test_whoever_joins_anew_knows_nothing_of_the_generations_before() -> None:
    """Somebody may have held a lease until then, and died."""
    assert presence("a", "b", now=100.0).alone_from == 120.0


def test_whoever_belonged_before_knows_who_is_missing() -> None:
    """A member that is missing may serve for L; where nobody is, nobody is waited for."""
    made = presence("a", "b", "c")
    made.joined(6, ("a", "b"), L, 50.0)
    assert made.alone_from == 70.0
    made.joined(7, ("a", "b"), L, 80.0)
    assert made.alone_from <= 80.0
    made.joined(8, ("a", "b", "d"), L, 90.0)
    assert made.alone_from <= 90.0


def test_a_member_that_ended_in_order_is_not_waited_for() -> None:
    """Whether its word is read before the generation without it is joined, or after."""
    for is_early in (True, False):
        made = presence("leader", "b", "c")
        if is_early:
            made.left("leader")
        made.joined(6, ("b", "c"), L, 50.0)
        if not is_early:
            assert made.alone_from == 70.0
            made.left("leader")
        assert made.alone_from <= 50.0


def test_one_that_ended_in_order_does_not_excuse_another_one() -> None:
    """The killed one may serve still."""
    made = presence("a", "b", "c")
    made.left("b")
    made.joined(6, ("a",), L, 50.0)
    assert made.alone_from == 70.0


def test_after_a_gap_strangers_are_waited_for() -> None:
    """Between generations that it did not belong to others may have come, got a lease and died."""
    for number in (7, 4):
        made = presence("a", "b")
        made.joined(number, ("a", "b"), L, 50.0)
        assert made.alone_from == 70.0
    lost = presence("a", "b")
    lost.lost()
    lost.joined(6, ("a", "b"), L, 50.0)  # by chance of the next number: a group that was made anew
    assert lost.alone_from == 70.0


def test_a_member_that_comes_back_is_asked_itself() -> None:
    """It acknowledges like every other."""
    made = presence("a", "b")
    made.joined(6, ("a",), L, 50.0)
    made.joined(7, ("a", "b"), L, 55.0)
    assert made.alone_from <= 55.0


def test_the_longest_lease_counts() -> None:
    """Of the generation that somebody is missing of, whatever the others are told."""
    made = Presence()
    made.joined(1, ("a", "b"), 60.0, 0.0)
    made.joined(2, ("a",), L, 100.0)
    assert made.alone_from == 160.0


def test_where_nothing_is_managed_nobody_is_waited_for() -> None:
    """Nobody can be serving what there is not."""
    made = presence("a", "b", now=100.0)
    made.nobody_served(101.0)
    assert made.alone_from == 101.0


def test_a_proxy_is_gone_only_if_it_says_so_itself() -> None:
    """Another one does not know its word: its lease is waited for, whenever the record is read."""
    for is_read_first in (True, False):
        made = presence("a", "b")
        if is_read_first:
            made.left("b", "guessed")
        made.joined(6, ("a", "b"), L, 5.0, seals={"b": sealed("word of b")})
        assert not made.left("b", "guessed")
        assert not made.left("b")
        made.joined(7, ("a",), L, 50.0)
        assert made.alone_from == 70.0
        assert made.left("b", "word of b")
        assert made.alone_from <= 50.0
        assert not made.left("b", "guessed again")
        assert made.alone_from <= 50.0


def test_nobody_puts_another_seal_in_the_place_of_a_proxys_own() -> None:
    """A member that calls itself by the name of another tells the group what it likes."""
    made = Presence()
    made.joined(1, ("a", "b"), L, 0.0, seals={"b": sealed("word of b")})
    made.joined(2, ("a", "b"), L, 50.0, seals={"b": sealed("word of an alien")})
    assert not made.left("b", "word of an alien")
    assert made.left("b", "word of b")


def test_a_member_of_a_former_version_is_believed_without_a_word() -> None:
    """It has told no seal."""
    made = presence("a", "b")
    made.joined(6, ("a",), L, 50.0)
    assert made.left("b")
    assert made.alone_from <= 50.0


def test_who_may_still_serve_is_named_by_its_host_with_the_most_that_it_may_take() -> None:
    """Operators see for whom a change waits; whoever has ended in order is not waited for."""
    made = Presence()
    made.joined(5, ("a", "b", "c"), L, 0.0, hosts={"a": "host-1", "b": "host-2", "c": "host-3"})
    assert made.awaited(5.0) == {"": 15.0}
    made.joined(6, ("a",), L, 50.0)
    assert made.awaited(58.0) == {"host-2": 12.0, "host-3": 12.0}
    made.left("c")
    assert made.awaited(58.0) == {"host-2": 12.0}
    assert made.awaited(70.0) == {}
