r"""Expressions by which members of KIP-848 groups subscribe (rule G2).

The coordinator would match it against the brokers' names: managed topics by their own, of which no client knows the id,
and faces. So an expression that concerns managed topics is expanded here, and the broker gets one that matches exactly
what the client's would match among what the client sees, with faces in place of managed topics:

    client      orders.*
    broker      __kordon\.orders|orders-archive

The broker still leaves out what the member may not describe.

Source: ConsumerGroupHeartbeatRequest.json; TopicRegexResolver (Kafka 4.3), which has RE2/J match whole names.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, Final

import re2
import structlog

from kordon.proxy import apis
from kordon.proxy.errors import UpstreamUnavailable
from kordon.proxy.managed.links import Links
from kordon.proxy.managed.topics import OWN_PREFIX, face_of
from kordon.proxy.tasks import Tasks

_MATCHES_NO_TOPIC: Final = "/"
_GOOD_SECONDS, _PAUSE_SECONDS = 10.0, 1.0
"""How long names are believed, and what is waited after a question that failed."""
_VERSIONS: Final = range(4, 13)
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False

log = structlog.get_logger(__name__)


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
