"""Questions to the coordinator of the proxies' group, wherever it is by now."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from kordon.codecs.bodies import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.messages import heartbeat, join_group, leave_group, offset_commit, sync_group
from kordon.codecs.row import Row
from kordon.codecs.schema import Api
from kordon.proxy.core.errors import KordonError, UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers, CoordinatorKind
from kordon.proxy.kafka.upstream import UpstreamClient

_Request = TypeVar("_Request", bound=Row)
_Response = TypeVar("_Response", bound=Row)

GROUP: Final = "kordon"
PROTOCOL_TYPE: Final = "kordon"
PROTOCOL: Final = "kordon-1"
"""What members tell each other; one that cannot be read by others gets another number."""
MOST_METADATA_BYTES: Final = 4096
"""Of one member; a proxy's are some 200."""
MOST_MEMBERS_BYTES: Final = 2**20
MOST_LEASE_MS: Final = 300_000
"""As `ordering.lease_ms`: nobody makes the others wait for longer."""
_COORDINATOR_AWAY: Final = frozenset(
    {Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR, Code.REQUEST_TIMED_OUT}
)
_JOIN_GRACE_SECONDS: Final = 5.0


class GroupRefused(KordonError):  # noqa: N818 - a state of the world, named as operators say it
    """Raised when the coordinator refuses; carries Kafka's code.

    Attributes:
        code: Kafka's error code.
    """

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {name_of(code)}")
        self.code = code


@dataclass(frozen=True, slots=True)
class About:
    """What a proxy tells the others of itself."""

    incarnation: str
    """The name of this worker since its start. It is never used again."""
    host: str
    admin: str | None
    """host:port of its admin pages."""
    version: str
    """The version of Kordon."""
    lease_ms: int = 0
    """How long it may serve without being confirmed."""
    seal: str = ""
    """The seal of the word that it says when it ends (`presence.sealed`)."""
    knows_transactions: bool = True
    """Whether it may serve a topic whose layout says that it has transactions; former versions do not say it."""

    def build(self) -> bytes:
        """Returns it as it stands in JoinGroup."""
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a generation."""

    member_id: str
    incarnation: str
    host: str
    lease_ms: int = 0
    """0: it has not told."""
    seal: str = ""
    """The seal of the word that it says when it ends; empty: it has told none."""
    knows_transactions: bool = False
    """Whether it serves topics that have transactions; False: it has not told, as it is of a former version."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a JoinGroup request."""

    generation: int
    member_id: str
    leader_id: str
    members: tuple[GroupMember, ...]
    """The proxies; only the leader is told."""
    aliens: tuple[str, ...] = ()
    """The member ids of members that are no proxies: they hold no lease, and nobody waits for them."""


