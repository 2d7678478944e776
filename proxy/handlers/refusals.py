"""Requests about managed topics that are refused as a whole, with an answer that clients report at once.

Share groups hand records of one partition to many consumers, and streams groups have the broker reckon with physical
partitions: neither can be had of virtual partitions. A member is told so when it names its topics, which it does when
it joins. INVALID_REQUEST is what Java gives to its user together with the answer's message; it replaces the message of
UNSUPPORTED_VERSION by one of its own, according to which the whole cluster knew no such groups.

Whether a client may be told anything, its broker says. So the broker gets the client's own request, spoiled: it looks
at the log-in and at the rights as it does for all, and would then refuse the request for its form. Only where it gets
so far does Kordon's answer take the place of the broker's. Any other answer is the client's, and so is the end of its
connection.

Source: AbstractHeartbeatRequestManager, StreamsGroupHeartbeatRequestManager (Java 4.3); KafkaApis and
GroupCoordinatorService of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.handlers import transactions
from kordon.proxy.handlers.followed import Judge, LateRefusal, Reply
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import listed, to_face

log = client_log(__name__)

_NO_EPOCH: Final = -3
"""An epoch that no member has (-1 and -2 say that one leaves). Brokers refuse it before they look at the group."""


class RefusedMember(LateRefusal):
    """A heartbeat that is refused, of a group of any kind.

    Args:
        value: The request; spoiled.
        code: The answer's error.
        message: What its user is told.
        topics: The managed topics because of which.
        kind: Of the group, for the log.
    """

    def __init__(
        self, value: Any, code: Code, message: str, *, topics: Collection[str] = (), kind: str = "consumer"
    ) -> None:
        super().__init__(topics)
        self._kind = kind
        self._group: str = value.group_id
        fields = {"member_id": value.member_id, "member_epoch": value.member_epoch}
        self._fields = {"error_code": code, "error_message": message, **fields}
        value["member_epoch"] = _NO_EPOCH

    def __call__(self, answer: Any) -> None:
        """Refuses in place of the broker, if that says no more than that the request is spoiled."""
        if answer.error_code != Code.INVALID_REQUEST:
            return
        self.stands = True
        answer.update(self._fields)
        code = Code(self._fields["error_code"]).name
        log.warning("group_refused", group=self._group, kind=self._kind, code=code, topics=listed(self.topics))


def refuse_share_group(value: Any, topics: ManagedTopics) -> Reply | None:
    """Refuses a member of a share group that subscribes to a managed topic; None: it does not."""
    return _refused("share", value, value.subscribed_topic_names or (), topics)


def refuse_streams_group(value: Any, topics: ManagedTopics) -> Reply | None:
    """Refuses a member of a streams group whose topology names a managed topic as a source; None: it names none."""
    parts = value.topology.subtopologies if value.topology is not None else ()
    return _refused("streams", value, (name for part in parts for name in _sources(part)), topics)


def _sources(part: Any) -> Iterable[str]:
    yield from part.source_topics
    yield from (row.name for row in part.repartition_source_topics)


def _refused(kind: str, value: Any, names: Iterable[str], topics: ManagedTopics) -> Reply | None:
    rename = to_face(topics)
    managed = sorted({name for name in names if rename(name) != name})
    if not managed:
        return None
    are = "is a managed topic" if len(managed) == 1 else "are managed topics"
    message = f"{listed(managed)} {are}, whose virtual partitions {kind} groups cannot read: use a consumer group"
    return RefusedMember(value, Code.INVALID_REQUEST, message, topics=managed, kind=kind)


REFUSALS: Final[Mapping[int, Judge]] = {
    apis.ADD_PARTITIONS_TO_TXN: transactions.refuse,
    apis.SHARE_GROUP_HEARTBEAT: refuse_share_group,
    apis.STREAMS_GROUP_HEARTBEAT: refuse_streams_group,
}
"""By api key."""
