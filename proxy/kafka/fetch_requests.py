"""Each Fetch request of Kordon's own: the proxy's own connections send it from here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import FetchRequest, FetchResponse
from kordon.codecs.errors import WireError
from kordon.codecs.fetched import VERSION, Fetched, parse_fetched
from kordon.codecs.messages import fetch
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.upstream import UpstreamClient

FETCH: Final = apis.FETCH
_READ_COMMITTED: Final = 1
_BY_NAME: Final = range(4, 13)
_BY_NAME_OR_ID: Final = range(4, 14)
"""From 13 on by id."""


async def fetch_logs(
    client: UpstreamClient, asked: bytes, seconds: float | None = None
) -> Mapping[tuple[str, int], Fetched]:
    """Sends a Fetch before anything is waited for, and returns what it brings, without copying a record.

    Args:
        asked: The body, as `build_fetch` makes it.
        seconds: The timeout, as in `UpstreamClient.send`.

    Returns:
        The answer, by topic and partition.

    Raises:
        UpstreamUnavailable: The broker does not answer, or its answer cannot be read.
    """
    version = client.version(FETCH, range(VERSION, VERSION + 1))
    sent = client.send_body(FETCH, version, [asked], seconds)
    try:
        return parse_fetched(await sent).partitions
    except WireError as error:
        raise UpstreamUnavailable(f"reading logs: {error}") from error


async def fetch_committed(client: UpstreamClient, asked: FetchRequest, *, by_id: bool = False) -> FetchResponse:
    """Sends a Fetch, and returns all fields of its answer; aborted transactions are among them.

    Args:
        by_id: Whether the request names topics by their ids, where the broker knows ids.

    Raises:
        UpstreamUnavailable: The broker does not answer, or its answer cannot be read.
    """
    asked.isolation_level = _READ_COMMITTED
    version = client.version(FETCH, _BY_NAME_OR_ID if by_id else _BY_NAME)
    return await client.ask(fetch.API, version, asked)
