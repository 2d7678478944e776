"""Visits to groups of others that have no members: who joins one and leaves has brokers keep its commits for longer.

Brokers drop the commits of a group that has been empty for `offsets.retention.minutes`. That time begins when the last
member leaves (KIP-211). To commit once more does not begin it again, and could overwrite what others commit meanwhile.
"""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import (
    ConsumerProtocolSubscription,
    DescribeGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
)
from kordon.codecs.consumer_protocol import SUBSCRIPTION, build_versioned
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import describe_groups, join_group, leave_group
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers, CoordinatorKind
from kordon.proxy.kafka.ends import refuse

EMPTY: Final = "Empty"
"""The state of a group without members, as brokers say it."""
_PURPOSE: Final = "group_visits"
_PROTOCOL_TYPE: Final = "consumer"
_PROTOCOLS: Final = ("range", "cooperative-sticky", "sticky", "roundrobin")
"""Whoever joins at the same time finds one that it knows; nobody shares anything out by it."""
_DESCRIBE_VERSIONS: Final = range(5)
_JOIN_VERSIONS: Final = range(4, 10)
_LEAVE_VERSIONS: Final = range(6)
_GRACE_SECONDS: Final = 5.0


async def visit(brokers: Brokers, group_id: str, session_ms: int) -> bool:
    """Joins a group that has no members, and leaves it.

    Args:
        session_ms: The time after which the group has no members again if this process ends in between.

    Returns:
        False: it has members, or it is gone, so it needs no visit.

    Raises:
        TopicsRefused: Kordon may not join it.
        UpstreamUnavailable: Its coordinator does not answer.
    """
    client = await brokers.coordinator(CoordinatorKind.GROUP, group_id, _PURPOSE)
    described = await client.ask(
        describe_groups.API,
        client.version(describe_groups.API.key, _DESCRIBE_VERSIONS),
        DescribeGroupsRequest(groups=[group_id]),
    )
    (group,) = described.groups
    refuse(f"group {group_id}", group)
    if group.group_state != EMPTY:
        return False
    subscription = build_versioned(SUBSCRIPTION, 0, ConsumerProtocolSubscription(topics=[], user_data=None))
    asked = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms,
        member_id="",
        protocol_type=_PROTOCOL_TYPE,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=subscription) for name in _PROTOCOLS],
    )
    version, timeout = client.version(join_group.API.key, _JOIN_VERSIONS), session_ms / 1000 + _GRACE_SECONDS
    joined = await client.ask(join_group.API, version, asked, timeout)
    if joined.error_code == Code.MEMBER_ID_REQUIRED:  # KIP-394
        asked.member_id = joined.member_id
        joined = await client.ask(join_group.API, version, asked, timeout)
    refuse(f"visiting group {group_id}", joined)
    left = await client.ask(
        leave_group.API,
        client.version(leave_group.API.key, _LEAVE_VERSIONS),
        LeaveGroupRequest(
            group_id=group_id, member_id=joined.member_id, members=[LeaveGroupRequestMember(member_id=joined.member_id)]
        ),
    )
    if left.error_code:
        raise UpstreamUnavailable(f"leaving group {group_id}: {name_of(left.error_code)}")
    return True
