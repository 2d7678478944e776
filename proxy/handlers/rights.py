"""What a client may do with managed topics, as its broker said a moment ago on the client's own connection.

Kordon writes and reads managed topics over connections of its own, by its own rights. So before it does that for a
client, it asks the client's broker, in the client's name, what the client may do (Metadata with the topics' authorized
operations, KIP-430). The answer holds for `ordering.rights_ms`, counted from the time of asking, and for this
connection only. A busy connection is asked about ahead, so that its requests wait for the first answer only.

That also proves that the client has logged in, and that its session has not expired: otherwise the broker ends the
connection in place of an answer.

Each handler says which right it needs (`right`). What Kordon answers without one needs no right to a topic but the
log-in (`Rights.ask` without names): whatever else it takes is judged by the broker, which gets a part of the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import MetadataResponse
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request
from kordon.proxy.core import verdicts
from kordon.proxy.core.interception import Question
from kordon.proxy.kafka.operations import Operation

_METADATA_VERSION: Final = 9
"""All brokers that can have managed topics speak it; later versions tell topic ids as well."""
_AHEAD: Final = 0.75
"""Part of its age after which an answer is asked for again, while it still holds."""
_FORGET_SECONDS: Final = 60.0
"""Time after which an answer is dropped; whoever waited for it has looked at it long before."""

_LOGGED_IN: Final = ""
"""In place of a topic's name: any answer of the broker proves it."""


@dataclass(frozen=True, slots=True)
class _Told:
    asked_at: float
    code: int
    """NONE, or why the broker says nothing of the topic."""
    operations: int
    """A bit per `Operation`."""


class Rights:
    """What the client of one connection may do.

    Args:
        max_age_seconds: How long an answer holds.
    """

    def __init__(self, max_age_seconds: float, clock: Callable[[], float]) -> None:
        self._max_age = max_age_seconds
        self._clock = clock
        self._told: dict[str, _Told] = {}
        self._asked: dict[str, float] = {}  # what is asked and not told yet, with the time of asking
        self._last: asyncio.Future[None] | None = None  # of the last question
        self._awaited: asyncio.Future[None] | None = None  # of the last question that a request waits for

    def ask(self, names: Iterable[str]) -> tuple[Question | None, asyncio.Future[None] | None]:
        """Says what has to be asked about topics, and what has to be waited for until `of` can be believed.

        A request waits as well where an earlier one does: what clients write must not overtake.

        Args:
            names: The names of topics. None are needed to learn only whether the broker answers this client.
        """
        wanted = set(names) or {_LOGGED_IN}
        missing = {name for name in wanted if self._age(name) > self._max_age}
        unasked = {name for name in wanted if self._age(name) > self._max_age * _AHEAD} - self._asked.keys()
        question = self._question(frozenset(unasked)) if unasked else None
        if missing:
            self._awaited = self._last
        awaited = self._awaited
        return question, awaited if awaited is not None and not awaited.done() else None

    def of(self, name: str, operation: Operation) -> int:
        """Returns NONE where a topic may be used so, else the error code of a broker; `ask` came before."""
        told = self._told.get(name)
        if told is None:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        if told.code:
            return told.code
        return Code.NONE if told.operations >> operation & 1 else Code.TOPIC_AUTHORIZATION_FAILED

    def _age(self, name: str) -> float:
        told = self._told.get(name)
        return self._clock() - told.asked_at if told is not None else float("inf")

    def _question(self, names: frozenset[str]) -> Question:
        now = self._clock()
        fields = {
            "topics": [{"name": name} for name in sorted(names - {_LOGGED_IN})],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        }
        known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last = known
        self._asked |= dict.fromkeys(names | {_LOGGED_IN}, now)

        def told(answer: MetadataResponse) -> None:
            self._told = {name: each for name, each in self._told.items() if self._age(name) <= _FORGET_SECONDS}
            for row in answer.topics:
                self._told[row.name or ""] = _Told(now, row.error_code, row.topic_authorized_operations)
            self._told[_LOGGED_IN] = _Told(now, Code.NONE, 0)
            for name in names | {_LOGGED_IN}:
                self._asked.pop(name, None)
            known.set_result(None)

        route = verdicts.route(apis.METADATA, _METADATA_VERSION)
        assert route is not None, "Metadata is spoken"
        return Question(route, request(apis.METADATA).build(_METADATA_VERSION, fields), told)
