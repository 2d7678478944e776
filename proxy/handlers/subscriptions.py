"""What members of KIP-848 groups and share groups subscribe to, as the coordinator is told it (FACE-NAMES).

The coordinator knows managed topics by their faces. Members name topics as clients know them, and do so once: their
later heartbeats do not repeat it. But a topic can be managed, let go, or deleted and made again as one of the other
kind; other topics can come to match an expression. So what each member has said is remembered, and said again for it
with its next heartbeat when it means something else to the coordinator than before.

What a proxy knows of a member ends with the proxy. A member whose proxy goes says everything again, unless it learns of
that between two heartbeats; then the next proxy leaves its subscription as it is, but for topics that are being taken
over, whose members the controller has asked for (TAKEOVER-WAITS).

Only what a coordinator has taken is remembered: whoever may not join the group has nothing remembered here, and makes
nobody forgotten. What is remembered is bounded in bytes.

Source: ConsumerGroupHeartbeatRequest.json (Kafka 4.3); ConsumerHeartbeatRequestManager (Java).
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from kordon.codecs.bodies import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kordon.codecs.error_codes import Code
from kordon.proxy.handlers.refused_members import RefusedMember
from kordon.proxy.handlers.regexes import Patience, expand, said_by_client
from kordon.proxy.handlers.replies import Reply
from kordon.proxy.kafka.expressions import matching, may_match
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import OWN_PREFIX, ManagedTopics
from kordon.proxy.topics.names import cut, to_face

_LONGEST: Final = 32_767
"""Characters of a string on the wire."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""What is remembered of all members; those that joined longest ago are forgotten."""
MOST_BYTES_OF_ONE: Final = 1024 * 1024
"""What is remembered of one member: some thousand names. One that says more is not remembered."""
_OVERHEAD_BYTES: Final = 512
"""What a member takes beside its words."""

Request: TypeAlias = ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest
"""Members of share groups name topics, and have no expressions."""
Response: TypeAlias = ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse
Names: TypeAlias = Callable[[], "frozenset[str] | None"]
log = client_log(__name__)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member subscribes to; None: nothing was said of that."""

    names: tuple[str, ...] | None = None
    regex: str | None = None

    @classmethod
    def of(cls, value: Request) -> Subscription:
        """Reads a heartbeat."""
        names = value.subscribed_topic_names
        return cls(None if names is None else tuple(names), value.get("subscribed_topic_regex", None))

    def after(self, before: Subscription) -> Subscription:
        """Returns what holds now; what a heartbeat does not say is as it was."""
        return Subscription(
            before.names if self.names is None else self.names, before.regex if self.regex is None else self.regex
        )

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        names = self.names or ()
        return sys.getsizeof(names) + sum(map(sys.getsizeof, names)) + sys.getsizeof(self.regex)


class SubscriberKey(NamedTuple):
    """Which member it is."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class _Member:
    said: Subscription
    """In the client's words."""
    sent: Subscription
    """What the coordinator has."""

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        return self.said.bytes + self.sent.bytes


_NOTHING: Final = Subscription()
_UNKNOWN: Final = _Member(_NOTHING, _NOTHING)


