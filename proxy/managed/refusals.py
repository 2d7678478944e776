"""Requests about managed topics that are refused as a whole, with an answer that clients report at once.

Share groups hand records of one partition to many consumers, and streams groups have the broker reckon with physical
partitions: neither can be had of virtual partitions. A member is told so when it names its topics, which it does when
it joins. INVALID_REQUEST is what Java gives to its user together with the answer's message; it replaces the message of
UNSUPPORTED_VERSION by one of its own, according to which the whole cluster knew no such groups.

Source: AbstractHeartbeatRequestManager, StreamsGroupHeartbeatRequestManager (Java 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from kordon.proxy import apis
from kordon.proxy.control.codes import Code
from kordon.proxy.log_limits import client_log
from kordon.proxy.managed import transactions
from kordon.proxy.managed.names import to_face
from kordon.proxy.managed.topics import ManagedTopics

log = client_log(__name__)
Refusal: TypeAlias = Callable[[Any, ManagedTopics], Mapping[str, Any] | None]


def refuse_share_group(value: Any, topics: ManagedTopics) -> dict[str, Any] | None:
    """Refuses a member of a share group that subscribes to a managed topic; None: it does not."""
    return _refused("share", value, value.subscribed_topic_names or (), topics)


def refuse_streams_group(value: Any, topics: ManagedTopics) -> dict[str, Any] | None:
    """Refuses a member of a streams group whose topology names a managed topic as a source; None: it names none."""
    parts = value.topology.subtopologies if value.topology is not None else ()
    return _refused("streams", value, (name for part in parts for name in _sources(part)), topics)


def _sources(part: Any) -> Iterable[str]:
    yield from part.source_topics
    yield from (row.name for row in part.repartition_source_topics)


def _refused(kind: str, value: Any, names: Iterable[str], topics: ManagedTopics) -> dict[str, Any] | None:
    rename = to_face(topics)
    managed = sorted({name for name in names if rename(name) != name})
    if not managed:
        return None
    log.warning("group_refused", group=value.group_id, kind=kind, topics=managed, reason="virtual partitions")
    are = "is a managed topic" if len(managed) == 1 else "are managed topics"
    message = f"{', '.join(managed)} {are}, whose virtual partitions {kind} groups cannot read: use a consumer group"
    return {
        "error_code": Code.INVALID_REQUEST,
        "error_message": message,
        "member_id": value.member_id,
        "member_epoch": value.member_epoch,
    }


REFUSALS: Final[Mapping[int, Refusal]] = {
    apis.ADD_PARTITIONS_TO_TXN: transactions.refusal,
    apis.SHARE_GROUP_HEARTBEAT: refuse_share_group,
    apis.STREAMS_GROUP_HEARTBEAT: refuse_streams_group,
}
"""By api key: returns the response's fields, or None where the request is none of Kordon's concern."""
