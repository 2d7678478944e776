"""Source producers share a source, and sleep and die at every step: what their group is promised holds."""

import pytest

from kordon.testing.sources.rules import RULES, Rule
from kordon.testing.sources.run import World, play

SEEDS = range(40)
SEEDS_OF_DEEP = range(40, 20_000)


def test_a_group_keeps_its_promises() -> None:
    """Nothing is doubled or skipped, nobody waits for the dead, and nobody who lives is fenced."""
    assert {seed: found for seed in SEEDS if (found := play(seed))} == {}


@pytest.mark.deep
def test_a_group_keeps_its_promises_on_many_days() -> None:
    """The same with other seeds."""
    assert {seed: found for seed in SEEDS_OF_DEEP if (found := play(seed))} == {}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.what.replace(" ", "-"))
def test_without_a_rule_a_promise_breaks(rule: Rule) -> None:
    """Each one is needed, as three seeds show; with it the same seeds go well."""
    assert len(set(rule.seeds)) == 3
    for seed in rule.seeds:
        with rule.taken_out():
            broken = play(seed)
        assert {each.partition(":")[0] for each in broken} & rule.breaks, (seed, broken)
        assert play(seed) == []


def test_a_seed_plays_the_same_again() -> None:
    """Whatever else has been played."""
    worlds = [World(5), World(5)]
    for world in worlds:
        world.play()
    assert worlds[0].transactions.committed == worlds[1].transactions.committed != []


def test_seeds_have_all_that_is_to_be_tried() -> None:
    """Members die, many rows are copied, and in some runs nobody may fence."""
    worlds = [World(seed) for seed in SEEDS]
    for world in worlds:
        world.play()
    assert sum(world.deaths for world in worlds) > 5 * len(SEEDS)
    assert min(len(world.transactions.committed) for world in worlds) > 100
    assert 0 < sum(world.may_fence for world in worlds) < len(SEEDS)
