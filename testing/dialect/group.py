"""Members of a group that speak the dialect and do exactly what they are told: they join, report and hear."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from struct import Struct
from typing import Any, Final, Self

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.rights import log_in
from kordon.testing.waiting import wait_until

JOIN_GROUP: Final = 7
SYNC_GROUP: Final = 5
HEARTBEAT: Final = 4
LEAVE_GROUP: Final = 3
FIND_COORDINATOR: Final = 3
_LEAVE_GROUP_KEY: Final = 13
_SUBSCRIPTION: Final = Struct(">hii4s")
"""ConsumerProtocol's, version 0: its version, how many topics, how long the user data are, and these."""
_LATER: Final = frozenset({Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})
_PATIENCE_SECONDS: Final = 90.0
_JOIN_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Told:
    """What a member hears back."""

    error_code: int
    positions: Mapping[int, int]
    """Of the group, by partition that it names; -1: not known."""
    needed: frozenset[int]
    """Those of its own that others want to know."""


class GroupMember:
    """A member of a classic group; each has a connection of its own to the group's coordinator.

    Args:
        instance_id: Of a static member.
        user: That logs in on each connection; "": nobody does.
    """

    def __init__(self, bootstrap: str, group_id: str, instance_id: str | None = None, user: str = "") -> None:
        self.group_id = group_id
        self.instance_id = instance_id
        self._user = user
        self.member_id = ""
        self.generation_id = -1
        self.sequence = 0
        self._joins = count(1)
        self.connection = _to_coordinator(bootstrap, group_id, user)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def go_to(self, bootstrap: str) -> None:
        self.connection.close()
        self.connection = _to_coordinator(bootstrap, self.group_id, self._user)

    def join(self) -> Sequence[str]:
        """Joins, as one that has been a member before if it has; returns all members where it leads them.

        Its user data are others each time: a member that comes again with the same ones, and leads nobody, is only
        told the generation that there is.
        """
        subscription = _SUBSCRIPTION.pack(0, 0, 4, next(self._joins).to_bytes(4))
        fields = {
            "group_id": self.group_id,
            "session_timeout_ms": 60_000,
            "rebalance_timeout_ms": 60_000,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "kordon-ordered", "metadata": subscription}],
        }
        answer = self.connection.ask(apis.JOIN_GROUP, JOIN_GROUP, {**fields, "member_id": self.member_id})
        if answer.error_code == Code.MEMBER_ID_REQUIRED:
            answer = self.connection.ask(apis.JOIN_GROUP, JOIN_GROUP, {**fields, "member_id": answer.member_id})
        assert answer.error_code == Code.NONE, answer
        self.member_id, self.generation_id = answer.member_id, answer.generation_id
        return [member.member_id for member in answer.members]

    def sync(self, members: Sequence[str] = ()) -> int:
        """Waits until the generation has begun, or another one; the leader names all members, and assigns nothing.

        Returns:
            NONE, or REBALANCE_IN_PROGRESS.
        """
        fields = {
            **self._who(),
            "protocol_type": "consumer",
            "protocol_name": "kordon-ordered",
            "assignments": [{"member_id": member, "assignment": b""} for member in members],
        }
        code = int(self.connection.ask(apis.SYNC_GROUP, SYNC_GROUP, fields).error_code)
        assert code in (Code.NONE, Code.REBALANCE_IN_PROGRESS)
        return code

    def heartbeat(self) -> int:
        return int(self.connection.ask(apis.HEARTBEAT, HEARTBEAT, self._who()).error_code)

    def leave(self) -> None:
        fields = {"group_id": self.group_id, "members": [{"member_id": self.member_id}]}
        answer = self.connection.ask(_LEAVE_GROUP_KEY, LEAVE_GROUP, fields)
        assert answer.error_code == Code.NONE, answer

    def report(
        self, topic: str, owned: Mapping[int, int], wanted: Sequence[int] = (), *, sequence: int | None = None
    ) -> Told:
        """Says once what it owns, by partition with its position or -1, and what it wants to know."""
        self.sequence = self.sequence + 1 if sequence is None else sequence
        rows = [{"partition": q, "need_position": q in wanted, "position": owned.get(q, -1)} for q in {*owned, *wanted}]
        fields = {**self._who(), "topics": [{"topic": topic, "partitions": rows}], "report_sequence": self.sequence}
        answer = self.connection.ask(apis.CONSUMER_GROUP_POSITION, 0, fields)
        told = [row for each in answer.topics for row in each.partitions]
        return Told(
            answer.error_code,
            {row.partition: row.position for row in told},
            frozenset(row.partition for row in told if row.need_position),
        )

    def tell(
        self, topic: str, owned: Mapping[int, int], wanted: Sequence[int] = (), *, sequence: int | None = None
    ) -> Told:
        """Reports, as `report` does, until it is answered otherwise than to come again later."""
        answers: list[Told] = []

        def answered() -> bool:
            answers.append(self.report(topic, owned, wanted, sequence=sequence))
            return answers[-1].error_code not in _LATER

        wait_until(f"{self.member_id} is answered", answered, _PATIENCE_SECONDS)
        return answers[-1]

    def _who(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }


def join_all(members: Sequence[GroupMember]) -> None:
    """Has members form the next generation of their group together, all those who have been in it included."""
    with ThreadPoolExecutor(len(members)) as pool:
        list(pool.map(partial(_join_with, len(members)), members))


def _join_with(size: int, member: GroupMember) -> None:
    """Joins until a generation has so many members; its leader begins no other one."""
    while True:
        roster = member.join()
        if roster and len(roster) < size:
            time.sleep(_JOIN_SECONDS)  # for the others to come
        elif member.sync(roster) != Code.REBALANCE_IN_PROGRESS:
            return


def _to_coordinator(bootstrap: str, group_id: str, user: str) -> DialectConnection:
    found: list[Any] = []

    def is_found() -> bool:
        with _connect(bootstrap, user) as connection:
            asked = {"key": group_id, "key_type": 0}
            found.append(connection.ask(apis.FIND_COORDINATOR, FIND_COORDINATOR, asked))
        return bool(found[-1].error_code == Code.NONE)

    wait_until(f"there is a coordinator of {group_id}", is_found, _PATIENCE_SECONDS)
    return _connect(f"{found[-1].host}:{found[-1].port}", user)


def _connect(address: str, user: str) -> DialectConnection:
    connection = DialectConnection(address)
    return log_in(connection, user) if user else connection