class GroupCoordinator:
    """A connection of its own to the group's coordinator, which is looked up again when it moves.

    A broker works on one request of a connection at a time, and a JoinGroup may take as long as the slowest member: who
    must not wait for that has a coordinator of his own.

    Args:
        purpose: The name of the connection.
    """

    def __init__(self, brokers: Brokers, purpose: str, group: str = GROUP) -> None:
        self._brokers = brokers
        self._purpose = purpose
        self._group = group
        self._client: UpstreamClient | None = None
        self.member_id = ""
        """As the coordinator gave it; "" asks for another one."""

    def close(self) -> None:
        """Closes the connection; asking again opens another."""
        if self._client is not None:
            self._client.close()
            self._client = None

    async def join(self, about: About, session_ms: int) -> Joined:
        """Joins, and returns when all members have, or are given up.

        Args:
            session_ms: The time without heartbeats, or without a JoinGroup in a rebalance, after which a member is
                removed.

        Raises:
            GroupRefused: The coordinator does not want it.
            UpstreamUnavailable: The coordinator does not answer.
        """
        asked = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=about.build())],
        )
        timeout = session_ms / 1000 + _JOIN_GRACE_SECONDS
        answer = await self._ask(join_group.API, range(2, 10), asked, timeout)
        if answer.error_code == Code.MEMBER_ID_REQUIRED and not self.member_id:  # KIP-394
            self.member_id = answer.member_id
            return await self.join(about, session_ms)
        _refuse("joining", answer.error_code)
        self.member_id = answer.member_id
        found = {each.member_id: member_told(each.member_id, each.metadata) for each in answer.members}
        members = tuple(member for member in found.values() if member is not None)
        aliens = tuple(member_id for member_id, member in found.items() if member is None)
        return Joined(answer.generation_id, answer.member_id, answer.leader, members, aliens)

    async def sync(self, joined: Joined) -> tuple[GroupMember, ...]:
        """Gives everybody the list of members, as the leader, and returns it.

        Raises:
            GroupRefused: The generation is over.
            UpstreamUnavailable: The coordinator does not answer.
        """
        listed = build_members(joined.members)
        assignments = [
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=listed) for each in joined.members
        ]
        asked = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation,
            member_id=joined.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        answer = await self._ask(sync_group.API, range(6), asked)
        _refuse("synchronising", answer.error_code)
        return parse_members(answer.assignment)

    async def beat(self, joined: Joined) -> None:
        """Says that the member is there.

        Raises:
            GroupRefused: The generation is over, or about to be.
            UpstreamUnavailable: The coordinator does not answer.
        """
        asked = HeartbeatRequest(group_id=self._group, generation_id=joined.generation, member_id=joined.member_id)
        answer = await self._ask(heartbeat.API, range(5), asked)
        _refuse("heartbeat", answer.error_code)

    async def commit(self, joined: Joined, topic: str, offset: int, metadata: str) -> None:
        """Commits an offset of partition 0 of a topic, which is accepted of members of the present generation only.

        Raises:
            GroupRefused: The generation is over; or it is not complete yet (REBALANCE_IN_PROGRESS).
            UpstreamUnavailable: The coordinator does not answer.
        """
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
        asked = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=joined.generation,
            member_id=joined.member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        answer = await self._ask(offset_commit.API, range(2, 9), asked)
        for of_topic in answer.topics:
            for each in of_topic.partitions:
                self._look(each.error_code)
                _refuse("committing", each.error_code)

    async def leave(self) -> None:
        """Leaves, so that the others need not wait for the end of a session.

        Raises:
            UpstreamUnavailable: The coordinator does not answer.
        """
        members = [LeaveGroupRequestMember(member_id=self.member_id)]
        asked = LeaveGroupRequest(group_id=self._group, member_id=self.member_id, members=members)
        await self._ask(leave_group.API, range(6), asked)
        self.member_id = ""

    async def _ask(
        self, api: Api[_Request, _Response], versions: range, body: _Request, timeout: float | None = None
    ) -> _Response:
        try:
            if self._client is None or self._client.closed:
                self._client = await self._brokers.coordinator(CoordinatorKind.GROUP, self._group, self._purpose)
            answer = await self._client.ask(api, self._client.version(api.key, versions), body, timeout)
        except BaseException:
            self.close()  # a question that nobody waits for any more would hold up the next one
            raise
        self._look(answer.get("error_code", int(Code.NONE)))
        return answer

    def _look(self, code: int) -> None:
        """Lets a coordinator go that is none any more."""
        if code in _COORDINATOR_AWAY:
            self.close()
            raise UpstreamUnavailable(f"coordinator of group {self._group}: {name_of(code)}")


def _refuse(what: str, code: int) -> None:
    if code != Code.NONE:
        raise GroupRefused(what, code)


def member_told(member_id: str, metadata: bytes) -> GroupMember | None:
    """Reads what a member says of itself; None: no proxy of any version says this."""
    if len(metadata) > MOST_METADATA_BYTES:
        return None
    try:
        told = json.loads(bytes(metadata))
        return _member_of({**told, "member_id": member_id})
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def _member_of(told: Mapping[str, Any]) -> GroupMember:
    """Makes a member from a JSON object; raises ValueError, TypeError or KeyError if it is none."""
    texts = [told["member_id"], told["incarnation"], told["host"], told.get("seal", "")]
    if not all(isinstance(each, str) for each in texts) or not told["incarnation"]:
        raise ValueError("no member")
    member_id, incarnation, host, seal = texts
    lease_ms = min(max(int(told.get("lease_ms", 0)), 0), MOST_LEASE_MS)
    return GroupMember(member_id, incarnation, host, lease_ms, seal, told.get("knows_transactions") is True)


def build_members(members: Iterable[GroupMember]) -> bytes:
    """Returns what the leader gives everybody."""
    return json.dumps([asdict(member) for member in members]).encode()


def parse_members(raw: bytes) -> tuple[GroupMember, ...]:
    """Reads what the leader gave.

    Raises:
        GroupRefused: The coordinator sent an unreadable assignment. Joining again asks for another.
    """
    try:
        if len(raw) > MOST_MEMBERS_BYTES:
            raise ValueError(f"{len(raw)} bytes")
        return tuple(_member_of(each) for each in json.loads(bytes(raw)))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        raise GroupRefused("the leader's list of members", Code.INCONSISTENT_GROUP_PROTOCOL) from None
