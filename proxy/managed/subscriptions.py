"""What members of KIP-848 groups subscribe to, as the coordinator is told it (rule G2).

The coordinator knows managed topics by their faces. Members name topics as clients know them, and do so once: their
later heartbeats do not repeat it. But a topic can be managed, let go, or deleted and made again as one of the other
kind; other topics can come to match an expression. So what each member has said is remembered, and said again for it
with its next heartbeat when it means something else to the coordinator than before.

What a proxy knows of a member ends with the proxy. A member whose proxy goes says everything again, unless it learns of
that between two heartbeats; then the next proxy leaves its subscription as it is, but for topics that are being taken
over, whose members the controller has asked for (rule A2). So it is with clients older than Kafka 4.0, which get their
ids from the coordinator.

Source: ConsumerGroupHeartbeatRequest.json (Kafka 4.3); ConsumerHeartbeatRequestManager (Java).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kordon.proxy.control.codes import Code
from kordon.proxy.log_limits import client_log
from kordon.proxy.managed.names import to_face
from kordon.proxy.managed.regexes import expand, matches
from kordon.proxy.managed.topics import ManagedTopics, face_of

_LONGEST: Final = 32_767
"""Characters of a string on the wire."""
_MOST_MEMBERS: Final = 10_000
"""Who are remembered; those that joined longest ago are forgotten."""

Names: TypeAlias = Callable[[], "frozenset[str] | None"]
log = client_log(__name__)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member subscribes to; None: nothing was said of that."""

    names: tuple[str, ...] | None = None
    regex: str | None = None

    @classmethod
    def of(cls, value: Any) -> Subscription:
        """Reads a heartbeat."""
        names = value.subscribed_topic_names
        return cls(None if names is None else tuple(names), value.get("subscribed_topic_regex"))

    def after(self, before: Subscription) -> Subscription:
        """Returns what holds now; what a heartbeat does not say is as it was."""
        return Subscription(
            before.names if self.names is None else self.names, before.regex if self.regex is None else self.regex
        )


@dataclass(frozen=True, slots=True)
class _Member:
    said: Subscription
    """In the client's words."""
    sent: Subscription
    """What the coordinator has."""


_NOTHING: Final = Subscription()
_UNKNOWN: Final = _Member(_NOTHING, _NOTHING)


class Subscriptions:
    """Tells coordinators what members subscribe to, and keeps that current.

    Args:
        names: Returns the names of all topics of the cluster; None: they are not known yet.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._members: OrderedDict[tuple[str, str], _Member] = OrderedDict()

    def refusal(self, value: Any, topics: ManagedTopics) -> dict[str, Any] | None:
        """Has a member come again when names are known, or says why its expression cannot be had; None: it can.

        Args:
            value: A ConsumerGroupHeartbeat.
            topics: What is managed.
        """
        regex = value.get("subscribed_topic_regex")
        if not regex or not _concerns(regex, topics):
            return None
        names = self._names()
        if names is None:
            return _answer(value, Code.COORDINATOR_LOAD_IN_PROGRESS, "the names of topics are being read")
        if len(expand(regex, names, _managed(topics))) > _LONGEST:
            reason = "matches managed topics among so many others that their names do not fit into a request"
            return _answer(value, Code.INVALID_REGULAR_EXPRESSION, f"{regex} {reason}: subscribe by names")
        return None

    def translate(self, value: Any, topics: ManagedTopics) -> bool:
        """Puts faces and expanded expressions into a heartbeat where the coordinator is to learn them.

        Args:
            value: A ConsumerGroupHeartbeat; changed in place.
            topics: What is managed.

        Returns:
            Whether something was changed.
        """
        key, now = (value.group_id, value.member_id), Subscription.of(value)
        if value.member_epoch < 0:
            self._members.pop(key, None)
            return False
        before = _corrected(self._members.get(key, _UNKNOWN), value, topics)
        said, has = now.after(before.said), now.after(before.sent)
        wanted = self._meant(said, has, topics)
        if value.member_id and said != _NOTHING:
            self._remember(key, _Member(said, wanted), joins=now != _NOTHING)
        return _put(value, wanted, has)

    def _remember(self, key: tuple[str, str], member: _Member, *, joins: bool) -> None:
        self._members[key] = member
        if joins:
            self._members.move_to_end(key)
        while len(self._members) > _MOST_MEMBERS:
            self._members.popitem(last=False)

    def _meant(self, said: Subscription, has: Subscription, topics: ManagedTopics) -> Subscription:
        names = None if said.names is None else tuple(map(to_face(topics), said.names))
        return Subscription(names, said.regex and self._expanded(said.regex, has.regex or said.regex, topics))

    def _expanded(self, regex: str, before: str, topics: ManagedTopics) -> str:
        if not _concerns(regex, topics):
            return regex
        names = self._names()
        wanted = before if names is None else expand(regex, names, _managed(topics))
        return wanted if len(wanted) <= _LONGEST else before


def _put(value: Any, wanted: Subscription, has: Subscription) -> bool:
    """Says in a heartbeat what is wanted, where the coordinator would have something else by it."""
    is_silent = Subscription.of(value) == _NOTHING
    says_names = wanted.names not in (None, has.names)
    says_regex = wanted.regex not in (None, has.regex)
    if says_names:
        value["subscribed_topic_names"] = list(wanted.names or ())
    if says_regex:
        value["subscribed_topic_regex"] = wanted.regex
    if is_silent and (says_names or says_regex):
        log.info(
            "subscription_renewed", group=value.group_id, member=value.member_id, names=wanted.names, regex=wanted.regex
        )
    return says_names or says_regex


def _corrected(known: _Member, value: Any, topics: ManagedTopics) -> _Member:
    """Takes what the controller has seen coordinators have, of members whose topic is being taken over (rule A2)."""
    for topic in topics if value.member_epoch > 0 else ():
        for each in topic.takeover.subscribers if topic.takeover is not None else ():
            if (each.group, each.member) == (value.group_id, value.member_id):
                has = Subscription(each.names, each.regex if "subscribed_topic_regex" in value else None)
                return _Member(has if known is _UNKNOWN else known.said, has)
    return known


def _concerns(regex: str, topics: ManagedTopics) -> bool:
    return any(matches(regex, topic.name) or matches(regex, face_of(topic.name)) for topic in topics)


def _managed(topics: ManagedTopics) -> frozenset[str]:
    return frozenset(topic.name for topic in topics)


def _answer(value: Any, code: Code, message: str) -> dict[str, Any]:
    fields = {"member_id": value.member_id, "member_epoch": value.member_epoch}
    return {"error_code": code, "error_message": message, **fields}
