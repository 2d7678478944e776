"""The handlers of one view, by api key."""

from __future__ import annotations

from collections.abc import Iterable

from kordon.proxy.core.verdicts import Route
from kordon.proxy.handlers.api_handler import ApiHandler, HandlerContext


class Handlers:
    """What Kordon does with each Kafka API on the connections of one view; all other requests pass.

    Args:
        shared: What all handlers share.
        with_sources: The handlers that replace others while there are source topics.
        left_out: And these while the proxy leaves out what others do (`leave_out`).
    """

    def __init__(
        self,
        handlers: Iterable[ApiHandler],
        shared: HandlerContext,
        with_sources: Iterable[ApiHandler] = (),
        left_out: Iterable[ApiHandler] = (),
    ) -> None:
        each = list(handlers)
        self._stock = self.by_key = {handler.key: handler for handler in each}
        assert len(self.by_key) == len(each), "an api has one handler in a view"
        self._with_sources = {handler.key: handler for handler in with_sources}
        self._left_out = {handler.key: handler for handler in left_out}
        self.shared = shared
        self._are_sources = self._is_left_out = False
        self._always = frozenset[int]()
        shared.topics.sources.watch(self._know_sources)

    def wants(self, route: Route) -> bool:
        """Whether a request may concern a managed topic or a source, or is looked at even while there is none."""
        key = route.api.key
        return (key in self.by_key and bool(self.shared.topics)) or key in self._always

    def _know_sources(self, are_any: bool) -> None:
        """Has requests that may concern source topics looked at while there are any."""
        self._are_sources = are_any
        self._choose()

    def leave_out(self, is_left_out: bool) -> None:
        """Has requests refused, or not, that other proxies of the cluster serve and this one does not."""
        self._is_left_out = is_left_out
        self._choose()

    def _choose(self) -> None:
        self.by_key = self._stock
        if self._is_left_out:
            self.by_key = {**self.by_key, **self._left_out}
        if self._are_sources:
            self.by_key = {**self.by_key, **self._with_sources}
        self._always = frozenset(
            each.key
            for each in self.by_key.values()
            if each.is_always_wanted or (self._are_sources and each.concerns_sources)
        )
