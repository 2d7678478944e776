"""Asks a running Kordon's admin pages, for the commands that show them."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kordon.proxy.config.host_port import HostPort
    from kordon.proxy.process.explain import Facts

_TIMEOUT_SECONDS: Final = 10.0
_ANSWER_BYTES: Final = 16 * 2**20


class StatusUnavailable(Exception):  # noqa: N818  (a state of the world, not a fault of the program)
    """Raised when no Kordon answers at the admin address; the message says what to look at."""


def fetch_object(address: HostPort, path: str) -> Facts | None:
    """Gets a page that is a JSON object.

    Returns:
        None when what is there has no such page, or none that can be shown.

    Raises:
        StatusUnavailable: nobody answers there, or somebody who is no Kordon.
    """
    status, body = _get(address, path)
    try:
        value = json.loads(body)
    except ValueError as error:
        raise StatusUnavailable(f"the server at {address} is no Kordon; check --admin") from error
    return value if status == http.HTTPStatus.OK and isinstance(value, dict) else None


def fetch_metrics(address: HostPort) -> str:
    """Gets the metrics of a Kordon, as Prometheus' text; empty where it shows none.

    Raises:
        StatusUnavailable: No server answers there.
    """
    status, body = _get(address, "/metrics")
    return body.decode(errors="replace") if status == http.HTTPStatus.OK else ""


def _get(address: HostPort, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(_ANSWER_BYTES)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise StatusUnavailable(
            f"no Kordon answers at {address}: {reason.lower()}; is it running, with --admin {address}?"
        ) from error
    finally:
        connection.close()
