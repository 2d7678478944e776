"""What a cooperative member on physical partitions tells its group: what is finished, and no more."""

from __future__ import annotations

from aiokafka.consumer.subscription_state import Assignment, SubscriptionState
from aiokafka.structs import TopicPartition

from kordon.client.cooperative.physical import _Finished
from kordon.client.moves_events import MemberPositions

# pyright: reportPrivateUsage=false

TP = TopicPartition("t", 0)


async def test_the_group_is_told_what_is_finished_and_not_what_was_given_out() -> None:
    """Also when the consumer stops, and when the partition is in hand no more."""
    finished: dict[TopicPartition, int] = {}
    told = _Finished(SubscriptionState(), finished.get)
    assignment = Assignment({TP})
    assignment.state_value(TP).reset_to(50)
    finished[TP] = 12
    told.came_back(assignment, [TP])
    assert told.places(assignment, [TP]) == {TP: MemberPositions(50, 12)}
    assert told.places(assignment, [TP], all_is_handled=True) == {TP: MemberPositions(50, 12)}
    finished[TP] = 60
    assert told.places(assignment, [TP]) == {TP: MemberPositions(50, 50)}
    del finished[TP]
    assert told.places(assignment, [TP]) == {TP: MemberPositions(50, -1)}
