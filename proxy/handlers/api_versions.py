"""ApiVersions: its answer announces the dialect (KIP-253), and its request says whether the client speaks it.

It also offers InitProducerId with id and epoch in front of brokers that do not have it (`init_producer_id.py`).

Its requests are looked at always. From version 3 on they have tags, one of which is `kordon_client`. A connection whose
client speaks the dialect is served in the physical view from then on, whatever it asks later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kordon.codecs import apis
from kordon.codecs.dialect import VERSION
from kordon.codecs.errors import WireError
from kordon.proxy.core.interception import Announce
from kordon.proxy.handlers.api_handler import ApiHandler, Handled, HeldRequest

_WITH_TAGS: Final = 3
"""The first flexible version of ApiVersions."""


def _lends_nothing() -> bool:
    return False


class ApiVersions(ApiHandler):
    """Announces the dialect on stock connections.

    Args:
        offers_dialect: Whether it is to be announced (`ordering.dialect`).
        lends_epochs: Whether epochs can be lent where the broker cannot check them.
        takes_individual_commits: Whether that is to be announced (`ordering.individual_commits`).
    """

    key = apis.API_VERSIONS
    is_always_wanted = True

    def __init__(
        self,
        *,
        offers_dialect: bool,
        lends_epochs: Callable[[], bool] = _lends_nothing,
        takes_individual_commits: bool = False,
    ) -> None:
        self._offers_dialect = offers_dialect
        self._cooperative = takes_individual_commits
        self._lends_epochs = lends_epochs

    def decide(self, held: HeldRequest) -> Handled:
        """Announces the private api keys, too, to a client that speaks the dialect."""
        announced = Announce(private=False, ordered=False, lends_epochs=self._lends_epochs(), told=held.offer.learn)
        if held.version < _WITH_TAGS:
            return announced
        announced = replace(announced, cooperative=self._cooperative)
        if not self._offers_dialect:
            return announced
        try:
            value = held.read()
        except WireError:
            return announced  # the broker says what is wrong with it
        return replace(announced, ordered=True, private=self._is_private(value.kordon_client))

    def _is_private(self, kordon_client: int) -> bool:
        return kordon_client >= VERSION


class DialectApiVersions(ApiVersions):
    """Announces the dialect on connections that speak it."""

    def _is_private(self, kordon_client: int) -> bool:
        return True
