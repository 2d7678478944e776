"""The handlers of one view, by api key."""

from __future__ import annotations

from collections.abc import Iterable

from kordon.proxy.core.verdicts import Route
from kordon.proxy.handlers.api_handler import ApiHandler, HandlerContext


class Handlers:
    """What Kordon does with each Kafka API on the connections of one view; all other requests pass.

    Args:
        shared: What all of them use.
        with_sources: They take the places of others while there are source topics.
    """

    def __init__(
        self, handlers: Iterable[ApiHandler], shared: HandlerContext, with_sources: Iterable[ApiHandler] = ()
    ) -> None:
        each = list(handlers)
        self._without_sources = self.by_key = {handler.key: handler for handler in each}
        assert len(self.by_key) == len(each), "an api has one handler in a view"
        self._with_sources = {**self.by_key, **{handler.key: handler for handler in with_sources}}
        self.shared = shared
        self._always = frozenset[int]()
        shared.topics.sources.watch(self._know_sources)

    def wants(self, route: Route) -> bool:
        """Whether a request may concern a managed topic or a source, or is looked at even while there is none."""
        key = route.api.key
        return (key in self.by_key and bool(self.shared.topics)) or key in self._always

    def _know_sources(self, are_any: bool) -> None:
        """Has requests that may concern source topics looked at while there are any."""
        self.by_key = self._with_sources if are_any else self._without_sources
        found = self.by_key.values()
        self._always = frozenset(each.key for each in found if each.is_always_wanted or are_any & each.concerns_sources)
