"""ApiVersions: its answer announces the dialect (KIP-253), and its request says whether the client speaks it.

Its requests are looked at always. From version 3 on they have tags, one of which is `kordon_client`. A connection whose
client speaks the dialect is served in the physical view from then on, whatever it asks later.
"""

from __future__ import annotations

from typing import Final

from kordon.codecs import apis
from kordon.codecs.dialect import VERSION
from kordon.codecs.errors import WireError
from kordon.proxy.core.interception import Announce
from kordon.proxy.handlers.api_handler import ApiHandler, Handled, HeldRequest

_WITH_TAGS: Final = 3
"""The first flexible version of ApiVersions."""


class ApiVersions(ApiHandler):
    """Announces the dialect on stock connections.

    Args:
        offers_dialect: Whether it is to be announced (`ordering.dialect`).
    """

    key = apis.API_VERSIONS
    is_always_wanted = True

    def __init__(self, *, offers_dialect: bool) -> None:
        self._offers_dialect = offers_dialect

    def decide(self, held: HeldRequest) -> Handled:
        """Announces the private api keys, too, to a client that speaks the dialect."""
        if not self._offers_dialect or held.version < _WITH_TAGS:
            return None
        try:
            value = held.read()
        except WireError:
            return None  # the broker says what is wrong with it
        return Announce(private=self._is_private(value.kordon_client))

    def _is_private(self, kordon_client: int) -> bool:
        return kordon_client >= VERSION


class DialectApiVersions(ApiVersions):
    """Announces the dialect on connections that speak it."""

    def _is_private(self, kordon_client: int) -> bool:
        return True
