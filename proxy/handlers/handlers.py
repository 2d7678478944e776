"""The handlers of one view, by api key."""

from __future__ import annotations

from collections.abc import Iterable

from kordon.proxy.core.verdicts import Route
from kordon.proxy.handlers.api_handler import ApiHandler, HandlerContext


class Handlers:
    """What Kordon does with each Kafka API on the connections of one view; all other requests pass.

    Args:
        shared: What all of them use.
    """

    def __init__(self, handlers: Iterable[ApiHandler], shared: HandlerContext) -> None:
        each = list(handlers)
        self.by_key = {handler.key: handler for handler in each}
        assert len(self.by_key) == len(each), "an api has one handler in a view"
        self.shared = shared
        self._always = frozenset(handler.key for handler in each if handler.is_always_wanted)

    def wants(self, route: Route) -> bool:
        """Whether a request may concern a managed topic, or what is looked at even while there is none."""
        key = route.api.key
        return (key in self.by_key and bool(self.shared.topics)) or key in self._always
