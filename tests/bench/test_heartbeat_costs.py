"""The bench of dialect groups' heartbeats runs, and says what it measured."""

from kordon.bench.positions import measure


async def test_groups_of_each_size_are_measured() -> None:
    """Each has its members' reports taken, both those that say something new and those that do not."""
    found = await measure((2, 30))
    assert [costs.members for costs in found] == [2, 30]
    assert all(costs.unchanged > 0 and costs.moved > 0 for costs in found)
