"""With which segments a consumer begins what its group has shared out: without brokers."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from aiokafka.consumer.subscription_state import Assignment, SubscriptionState
from aiokafka.structs import TopicPartition

from kordon.client.calls import Calls
from kordon.client.key_move_driver import KeyMoveDriver
from kordon.client.known_layouts import KnownLayouts
from kordon.client.layouts import Layouts
from kordon.codecs.bodies import (
    MetadataResponseTopic,
    PartitionLeaderEpochsForPartitionsResponsePredecessor,
    PartitionLeaderEpochsForPartitionsResponseSegment,
)
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.segments import Segment
from kordon.testing.waiting import until

TOPIC_ID = UUID(int=1)
P1, P3 = TopicPartition("t", 1), TopicPartition("t", 3)


def resized(*counts: int) -> Layout:
    """A topic of two partitions, after these counts; sealed partitions are cut at 100, and begin at 0."""
    layout = Layout.created("t", TOPIC_ID, 2, 8)
    for u in counts:
        following = layout.next_epoch(u)
        change = layout.change_to(following)
        opened, sealed = change.opened, change.sealed
        layout = layout.changed(following, dict.fromkeys(opened, 0) | dict.fromkeys(sealed, 100))
    return layout


BEFORE, NOW = resized(), resized(6, 2)


class Client:
    """A client whose requests are answered by what each proxy knows that comes to be asked.

    Args:
        known: The layouts that proxies know; the last one for ever.
    """

    def __init__(self, *known: Layout) -> None:
        self.layouts = Layouts()
        self.cluster = SimpleNamespace(partitions_for_topic=lambda _: {0, 1, 2, 3, 4, 5})
        self._known = list(known)
        self._learn()

    async def force_metadata_update(self) -> None:
        """Asks for Metadata: the next proxy answers."""
        if len(self._known) > 1:
            self._known.pop(0)
        self._learn()

    def get_random_node(self) -> int:
        """Names the broker that is asked."""
        return 0

    async def send(self, node: int, request: Any, group: Any) -> Any:
        lines: dict[int, list[dict[str, Any]]] = {}
        for segment in self._known[0].segments:
            lines.setdefault(segment.id.partition, []).append(row_of(segment))
        partitions = [SimpleNamespace(partition=q, segments=line) for q, line in lines.items()]
        row = SimpleNamespace(topic="t", error_code=0, layout_epoch=self._known[0].epoch, partitions=partitions)
        return SimpleNamespace(topics=[row])

    def _learn(self) -> None:
        layout = self._known[0]
        row = MetadataResponseTopic(
            error_code=0,
            name="t",
            initial_partition_count=layout.n,
            undeleted_partition_count=layout.u,
            virtual_partition_count=layout.v_count,
            layout_epoch=layout.epoch,
            enable_ordered_delivery=True,
        )
        self.layouts.update([row])


def row_of(segment: Segment) -> PartitionLeaderEpochsForPartitionsResponseSegment:
    """Returns a segment as a proxy tells it."""
    return PartitionLeaderEpochsForPartitionsResponseSegment(
        layout_epoch=segment.id.epoch,
        start_offset=segment.start,
        end_offset=-1 if segment.end is None else segment.end,
        predecessors=[
            PartitionLeaderEpochsForPartitionsResponsePredecessor(partition=each.partition, layout_epoch=each.epoch)
            for each in segment.predecessors
        ],
    )


async def test_a_member_does_not_begin_with_segments_older_than_those_that_were_shared_out() -> None:
    """From 2 to 6 and back to 2: with those of before, 3 would have no predecessors, and the count would be right.

    Two proxies that know nothing of the changes answer first; the leader of the group knew of them.
    """
    client: Any = Client(BEFORE, BEFORE, BEFORE, NOW)
    driver = KeyMoveDriver(
        client,
        SubscriptionState(),
        calls=Calls(1.0),
        heartbeat_seconds=0.1,
        resume=lambda: None,
        withhold=lambda _: None,
    )
    assignment = Assignment({P1, P3})
    for tp in assignment.tps:
        assignment.state_value(tp).seek(0)
    group: Any = SimpleNamespace(group_id="g", generation=1, member_id="m", coordinator_id=None)
    try:
        driver.take(assignment, group, {"t": NOW.epoch})
        await until("it begins", lambda: driver.admits(assignment, P1, 0))
        assert driver.moves.held == {P3}
        assert not driver.admits(assignment, P3, 0)
    finally:
        await driver.close()


async def test_a_layout_that_only_the_leader_of_the_group_knew_is_not_believed_for_long() -> None:
    """The topic may have been let go since; a layout that is known and older is never enough."""
    client: Any = Client(BEFORE)
    known = KnownLayouts(client)
    assert known.epoch("t") == BEFORE.epoch
    assert known.epoch("other") == -1
    assert not await known.learn({"t"}, {"t": NOW.epoch}, 3600)
    assert not await known.learn({"other"}, {"other": 0}, 0)
    assert await known.learn({"t", "other"}, {"t": BEFORE.epoch, "other": 0}, 3600)
    assert known.gates({"t", "other"}).keys() == {"t"}
