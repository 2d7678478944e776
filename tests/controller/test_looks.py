"""How soon the controller sees that the groups of a topic have passed the cuts of its takeover (TAKEOVER-SHARES)."""

import pytest

from kordon.proxy.controller import looks as module
from kordon.proxy.controller.looks import LONGEST_SECONDS, Looks


class Watch:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """The clock by which looks are due."""
    watch = Watch()
    monkeypatch.setattr(module, "clock", watch)
    return watch


def seen_after(looks: Looks, watch: Watch, passed: float, epoch: int = 2) -> float:
    """Returns how long after groups have passed the cuts a look is due, if they do so some seconds after the cut."""
    cut = watch.now
    while not (looks.is_due("orders", epoch) and watch.now >= cut + passed):
        watch.now += 0.01
    return watch.now - cut - passed


@pytest.mark.parametrize(("passed", "most"), [(0.1, 0.3), (1.0, 0.3), (2.0, 0.3), (5.0, 0.6), (600.0, LONGEST_SECONDS)])
def test_a_commit_is_seen_soon_after_it_in_proportion_to_how_long_the_group_took(
    watch: Watch, passed: float, most: float
) -> None:
    """New partitions are withheld until then, so the look must not add much to what the group takes itself."""
    assert seen_after(Looks(), watch, passed) < most


def test_the_first_look_behind_a_cut_does_not_wait_for_the_one_before_it(watch: Watch) -> None:
    """The one before may be of a transition that has lasted for hours."""
    looks = Looks()
    assert seen_after(looks, watch, 3_600.0, epoch=1) < LONGEST_SECONDS
    assert looks.is_due("orders", 2)


def test_who_leaves_a_group_out_does_not_wait_for_the_next_look(watch: Watch) -> None:
    """And what is found then is looked at often again."""
    looks = Looks()
    seen_after(looks, watch, 3_600.0)
    assert not looks.is_due("orders", 2)
    looks.hurry("orders")
    assert looks.is_due("orders", 2)
    assert seen_after(looks, watch, 1.0) < 0.3


def test_each_topic_has_looks_of_its_own(watch: Watch) -> None:
    """Several are taken over side by side."""
    looks = Looks()
    assert [looks.is_due(topic, 1) for topic in ("orders", "orders", "payments", "payments")] == [True, False] * 2
