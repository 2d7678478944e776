"""As whom a client logs in to its broker, as far as its own words say so: for the record only, nothing rests on it.

Log-ins pass as they come. Of PLAIN the name stands in the only message; of SCRAM in the first, and it is the client's
when the broker has taken its proof. Of others nobody is named, nor of a delegation token, which stands for its owner.

Source: RFC 4616 (PLAIN), RFC 5802 (SCRAM), KIP-48 (delegation tokens); messages of SaslAuthenticate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kordon.codecs.errors import WireError
from kordon.codecs.messages import request
from kordon.proxy import apis

if TYPE_CHECKING:
    from kordon.proxy.decisions.journal import AnyJournal, Client

_NO_CHANNEL_BINDING: Final = (b"n,", b"y,")
_PROOF: Final = b"c="
_TOKEN: Final = b"tokenauth=true"
_PLAIN_PARTS: Final = 3


class Login:
    """One connection's log-in, and those by which it goes on (KIP-368).

    Args:
        client: The connection.
        journal: Is told as whom it has logged in.
    """

    def __init__(self, client: Client, journal: AnyJournal) -> None:
        self._client = client
        self._journal = journal
        self._claimed: str | None = None

    def asks(self, version: int, body: memoryview) -> Callable[[Any], None] | None:
        """Returns what is to be given the answer to a SaslAuthenticate; None: it says nothing.

        Args:
            version: Of the request.
            body: Its body.
        """
        try:
            value, _ = request(apis.SASL_AUTHENTICATE).at(version).parse(body)
        except WireError:
            return None  # the broker says what is wrong with it
        said = bytes(value.auth_bytes)
        if not said.startswith(_PROOF):
            self._claimed = plain_name(said)
            if self._claimed is None:
                self._claimed = scram_name(said)
                return None
        name, self._claimed = self._claimed, None
        return (lambda answer: self._answered(name, answer)) if name is not None else None

    def _answered(self, name: str, answer: Any) -> None:
        if not answer["error_code"]:
            self._journal.named(self._client, self._client.client_id, f"User:{name}")


def plain_name(said: bytes) -> str | None:
    r"""Returns the user of a PLAIN message; None: it is none.

    >>> plain_name(b"\0alice\0secret"), plain_name(b"n,,n=alice,r=x")
    ('alice', None)
    """
    parts = said.split(b"\0")
    if len(parts) != _PLAIN_PARTS or not parts[1]:
        return None
    return parts[1].decode(errors="replace")


def scram_name(said: bytes) -> str | None:
    """Returns the user of a client's first message of SCRAM; None: it is none, or names a delegation token.

    >>> scram_name(b"n,,n=al=2Cice=3D,r=nonce"), scram_name(b"n,,n=id,r=nonce,tokenauth=true")
    ('al,ice=', None)
    >>> scram_name(b"n,,auth=Bearer x") is None
    True
    """
    if not said.startswith(_NO_CHANNEL_BINDING):
        return None
    parts = said.split(b",")
    names = [part[2:] for part in parts[2:3] if part.startswith(b"n=")]
    if not names or _TOKEN in parts:
        return None
    return names[0].decode(errors="replace").replace("=2C", ",").replace("=3D", "=")
