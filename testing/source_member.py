"""A member of a group on a source topic, as a client by hand would be: it says exactly what is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.bodies import ConsumerProtocolSubscription
from kordon.codecs.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, build_versioned
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import response
from kordon.codecs.source_points import Point, build
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.waiting import wait_until

_SESSION_MS: Final = 60_000
_JOIN, _SYNC, _LEAVE, _HEARTBEAT, _COMMIT = 3, 3, 1, 3, 7
_INIT, _ADD_OFFSETS, _TXN_COMMIT, _END = 3, 1, 3, 1
_FIND, _GROUPS, _TRANSACTIONS = 2, 0, 1
_ADD_OFFSETS_TO_TXN: Final = 25
_PASSING: Final = (
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
    Code.CONCURRENT_TRANSACTIONS,
)


class SourceMember:
    """Of a classic group that is named like its source topic.

    Args:
        connection: To the coordinator of the group and of transactions.
    """

    def __init__(self, connection: PlainConnection, group_id: str) -> None:
        self.member_id = ""
        self.generation_id = -1
        self.group_id = group_id
        self._connection = connection
        self._producer = (-1, -1)
        for kind in (_GROUPS, _TRANSACTIONS):  # has brokers make the topics of coordinators
            self._until_told(apis.FIND_COORDINATOR, _FIND, {"key": group_id, "key_type": kind})

    def close(self) -> None:
        """Ends its connection."""
        self._connection.close()

    def begin_join(self) -> None:
        """Asks to be a member; the answer comes when all others have asked, too (`join`)."""
        subscription = build_versioned(
            SUBSCRIPTION, 0, ConsumerProtocolSubscription(topics=[self.group_id], user_data=None)
        )
        asked = {
            "group_id": self.group_id,
            "session_timeout_ms": _SESSION_MS,
            "rebalance_timeout_ms": _SESSION_MS,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription}],
        }
        self._connection.tell(apis.JOIN_GROUP, _JOIN, asked)

    def join(self) -> bool:
        """Waits until it is a member; returns whether it leads."""
        answer = response(apis.JOIN_GROUP).parse(_JOIN, self._connection.told(apis.JOIN_GROUP, _JOIN))
        assert not answer.error_code, answer
        self.member_id, self.generation_id = answer.member_id, answer.generation_id
        return bool(answer.leader == answer.member_id)

    def sync(self, owned: Mapping[str, Sequence[int]] | None = None) -> None:
        """Shares partitions out by member, if it leads, and waits until all are."""
        shares = (owned or {}).items()
        rows = [{"member_id": each, "assignment": self._assignment(share)} for each, share in shares]
        asked = {**self._self(), "assignments": rows}
        answer = self._connection.ask(apis.SYNC_GROUP, _SYNC, asked)
        assert not answer.error_code, answer

    def is_to_join(self) -> bool:
        """Whether the group wants its members to ask again."""
        code: int = self._connection.ask(apis.HEARTBEAT, _HEARTBEAT, self._self()).error_code
        return code == Code.REBALANCE_IN_PROGRESS

    def leave(self) -> None:
        """Says that it is no member any more."""
        asked = {"group_id": self.group_id, "member_id": self.member_id}
        assert not self._connection.ask(apis.LEAVE_GROUP, _LEAVE, asked).error_code

    def commit(self, number: int) -> int:
        """Commits a restart point of partition 0, in no transaction and for nobody; returns the error code."""
        asked = {"group_id": self.group_id, "member_id": "", "topics": self._rows(number)}
        answer = self._connection.ask(apis.OFFSET_COMMIT, _COMMIT, asked)
        return int(answer.topics[0].partitions[0].error_code)

    def commit_in_transaction(self, number: int) -> int:
        """Commits a restart point of partition 0 in a transaction; returns the error code of the restart point."""
        name = f"{self.group_id}.{self.member_id}"
        if self._producer[0] < 0:
            asked = {"transactional_id": name, "transaction_timeout_ms": _SESSION_MS}
            told = self._until_told(apis.INIT_PRODUCER_ID, _INIT, asked)
            self._producer = (told.producer_id, told.producer_epoch)
        producer_id, epoch = self._producer
        of = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch, "group_id": self.group_id}
        self._until_told(_ADD_OFFSETS_TO_TXN, _ADD_OFFSETS, of)
        answer = self._connection.ask(
            apis.TXN_OFFSET_COMMIT, _TXN_COMMIT, {**of, **self._self(), "topics": self._rows(number)}
        )
        code = int(answer.topics[0].partitions[0].error_code)
        self._until_told(apis.END_TXN, _END, {**of, "committed": not code})
        return code

    def _self(self) -> dict[str, Any]:
        named = {"group_id": self.group_id, "member_id": self.member_id, "generation_id": self.generation_id}
        return {**named, "generation_id_or_member_epoch": self.generation_id}

    def _assignment(self, partitions: Sequence[int]) -> bytes:
        rows = [{"topic": self.group_id, "partitions": list(partitions)}]
        return build_versioned(ASSIGNMENT, 0, {"assigned_partitions": rows, "user_data": None})

    def _rows(self, number: int) -> list[dict[str, Any]]:
        row = {"partition_index": 0, "committed_offset": 0, "committed_metadata": build(Point(number, "12:34"))}
        return [{"name": self.group_id, "partitions": [row]}]

    def _until_told(self, api_key: int, version: int, asked: Mapping[str, Any]) -> Any:
        def ask() -> Any:
            answer = self._connection.ask(api_key, version, asked)
            return None if answer.error_code in _PASSING else answer

        answer = wait_until("the coordinator answers", ask)
        assert not answer.error_code, answer
        return answer
