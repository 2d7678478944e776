"""A member of a share group that says exactly what it sends, for tests: no client does anything behind its back."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from kordon.codecs import apis
from kordon.codecs.records import batches
from kordon.codecs.unpack import records_of
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.waiting import wait_until

ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
_LIMIT_BYTES: Final = 1 << 24
_SET: Final = 0
_GROUP_RESOURCE: Final = 32
_PATIENCE_SECONDS: Final = 60


class Got(NamedTuple):
    """A record that it was given."""

    topic_id: UUID
    partition: int
    offset: int
    tries: int
    key: bytes | None
    value: bytes


class ShareMember:
    """One member with one share session, on one connection.

    Args:
        bootstrap: host:port of a proxy, or of the broker.
    """

    def __init__(self, bootstrap: str, group: str) -> None:
        self.connection = PlainConnection(bootstrap)
        self.group = group
        self.id = str(uuid.uuid4())
        self.epoch = 0
        """Of its session's next request."""
        self._member_epoch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def join(self, *topics: str, count: int = 1) -> dict[UUID, list[int]]:
        """Joins the group; returns what it is assigned, once that is of so many topics."""
        assigned = dict[UUID, list[int]]()

        def has_come() -> bool:
            told = self.beat(topics if self._member_epoch == 0 else None)
            assert told.error_code == 0, told
            self._member_epoch = told.member_epoch
            for row in told.assignment.topic_partitions if told.assignment is not None else ():
                assigned[row.topic_id] = row.partitions
            return len(assigned) >= count

        wait_until("a member is assigned something", has_come, _PATIENCE_SECONDS)
        return assigned

    def beat(self, topics: Iterable[str] | None = None, *, epoch: int | None = None) -> Any:
        """Sends a heartbeat; returns the answer."""
        fields = {
            "group_id": self.group,
            "member_id": self.id,
            "member_epoch": self._member_epoch if epoch is None else epoch,
            "rack_id": None,
            "subscribed_topic_names": None if topics is None else [*topics],
        }
        return self.connection.ask(apis.SHARE_GROUP_HEARTBEAT, 1, fields)

    def leave(self) -> None:
        """Leaves the group."""
        assert self.beat(epoch=-1).error_code == 0

    def fetch(
        self,
        named: Mapping[UUID, Iterable[int]] | None = None,
        said: Sequence[tuple[Got, int]] = (),
        **fields: Any,
    ) -> Any:
        """Sends a ShareFetch; returns the answer.

        Args:
            named: Partitions that its session is to name as well.
            said: What it makes of records.
            fields: Other values than a client's usual ones.
        """
        whole = {
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "forgotten_topics_data": [],
            **fields,
        }
        return self._ask(apis.SHARE_FETCH, whole, named or {}, said)

    def acknowledge(self, said: Sequence[tuple[Got, int]], *, is_renew_ack: bool = False, is_last: bool = False) -> Any:
        """Sends a ShareAcknowledge; returns the answer."""
        if is_last:
            self.epoch = -1
        return self._ask(apis.SHARE_ACKNOWLEDGE, {"is_renew_ack": is_renew_ack}, {}, said)

    def take(self, said: Sequence[tuple[Got, int]] = (), *, least: int = 1, **fields: Any) -> list[Got]:
        """Asks until it is given some records; what it says goes with the first request."""
        found, left = list[Got](), [*said]

        def has_come() -> bool:
            nonlocal left
            found.extend(given(self.fetch(said=left, **fields)))
            left = []
            return len(found) >= least

        wait_until(f"{least} records are given", has_come, _PATIENCE_SECONDS)
        return found

    def _ask(
        self,
        api_key: int,
        fields: Mapping[str, Any],
        named: Mapping[UUID, Iterable[int]],
        said: Sequence[tuple[Got, int]],
    ) -> Any:
        rows: dict[UUID, dict[int, list[dict[str, Any]]]] = {}
        for topic_id, partitions in named.items():
            for each in partitions:
                rows.setdefault(topic_id, {}).setdefault(each, [])
        for got, kind in sorted(said, key=lambda each: each[0].offset):
            batch = {"first_offset": got.offset, "last_offset": got.offset, "acknowledge_types": [kind]}
            rows.setdefault(got.topic_id, {}).setdefault(got.partition, []).append(batch)
        topics = [
            {
                "topic_id": topic_id,
                "partitions": [{"partition_index": p, "acknowledgement_batches": own} for p, own in partitions.items()],
            }
            for topic_id, partitions in rows.items()
        ]
        asked = {"group_id": self.group, "member_id": self.id, "share_session_epoch": self.epoch, "topics": topics}
        answer = self.connection.ask(api_key, 2, {**asked, **fields})
        if answer.error_code == 0:
            self.epoch += 1
        return answer


def configure_group(connection: PlainConnection, group: str, values: Mapping[str, str]) -> None:
    """Gives a share group these configs, and waits until they are described: brokers learn of them a moment later."""
    rows = [{"name": name, "config_operation": _SET, "value": value} for name, value in values.items()]
    resource = {"resource_type": _GROUP_RESOURCE, "resource_name": group, "configs": rows}
    told = connection.ask(apis.INCREMENTAL_ALTER, 1, {"resources": [resource], "validate_only": False})
    assert told.responses[0].error_code == 0

    def are_described() -> bool:
        named = {"resource_type": _GROUP_RESOURCE, "resource_name": group, "configuration_keys": [*values]}
        [found] = connection.ask(apis.DESCRIBE_CONFIGS, 1, {"resources": [named]}).results
        return {each.name: each.value for each in found.configs} == values

    wait_until(f"the configs of {group} are described", are_described, _PATIENCE_SECONDS)


def given(answer: Any) -> list[Got]:
    """Returns the records that an answer gives, as a client takes them: those that are acquired and are there."""
    assert answer.error_code == 0, answer
    found = list[Got]()
    for topic in answer.responses:
        for row in topic.partitions:
            tries = {
                offset: each.delivery_count
                for each in row.acquired_records
                for offset in range(each.first_offset, each.last_offset + 1)
            }
            data = memoryview(row.records or b"")
            records = [each for span in batches(data) for each in records_of(data[span.start : span.end], _LIMIT_BYTES)]
            for each in records:
                if each.offset in tries:
                    key = None if each.key is None else bytes(each.key)
                    at = topic.topic_id, row.partition_index, each.offset
                    found.append(Got(*at, tries[each.offset], key, bytes(each.value or b"")))
            assert len({each.offset for each in records} & tries.keys()) == len(tries), "all that is acquired is there"
    return found


def errors(answer: Any) -> list[tuple[int, int]]:
    """Returns the two errors of each partition's row of a ShareFetch answer."""
    return [(row.error_code, row.acknowledge_error_code) for topic in answer.responses for row in topic.partitions]
