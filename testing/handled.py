"""What tests of handlers share: a request as a handler gets it, and handlers behind a connection, without brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kordon.codecs.messages import request
from kordon.proxy.config.config import Limits
from kordon.proxy.core import verdicts
from kordon.proxy.core.tally import Tally
from kordon.proxy.decisions.journal import NO_JOURNAL, Journal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.api_handler import ApiHandler, HandlerContext, HeldRequest
from kordon.proxy.handlers.guard import Guard
from kordon.proxy.handlers.handlers import Handlers
from kordon.proxy.handlers.other_refusals import OtherRefusals
from kordon.proxy.handlers.rights import Rights
from kordon.proxy.handlers.told_clients import ToldClient
from kordon.proxy.runtime.turns import Turns
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.views import PHYSICAL, VIRTUAL, View


def shared(topics: ManagedTopics, journal: Journal = NO_JOURNAL, view: View = VIRTUAL) -> HandlerContext:
    """Returns what handlers use."""
    refusals = OtherRefusals(journal, topics, view)
    return HandlerContext(topics, refusals, Turns(Tally()), Limits().request_rows)


def route_of(api_key: int, version: int) -> verdicts.Route:
    """Returns the row of an api key and version, private ones included."""
    found = verdicts.route(api_key, version) or verdicts.private_route(api_key, version)
    assert found is not None
    return found


def held(topics: ManagedTopics, api_key: int, version: int, fields: Mapping[str, Any]) -> HeldRequest:
    """Returns a request of a client as a handler gets it."""
    body = memoryview(bytearray(request(api_key).build(version, fields)))
    journal = NO_JOURNAL
    told = ToldClient(Client(1), topics, journal)
    return HeldRequest(route_of(api_key, version), body, shared(topics, journal), told)


async def _ready() -> None:
    """Waits for nothing: what is managed is known."""


def guard_of(
    topics: ManagedTopics,
    handlers: Iterable[ApiHandler],
    dialect: Iterable[ApiHandler] = (),
    *,
    rights: Rights | None = None,
    journal: Journal = NO_JOURNAL,
    with_sources: Iterable[ApiHandler] = (),
) -> Guard:
    """Returns what stands before these handlers on one connection; with `rights` the client's are asked about."""
    return Guard(
        Handlers(handlers, shared(topics, journal), with_sources),
        Handlers(dialect, shared(topics, journal, PHYSICAL)),
        _ready,
        rights or Rights(1.0, lambda: 0.0),
        lambda: rights is not None,
        client=journal.connected(),
        journal=journal,
    )
