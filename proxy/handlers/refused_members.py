"""Heartbeats of group members that are refused, with an answer that clients report at once.

A member is told so when it names its topics, which it does when it joins. INVALID_REQUEST is what Java gives to its
user together with the answer's message; it replaces the message of UNSUPPORTED_VERSION by one of its own, according to
which the whole cluster knew no such groups. The broker speaks first (`replies.py`).

Source: AbstractHeartbeatRequestManager, StreamsGroupHeartbeatRequestManager (Java 4.3); KafkaApis and
GroupCoordinatorService of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, TypeAlias

from kordon.codecs.bodies import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from kordon.codecs.error_codes import Code
from kordon.proxy.handlers.replies import Reply
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import listed, to_face

log = client_log(__name__)

_NO_EPOCH: Final = -3
"""An epoch that no member has (-1 and -2 say that one leaves). Brokers refuse it before they look at the group."""


_Asked: TypeAlias = ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest | StreamsGroupHeartbeatRequest
_Told: TypeAlias = ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse | StreamsGroupHeartbeatResponse


class RefusedMember(Reply[_Told]):
    """A heartbeat that is refused, of a group of any kind.

    Args:
        value: The request, which is made invalid.
        topics: The managed topics because of which.
        kind: The kind of the group, for the log.
    """

    changed = True

    def __init__(
        self, value: _Asked, code: Code, message: str, *, topics: Collection[str] = (), kind: str = "consumer"
    ) -> None:
        self.refused = topics
        self._kind = kind
        self._group = value.group_id
        self._code = code
        self._fields = {"error_message": message, "member_id": value.member_id, "member_epoch": value.member_epoch}
        value.member_epoch = _NO_EPOCH

    def __call__(self, answer: _Told) -> None:
        """Refuses in place of the broker, if that says no more than that the request is spoiled."""
        if answer.error_code != Code.INVALID_REQUEST:
            return
        self.stands = True
        answer.update(self._fields, error_code=self._code)
        names = listed(self.refused)
        log.warning("group_refused", group=self._group, kind=self._kind, code=self._code.name, topics=names)


def refuse_group(kind: str, value: _Asked, names: Iterable[str], topics: ManagedTopics) -> RefusedMember | None:
    """Refuses a member of a group that cannot read managed topics.

    Args:
        kind: The kind of the group, as its user knows it.
        value: The heartbeat; spoiled if it is refused.
        names: The names of the topics that the group reads.

    Returns:
        What takes the answer; None: no topic is managed.
    """
    rename = to_face(topics)
    managed = sorted({name for name in names if rename(name) != name})
    if not managed:
        return None
    are = "is a managed topic" if len(managed) == 1 else "are managed topics"
    message = f"{listed(managed)} {are}, whose virtual partitions {kind} groups cannot read: use a consumer group"
    return RefusedMember(value, Code.INVALID_REQUEST, message, topics=managed, kind=kind)
