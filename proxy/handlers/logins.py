"""As whom a client logs in, as far as its own words or its certificate say so: for the record, and for quotas.

No right rests on it: log-ins pass as they come, and it is the broker that judges them. A name holds once the broker has
taken what proves it:

    PLAIN, SCRAM          User:NAME; it stands in the client's first message
    OAUTHBEARER           User:SUBJECT, of the token, which Kordon does not check; of one that is no JWT it is unknown
    SCRAM with a          DelegationToken:ID; who owns the token is the brokers' to know
    delegation token
    TLS with certificate  User:CN=…, the subject as Kafka's DefaultKafkaPrincipalBuilder has it, until it logs in
    GSSAPI                unknown: who the client is stands in its ticket, for the broker alone to open

Brokers may make other names of these, by ssl.principal.mapping.rules or a principal builder of their own.

Source: RFC 4616 (PLAIN), RFC 5802 (SCRAM), KIP-48 (delegation tokens), RFC 7628 and KIP-255 (OAUTHBEARER), RFC 7519
(JWT); OAuthBearerSaslServer, DefaultKafkaPrincipalBuilder of Kafka 4.3.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kordon.codecs.errors import WireError
from kordon.codecs.messages import sasl_authenticate, sasl_handshake

if TYPE_CHECKING:
    from kordon.codecs.bodies import SaslAuthenticateResponse
    from kordon.proxy.decisions.journal import Journal
    from kordon.proxy.decisions.runs import Client

SUBJECT: Final = "sub"
"""The claim that names a token's user, where brokers are not told another."""
_PLAIN: Final = "PLAIN"
_SCRAM: Final = "SCRAM-"
_OAUTH: Final = "OAUTHBEARER"
_NO_CHANNEL_BINDING: Final = (b"n,", b"y,")
_PROOF: Final = b"c="
_TOKEN: Final = b"tokenauth=true"
_BEARER: Final = b"auth=Bearer "
_PLAIN_PARTS: Final = 3
_JWT_PARTS: Final = 3


class Login:
    """One connection's log-in, and the later ones that renew it (KIP-368).

    Args:
        journal: Is told as whom it has logged in.
        claim: The claim that names the user in an OAUTHBEARER token (sasl.oauthbearer.sub.claim.name).
    """

    def __init__(self, client: Client, journal: Journal, claim: str = SUBJECT) -> None:
        self._client = client
        self._journal = journal
        self._claim = claim
        self._mechanism = ""
        self._claimed: str | None = None

    def begins(self, version: int, body: memoryview) -> None:
        """Notes the mechanism that a SaslHandshake asks for."""
        self._claimed = None
        self._client.user = self._client.user or None  # who continues under the same name (KIP-368) has it meanwhile
        try:
            value, _ = sasl_handshake.REQUEST.at(version).parse(body)
        except WireError:
            return  # the broker says what is wrong with it
        self._mechanism = value.mechanism

    def asks(self, version: int, body: memoryview) -> Callable[[SaslAuthenticateResponse], None] | None:
        """Returns what is to be given the answer to a SaslAuthenticate; None: it says nothing."""
        try:
            value, _ = sasl_authenticate.REQUEST.at(version).parse(body)
        except WireError:
            return None  # the broker says what is wrong with it
        principal = self._said(bytes(value.auth_bytes))
        return (lambda answer: self._answered(principal, answer)) if principal is not None else None

    def _said(self, said: bytes) -> str | None:
        """Returns who the client is if the broker takes what it has said; None: that proves nobody."""
        if self._mechanism == _PLAIN:
            return plain_name(said)
        if self._mechanism == _OAUTH:
            return bearer_name(said, self._claim)
        if not self._mechanism.startswith(_SCRAM):
            return None
        claimed, self._claimed = self._claimed, None
        if said.startswith(_PROOF):
            return claimed
        self._claimed = scram_name(said)
        return None

    def _answered(self, principal: str, answer: SaslAuthenticateResponse) -> None:
        is_refused = self._mechanism == _OAUTH and answer.auth_bytes  # RFC 7628: why not; the error comes next
        if not (answer.error_code or is_refused):
            self._client.user = user_of(principal)
            self._journal.named(self._client, self._client.client_id, principal)


def user_of(principal: str) -> str | None:
    """Returns the user to whom quotas apply, by the name of a log-in. None: only the brokers know it.

    >>> user_of("User:alice"), user_of("DelegationToken:id")
    ('alice', None)
    """
    return principal.removeprefix("User:") if principal.startswith("User:") else None


def plain_name(said: bytes) -> str | None:
    r"""Returns the user of a PLAIN message; None: it is none.

    >>> plain_name(b"\0alice\0secret"), plain_name(b"n,,n=alice,r=x")
    ('User:alice', None)
    """
    parts = said.split(b"\0")
    if len(parts) != _PLAIN_PARTS or not parts[1]:
        return None
    return f"User:{parts[1].decode(errors='replace')}"


def scram_name(said: bytes) -> str | None:
    """Returns the user, or the delegation token, of a client's first message of SCRAM; None: it is none.

    >>> scram_name(b"n,,n=al=2Cice=3D,r=nonce"), scram_name(b"n,,n=id,r=nonce,tokenauth=true")
    ('User:al,ice=', 'DelegationToken:id')
    >>> scram_name(b"n,,auth=Bearer x") is None
    True
    """
    if not said.startswith(_NO_CHANNEL_BINDING):
        return None
    parts = said.split(b",")
    names = [part[2:] for part in parts[2:3] if part.startswith(b"n=")]
    if not names:
        return None
    name = names[0].decode(errors="replace").replace("=2C", ",").replace("=3D", "=")
    return f"{'DelegationToken' if _TOKEN in parts else 'User'}:{name}"


def bearer_name(said: bytes, claim: str = SUBJECT) -> str | None:
    r"""Returns the user that an OAUTHBEARER token names. None: it is no JWT, or names none.

    Signatures are not looked at, and unsecured tokens have none.

    >>> bearer_name(b"n,,\x01auth=Bearer e30.eyJzdWIiOiJhbGljZSJ9.\x01\x01")
    'User:alice'
    >>> bearer_name(b"n,,\x01auth=Bearer x\x01\x01") is None
    True
    """
    pairs = said.split(b"\1")
    token = next((each.removeprefix(_BEARER) for each in pairs if each.startswith(_BEARER)), b"")
    parts = token.strip().split(b".")
    if len(parts) != _JWT_PARTS:
        return None
    payload = parts[1] + b"=" * (-len(parts[1]) % 4)
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload))
    except (ValueError, RecursionError):
        return None
    name = claims.get(claim) if isinstance(claims, dict) else None
    return f"User:{name}" if isinstance(name, str) and name else None
