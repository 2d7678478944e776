r"""Members of KIP-848 groups that subscribe by a regular expression (rule G2).

The coordinator would match it against the brokers' names: managed topics by their own, of which no client knows the id,
and faces. So an expression that concerns managed topics is expanded here, and the broker gets one that matches exactly
what the client's would match among what the client sees, with faces in place of managed topics:

    client      orders.*
    broker      __kordon\.orders|orders-archive

The broker still leaves out what the member may not describe. With later heartbeats, which do not repeat the expression,
the broker gets a new one when other topics match or are managed. What a proxy knows of a member ends with the proxy:
another one leaves the last expansion as it is until the member joins again.

Source: ConsumerGroupHeartbeatRequest.json; TopicRegexResolver (Kafka 4.3), which has RE2/J match whole names.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import re2
import structlog

from kordon.proxy import apis
from kordon.proxy.control.codes import Code
from kordon.proxy.errors import UpstreamUnavailable
from kordon.proxy.managed.links import Links
from kordon.proxy.managed.topics import OWN_PREFIX, ManagedTopics, face_of
from kordon.proxy.tasks import Tasks

_LONGEST: Final = 32_767
"""Characters of a string on the wire."""
_MATCHES_NO_TOPIC: Final = "/"
_MOST_MEMBERS: Final = 10_000
"""Whose expressions are remembered; those that were heard of longest ago are forgotten."""
_GOOD_SECONDS, _PAUSE_SECONDS = 10.0, 1.0
"""How long names are believed, and what is waited after a question that failed."""
_VERSIONS: Final = range(4, 13)
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False

log = structlog.get_logger(__name__)
Names = Callable[[], "frozenset[str] | None"]


def matches(regex: str, name: str) -> bool:
    """Whether an expression matches all of a name, in time that grows with both only; False for a broken one."""
    compiled = _compiled(regex)
    return compiled is not None and compiled.fullmatch(name) is not None


@lru_cache(maxsize=256)
def _compiled(regex: str) -> Any:
    try:
        return re2.compile(regex, _OPTIONS)
    except re2.error:
        return None


@lru_cache(maxsize=256)
def expand(regex: str, names: frozenset[str], managed: frozenset[str]) -> str:
    """Returns the expression that a broker is to match in place of a client's.

    Args:
        regex: The client's, in the syntax of RE2.
        names: Of all topics of the cluster.
        managed: Of the managed ones.
    """
    seen = sorted(name for name in names | managed if not name.startswith(OWN_PREFIX) and matches(regex, name))
    shown = (face_of(name) if name in managed else name for name in seen)
    return "|".join(name.replace(".", r"\.") for name in shown) or _MATCHES_NO_TOPIC


@dataclass(slots=True)
class _Member:
    regex: str
    """The client's."""
    sent: str
    """What the broker has."""


class RegexSubscriptions:
    """Expands the expressions of members, and keeps them current.

    Args:
        names: Returns the names of all topics; None: they are not known yet.
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
        """Puts the expanded expression into a heartbeat where the broker has another one; False: it has it."""
        key = (value.group_id, value.member_id)
        regex = value.get("subscribed_topic_regex")
        if value.member_epoch < 0 or regex == "":
            self._members.pop(key, None)
            return False
        if regex is not None:
            self._remember(key, _Member(regex, regex))
        member = self._members.get(key)
        if member is None:
            return False
        wanted = self._wanted(member, topics)
        if wanted == member.sent:
            return False
        log.info("regex_expanded", group=value.group_id, member=value.member_id, regex=member.regex, sent=wanted)
        value["subscribed_topic_regex"] = member.sent = wanted
        return True

    def _remember(self, key: tuple[str, str], member: _Member) -> None:
        self._members[key] = member
        self._members.move_to_end(key)
        while len(self._members) > _MOST_MEMBERS:
            self._members.popitem(last=False)

    def _wanted(self, member: _Member, topics: ManagedTopics) -> str:
        if not _concerns(member.regex, topics):
            return member.regex
        names = self._names()
        wanted = member.sent if names is None else expand(member.regex, names, _managed(topics))
        return wanted if len(wanted) <= _LONGEST else member.sent


def _concerns(regex: str, topics: ManagedTopics) -> bool:
    return any(matches(regex, topic.name) or matches(regex, face_of(topic.name)) for topic in topics)


def _managed(topics: ManagedTopics) -> frozenset[str]:
    return frozenset(topic.name for topic in topics)


def _answer(value: Any, code: Code, message: str) -> dict[str, Any]:
    fields = {"member_id": value.member_id, "member_epoch": value.member_epoch}
    return {"error_code": code, "error_message": message, **fields}


class TopicNames:
    """The names of all topics of the cluster, read when somebody wants them, and again while somebody does.

    Args:
        links: By which brokers are asked.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self._tasks = Tasks()
        self._names: frozenset[str] | None = None
        self._next = 0.0

    def known(self) -> frozenset[str] | None:
        """Returns the names as they were not long ago; None: they are being read for the first time."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PAUSE_SECONDS
            self._tasks.start(self._ask(), name="read the names of topics")
        return self._names

    async def close(self) -> None:
        """Stops reading."""
        await self._tasks.stop()

    async def _ask(self) -> None:
        fields = {"topics": None, "allow_auto_topic_creation": False}
        try:
            answer = await self._links.ask_any("metadata", apis.METADATA, _VERSIONS, fields)
        except UpstreamUnavailable as error:
            log.warning("topic_names_unknown", error=str(error))
            return
        self._names = frozenset(row.name for row in answer.topics)
        self._next = time.monotonic() + _GOOD_SECONDS
