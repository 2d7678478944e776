"""Which groups a takeover waits for, by what their coordinators say (TAKEOVER-WAITS)."""

from collections.abc import Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from kordon.proxy.controller.takeovers import Takeovers
from kordon.proxy.kafka.group_offsets import ListedGroup
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.records import BehindRecord, TopicRecord
from kordon.proxy.ordering.takeover import NEAR_RECORDS, Subscriber, Takeover

UNMANAGED = Layout.unmanaged("orders", UUID(int=1), 2, 4)
OWN = UNMANAGED.changed(UNMANAGED.next_epoch(2, Placement.OWN), {0: 10, 1: 20}, withheld=True)
LINEAR = OWN.changed(OWN.next_epoch(2), {0: 100, 1: 200}, withheld=True)
STAYS = Subscriber("new", "m1", ("orders",), None)


class Groups:
    """Stands for the coordinators."""

    def __init__(self, commits: dict[str, dict[int, int]], subscribers: Collection[Subscriber] = ()) -> None:
        self._commits = commits
        self._subscribers = subscribers

    async def groups(self) -> list[ListedGroup]:
        return [ListedGroup(name, 1, "classic") for name in self._commits]

    async def committed(self, groups: object, names: tuple[str, ...], partitions: object) -> dict[str, dict[int, int]]:
        """Of the face before the topic (COMMITS-FOUND)."""
        assert names == ("__kordon.orders", "orders")
        return self._commits

    async def subscribers(self, groups: object, topic: str) -> Collection[Subscriber]:
        """Those of the old name."""
        return self._subscribers


async def far(layout: Layout, groups: Groups, ends: dict[int, int]) -> tuple[str, ...]:
    """Who is far behind the ends of a topic's logs."""

    async def log_starts(topic: str, partitions: object) -> dict[int, int]:
        return {0: 0, 1: 0}

    async def ends_of(topic: str, partitions: object) -> dict[int, SimpleNamespace]:
        return {q: SimpleNamespace(high_watermark=end) for q, end in ends.items()}

    admin: Any = SimpleNamespace(groups=groups, ends=SimpleNamespace(log_starts=log_starts, ends_of=ends_of))
    nothing: Any = None
    return await Takeovers(admin, nothing).far_groups(TopicRecord(layout, UUID(int=2), Takeover(0)))


async def looked(record: TopicRecord, groups: Groups, *, empty: Collection[tuple[int, int]] = ()) -> Takeover | None:
    """What is left to do."""
    return (await looked_at(record, groups, empty=empty))[0]


async def looked_at(
    record: TopicRecord, groups: Groups, *, empty: Collection[tuple[int, int]] = ()
) -> tuple[Takeover | None, BehindRecord]:
    """What is left to do and for whom; `empty`: where virtual partitions have nothing between offset and cut."""

    async def log_starts(topic: str, partitions: object) -> dict[int, int]:
        return {0: 0, 1: 0}

    async def nothing_between(topic: str, v: int, offset: int, until: int) -> bool:
        return (v, offset) in empty

    admin = SimpleNamespace(groups=groups, ends=SimpleNamespace(log_starts=log_starts))
    return await Takeovers(cast("Any", admin), nothing_between).look(record)


def opening() -> TopicRecord:
    """A topic of which all has moved home, and nobody has been looked at."""
    return TopicRecord(LINEAR, UUID(int=2), Takeover(0, {0: 100, 1: 200}))


async def test_groups_that_have_not_read_up_to_the_cuts_are_waited_for() -> None:
    """Each by its commits; when none is left, nothing is."""
    record = opening()
    assert record.takeover is not None
    groups = Groups({"through": {0: 100, 1: 250}, "slow": {0: 100, 1: 199}})
    assert await looked(record, groups) == replace(record.takeover, waits_for=("slow",))
    assert await looked(record, Groups({"through": {0: 100, 1: 250}})) is None


async def test_operators_are_told_how_far_each_group_is_that_is_waited_for() -> None:
    """In records before the cuts; a group that is left out holds nothing up, so nobody asks how far it is."""
    record = opening()
    assert record.takeover is not None
    groups = Groups({"through": {0: 100, 1: 250}, "slow": {0: 90, 1: 199}, "dead": {0: 1}})
    assert (await looked_at(record, groups))[1] == BehindRecord(3, {"dead": 299, "slow": 11})
    left_out = replace(record, takeover=replace(record.takeover, left_out=("dead",)))
    assert (await looked_at(left_out, groups))[1] == BehindRecord(3, {"slow": 11})


async def test_a_group_is_not_waited_for_where_only_others_records_are_left() -> None:
    """Many consumers commit behind their last record, and v >= N has been written behind it to the same partition."""
    groups = Groups({"through": {0: 100, 1: 190}})
    assert await looked(opening(), groups, empty=[(1, 190)]) is None


async def test_before_the_last_cut_only_members_are_looked_at() -> None:
    """No offset is to be passed yet, but members of KIP-848 groups come over to the new name from the beginning."""
    record = TopicRecord(OWN, UUID(int=2), Takeover(5))
    assert await looked(record, Groups({"slow": {0: 1}})) == record.takeover
    assert await looked(record, Groups({}, [STAYS])) == Takeover(5, subscribers=(STAYS,))


async def test_members_under_the_old_name_are_waited_for() -> None:
    """Nobody would read what v >= N holds for a group whose coordinator does not know of it."""
    assert await looked(opening(), Groups({}, [STAYS])) == replace(
        opening().takeover or Takeover(0), subscribers=(STAYS,)
    )
    left_out = replace(opening(), takeover=Takeover(0, {0: 100, 1: 200}, left_out=("new",)))
    assert await looked(left_out, Groups({}, [STAYS])) is None


async def test_a_group_is_as_far_behind_as_it_has_records_to_go_also_where_a_log_got_shorter() -> None:
    """Its commits go on behind what was lost, so the log's own end says too little (BEYOND-LOSS)."""
    groups = Groups({"near": {0: 10, 1: 40_000}, "far": {0: 10, 1: 39_999}})
    shared = UNMANAGED.changed(UNMANAGED.next_epoch(2, Placement.SHARED), {0: 10, 1: 45_000}, withheld=True)
    assert await far(shared, groups, {0: 10, 1: 40_000 + NEAR_RECORDS}) == ("far",)
    lost = shared.next_epoch(2, Placement.SHARED, {1: 20_000})
    mended = shared.changed(lost, {0: 10, 1: 20_000}, withheld=True, told={1: 45_000})
    assert await far(mended, groups, {0: 10, 1: 20_000 + NEAR_RECORDS - 5_000}) == ("far",)
