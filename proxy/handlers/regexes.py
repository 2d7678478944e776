r"""Expressions by which members of KIP-848 groups subscribe (FACE-NAMES).

The coordinator would match it against the brokers' names: managed topics by their own, of which no client knows the id,
faces, and what else is Kordon's own. So an expression that may match any of these is expanded here, and the broker
gets one that matches exactly what the client's would match among what the client sees, with faces in place of managed
topics:

    client      orders.*
    broker      __kordon\.orders|orders-archive|/(?:orders.*)

The broker still leaves out what the member may not describe. But it tells the expression to whoever may describe the
group, who may not know all the names in it. So the client's own expression goes with it, behind what no name of a topic
has, and is what Kordon shows of it, be it the same proxy or another.

Source: ConsumerGroupHeartbeatRequest.json; TopicRegexResolver (Kafka 4.3), which has RE2/J match whole names.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

import structlog

from kordon.codecs.bodies import MetadataRequest
from kordon.codecs.messages import metadata
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.expressions import matching
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import OWN_PREFIX, face_of

_CLIENTS_BEGIN, _CLIENTS_END = "/(?:", ")"
"""Round the client's own expression, which so matches no topic: "/" stands in no name."""
_GOOD_SECONDS, _PAUSE_SECONDS = 10.0, 1.0
"""How long names are believed, and what is waited after a question that failed."""
_VERSIONS: Final = range(4, 13)
_NAMES: Final = re.compile(r"(?:(?:[\w-]|\\\.)+\|)*", re.ASCII)
"""What stands in front of the client's."""
_SHARE: Final = 0.1
"""Of each second, the processor time for all expressions of a worker's clients."""

log = structlog.get_logger(__name__)


@lru_cache(maxsize=256)
def expand(regex: str, names: frozenset[str], managed: frozenset[str]) -> str | None:
    """Returns the expression that a broker is to match in place of a client's; None: it would take too long to say.

    Args:
        regex: The client's, in the syntax of RE2.
        names: The names of all topics of the cluster.
    """
    seen = matching(regex, (name for name in names | managed if not name.startswith(OWN_PREFIX)))
    if seen is None:
        return None
    shown = (face_of(name) if name in managed else name for name in sorted(seen))
    return "|".join([*(name.replace(".", r"\.") for name in shown), f"{_CLIENTS_BEGIN}{regex}{_CLIENTS_END}"])


def said_by_client(regex: str) -> str:
    r"""Returns a client's own expression where a broker has an expanded one, else the broker's.

    >>> said_by_client(r"__kordon\.orders|/(?:orders.*)"), said_by_client("orders.*")
    ('orders.*', 'orders.*')
    """
    names, begin, rest = regex.partition(_CLIENTS_BEGIN)
    is_expanded = begin and rest.endswith(_CLIENTS_END) and _NAMES.fullmatch(names) is not None
    return rest.removesuffix(_CLIENTS_END) if is_expanded else regex


class Patience:
    """How much processor time is left for expressions, however many clients send."""

    def __init__(self) -> None:
        self._left = _SHARE
        self._at = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the next expression has to wait."""
        now = time.monotonic()
        self._left, self._at = min(_SHARE, self._left + _SHARE * (now - self._at)), now
        return self._left <= 0

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Takes what its block takes."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._left -= time.thread_time() - began


class TopicNames:
    """The names of all topics of the cluster, read when somebody wants them, and again while somebody does."""

    def __init__(self, links: BrokerConnections) -> None:
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
        asked = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        try:
            answer = await self._links.ask_any("metadata", metadata.API, _VERSIONS, asked)
        except UpstreamUnavailable as error:
            log.warning("topic_names_unknown", error=str(error))
            return
        self._names = frozenset(row.name for row in answer.topics if row.name is not None)
        self._next = time.monotonic() + _GOOD_SECONDS