class Subscriptions:
    """Sends coordinators the subscriptions of members, and keeps them current.

    Args:
        names: Returns the names of all topics of the cluster; None: they are not known yet.
        most_bytes: The most bytes that all remembered subscriptions may take.
    """

    def __init__(self, names: Names, most_bytes: int = MOST_BYTES) -> None:
        self.remembered_bytes = 0
        """What all that is remembered takes."""
        self.forgotten = 0
        """Members whose subscriptions were forgotten, or not kept, for lack of room; only rises."""
        self._names = names
        self._patience = Patience()
        self._most_bytes = most_bytes
        self._members: OrderedDict[SubscriberKey, _Member] = OrderedDict()

    def look(self, value: Request, topics: ManagedTopics) -> Reply[Response] | None:
        """Puts faces and expanded expressions into a heartbeat where the coordinator is to learn them.

        Args:
            value: A heartbeat; changed in place.

        Returns:
            What is given the answer; None: there is nothing to learn of it.
        """
        key = SubscriberKey(value.group_id, value.member_id)
        if value.member_epoch < 0:
            return _Left(self, key) if key in self._members else None
        regex = value.get("subscribed_topic_regex", None)
        refusal = self._judged(regex, value, topics) if regex else None
        return refusal or self._translated(key, value, topics)

    def remember(self, key: SubscriberKey, member: _Member, *, joins: bool) -> None:
        """Keeps what a coordinator has accepted; members that joined longest ago make room."""
        before = self._members.get(key)
        if _bytes_of(key, member) > MOST_BYTES_OF_ONE:
            self._make_room(key)
            return
        self.remembered_bytes += _bytes_of(key, member) - (_bytes_of(key, before) if before is not None else 0)
        self._members[key] = member
        if joins:
            self._members.move_to_end(key)
        while self.remembered_bytes > self._most_bytes:
            self._make_room(next(iter(self._members)))

    def forget(self, key: SubscriberKey) -> None:
        """Drops what is known of a member."""
        known = self._members.pop(key, None)
        self.remembered_bytes -= _bytes_of(key, known) if known is not None else 0

    def _make_room(self, key: SubscriberKey) -> None:
        self.forget(key)
        self.forgotten += 1

    def _judged(self, regex: str, value: Request, topics: ManagedTopics) -> Reply[Response] | None:
        """Looks at an expression as long as there is time for that; see `_refused`."""
        if self._patience.is_over:
            return RefusedMember(value, Code.COORDINATOR_LOAD_IN_PROGRESS, "other expressions are being checked")
        with self._patience.spent():
            return self._refused(regex, value, topics) if _concerns(regex, topics) else None

    def _refused(self, regex: str, value: Request, topics: ManagedTopics) -> Reply[Response] | None:
        """Has a member come again when names are known, or says why its expression cannot be had; None: it can."""
        names = self._names()
        if names is None:
            return RefusedMember(value, Code.COORDINATOR_LOAD_IN_PROGRESS, "the names of topics are being read")
        expanded = expand(regex, names, _managed(topics))
        if expanded is None or len(expanded) > _LONGEST:
            reason = "takes too long to match against all topics"
            if expanded is not None:
                reason = "matches so many topics that their names do not fit into a request"
            return RefusedMember(value, Code.INVALID_REGULAR_EXPRESSION, f"{cut(regex)} {reason}: subscribe by names")
        return None

    def _translated(self, key: SubscriberKey, value: Request, topics: ManagedTopics) -> Reply[Response] | None:
        now = Subscription.of(value)
        before = _corrected(self._members.get(key, _UNKNOWN), value, topics)
        said, has = now.after(before.said), now.after(before.sent)
        wanted = self._meant(said, has, topics)
        changed = _put(value, wanted, has)
        if not changed and now == _NOTHING:
            return None
        return _Taken(self, key, _Member(said, wanted), changed=changed, joins=now != _NOTHING)

    def _meant(self, said: Subscription, has: Subscription, topics: ManagedTopics) -> Subscription:
        names = None if said.names is None else tuple(map(to_face(topics), said.names))
        return Subscription(names, said.regex and self._expanded(said.regex, has.regex or said.regex, topics))

    def _expanded(self, regex: str, before: str, topics: ManagedTopics) -> str:
        if not _concerns(regex, topics):
            return regex
        names = self._names()
        wanted = None if names is None else expand(regex, names, _managed(topics))
        return wanted if wanted is not None and len(wanted) <= _LONGEST else before


@dataclass(frozen=True)
class _Taken(Reply[Response]):
    """Remembers what a member subscribes to once its coordinator has accepted it."""

    subscriptions: Subscriptions
    key: SubscriberKey
    """As the heartbeat says it; a client older than Kafka 4.0 gets its member id with the answer."""
    member: _Member
    changed: bool
    joins: bool
    """Whether the member has said something, so that Kordon does not say it again by itself."""

    def __call__(self, answer: Response) -> None:
        member_id = self.key.member_id or answer.member_id
        if answer.error_code or not member_id:
            return
        key = self.key._replace(member_id=member_id)
        self.subscriptions.remember(key, self.member, joins=self.joins)
        if not self.joins:
            log.info("subscription_renewed", group=key.group_id, member=member_id, names=_count(self.member.sent))


@dataclass(frozen=True)
class _Left(Reply[Response]):
    """Forgets a member once its coordinator has let it go."""

    subscriptions: Subscriptions
    key: SubscriberKey
    changed: bool = False

    def __call__(self, answer: Response) -> None:
        if not answer.error_code:
            self.subscriptions.forget(self.key)


def _count(sent: Subscription) -> int:
    return len(sent.names or ())


def _bytes_of(key: SubscriberKey, member: _Member) -> int:
    return sum(map(sys.getsizeof, key)) + member.bytes + _OVERHEAD_BYTES


def _put(value: Request, wanted: Subscription, has: Subscription) -> bool:
    """Says in a heartbeat what is wanted, where the coordinator would have something else by it."""
    says_names = wanted.names not in (None, has.names)
    says_regex = wanted.regex not in (None, has.regex)
    if says_names:
        value["subscribed_topic_names"] = list(wanted.names or ())
    if says_regex:
        value["subscribed_topic_regex"] = wanted.regex
    return says_names or says_regex


def _corrected(known: _Member, value: Request, topics: ManagedTopics) -> _Member:
    """Takes what the controller has seen coordinators have, of members whose topic is taken over (TAKEOVER-WAITS)."""
    for topic in topics if value.member_epoch > 0 else ():
        for each in topic.takeover.subscribers if topic.takeover is not None else ():
            if (each.group, each.member) == (value.group_id, value.member_id):
                has = Subscription(each.names, each.regex if "subscribed_topic_regex" in value else None)
                said = replace(has, regex=said_by_client(has.regex) if has.regex else None)
                return _Member(said if known is _UNKNOWN else known.said, has)
    return known


def _concerns(regex: str, topics: ManagedTopics) -> bool:
    return may_match(regex, OWN_PREFIX) or matching(regex, (topic.name for topic in topics)) != frozenset()


def _managed(topics: ManagedTopics) -> frozenset[str]:
    return frozenset(topic.name for topic in topics)
