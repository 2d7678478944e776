"""A member of a group that commits offset by offset, as a client by hand would: it says exactly what is sent."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.ranges import Range, Ranges, load_stored
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.waiting import wait_until

_PASSING = (Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR)
COMMIT_VERSION = FETCH_VERSION = 8


class Where(NamedTuple):
    """Where a group stands."""

    stable: int
    ranges: tuple[Range, ...]
    incarnation: int
    metadata: str | None


class Committed(NamedTuple):
    """What a commit is answered."""

    code: int
    stable: int


class IndividualMember:
    """Of a group without other members, on a partition.

    Args:
        connection: To the group's coordinator.
    """

    def __init__(self, connection: PlainConnection, group_id: str, topic: str, partition: int = 0) -> None:
        self.incarnation = 0
        """That it was told last."""
        self._connection = connection
        self._group_id = group_id
        self._topic = topic
        self._partition = partition

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def ask(self) -> Where:
        """Asks where the group stands, until that can be told."""
        row = wait_until("where the group stands", self._ask)
        assert not row.error_code, row
        self.incarnation = row.incarnation
        ranges = tuple(load_stored(row.committed_range_offsets)) if row.committed_range_offsets else ()
        return Where(row.committed_offset, ranges, row.incarnation, row.metadata)

    def refusal(self) -> int:
        """Asks where the group stands; returns with which error that is refused, of the group or of the partition."""
        (told,) = self._groups()
        return int(told.error_code or told.topics[0].partitions[0].error_code)

    def _ask(self) -> Any:
        (told,) = self._groups()
        assert not told.error_code, told
        ((row,),) = (each.partitions for each in told.topics)
        return None if row.error_code in _PASSING else row

    def _groups(self) -> Any:
        topic = {"name": self._topic, "partition_indexes": [self._partition]}
        group = {"group_id": self._group_id, "topics": [topic]}
        answer = self._connection.ask(
            apis.OFFSET_FETCH, FETCH_VERSION, {"groups": [group], "require_stable": True, "with_ranges": True}
        )
        return answer.groups

    def commit(self, stable: int, *ranges: Range, text: str = "", **fields: Any) -> Committed:
        """Says what is done, once; `fields` are those of its row that are to be other ones, or of the request."""
        row = {
            "partition_index": self._partition,
            "committed_offset": stable,
            "committed_metadata": text,
            "offset_ranges": Ranges(ranges).dump(),
            "incarnation": self.incarnation,
        }
        row |= {name: value for name, value in fields.items() if name in row}
        asked = {"group_id": self._group_id, "member_id": "", "topics": [{"name": self._topic, "partitions": [row]}]}
        asked |= {name: value for name, value in fields.items() if name not in row}
        answer = self._connection.ask(apis.OFFSET_COMMIT, COMMIT_VERSION, asked)
        ((told,),) = (each.partitions for each in answer.topics)
        return Committed(told.error_code, told.last_stable_offset)
