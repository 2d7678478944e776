"""Asks a running Kordon for its health; exit code 0 is healthy. With the standard library only: it starts often.

Usage: kordon-healthcheck [/livez | /readyz]

It goes where KORDON_ADMIN__ADDRESS says, which the image sets; whoever moves the admin address does it with that
variable, or sets the variable too. The image asks /livez, because orchestrators restart what is unhealthy, and no
restart of Kordon brings back brokers that are away; /readyz is for those that only wait, or route, by the answer.
"""

from __future__ import annotations

import http.client
import os
import sys

TIMEOUT_SECONDS = 3
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (only recognised, nothing is bound here)


def ask(address: str, path: str) -> tuple[int, str]:
    """The status code and text of an admin page.

    Raises:
        OSError: nobody answers at the address.
        ValueError: the address is not host:port.
    """
    host, _, port = address.rpartition(":")
    bare = host.strip("[]")
    connection = http.client.HTTPConnection(WILDCARDS.get(bare, bare), int(port), timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(4096).decode(errors="replace").strip()
    finally:
        connection.close()


def main(path: str) -> int:
    """Prints what Kordon says of itself; 0 when it is well."""
    address = os.environ.get("KORDON_ADMIN__ADDRESS", "")
    try:
        status, text = ask(address, path)
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"{address or 'KORDON_ADMIN__ADDRESS is not set'}: {error}")  # noqa: T201
        return 1
    print(text)  # noqa: T201
    return 0 if status == http.HTTPStatus.OK else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "/livez"))
