"""Asks a running Kordon's admin pages, for the commands that show them."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kordon.proxy.config.config import HostPort

TIMEOUT_SECONDS: Final = 10.0
ANSWER_BYTES: Final = 16 * 2**20


class StatusUnavailable(Exception):  # noqa: N818  (a state of the world, not a fault of the program)
    """Raised when no Kordon answers at the admin address; the message says what to look at."""


def fetch_object(address: HostPort, path: str) -> dict[str, Any] | None:
    """Gets a page that is a JSON object.

    Returns:
        None when what is there has no such page, or none that can be shown.

    Raises:
        StatusUnavailable: nobody answers there, or somebody who is no Kordon.
    """
    connection = http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        value = json.loads(answer.read(ANSWER_BYTES))
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise StatusUnavailable(
            f"no Kordon answers at {address}: {reason.lower()}; is it running, with --admin {address}?"
        ) from error
    except ValueError as error:
        raise StatusUnavailable(f"what answers at {address} is no Kordon; check --admin") from error
    finally:
        connection.close()
    return value if answer.status == http.HTTPStatus.OK and isinstance(value, dict) else None
