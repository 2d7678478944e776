"""As whom a client has logged in is on record, once its broker has taken that, and never before."""

import base64
import json
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.bodies import SaslAuthenticateResponse
from kordon.codecs.messages import request
from kordon.proxy.handlers.logins import Login
from kordon.testing.noted import Noted

VERSION = 2
FAILED = 58


class Connection:
    """A client that logs in by a mechanism."""

    def __init__(self, mechanism: str = "", claim: str = "sub") -> None:
        self.journal = Noted().journal
        self.client = self.journal.connected()
        self.login = Login(self.client, self.journal, claim)
        if mechanism:
            self.begins(mechanism)

    def begins(self, mechanism: str) -> None:
        self.login.begins(1, memoryview(request(apis.SASL_HANDSHAKE).build(1, {"mechanism": mechanism})))

    def says(self, auth_bytes: bytes, error_code: int = 0, answered: bytes = b"") -> str | None:
        """Says something, and gets an answer; returns as whom it is on record then."""
        body = request(apis.SASL_AUTHENTICATE).build(VERSION, {"auth_bytes": auth_bytes})
        look = self.login.asks(VERSION, memoryview(body))
        if look is not None:
            look(SaslAuthenticateResponse(error_code=error_code, auth_bytes=answered))
        return self.client.principal


def test_of_plain_the_broker_has_the_last_word() -> None:
    """A wrong password makes nobody anybody."""
    assert Connection("PLAIN").says(b"\0alice\0wrong", FAILED) is None
    assert Connection("PLAIN").says(b"\0alice\0right") == "User:alice"


def test_of_scram_the_name_holds_when_the_proof_is_taken() -> None:
    """It stands in the first message, which proves nothing."""
    client = Connection("SCRAM-SHA-512")
    assert client.says(b"n,,n=al=2Cice,r=nonce") is None
    assert client.says(b"c=biws,r=nonce,p=proof", answered=b"v=x") == "User:al,ice"


def test_of_a_delegation_token_its_id_is_known() -> None:
    """Not its owner: that is told to whoever describes tokens."""
    client = Connection("SCRAM-SHA-256")
    client.says(b"n,,n=t0k,r=nonce,tokenauth=true")
    assert client.says(b"c=biws,r=nonce,p=proof", answered=b"v=x") == "DelegationToken:t0k"


def test_a_failed_proof_names_nobody_and_a_second_one_alone_neither() -> None:
    """What was claimed holds for one proof only, and not beyond another handshake."""
    client = Connection("SCRAM-SHA-512")
    client.says(b"n,,n=alice,r=nonce")
    assert client.says(b"c=biws,r=nonce,p=proof", FAILED) is None
    assert client.says(b"c=biws,r=nonce,p=proof") is None
    client.says(b"n,,n=alice,r=nonce")
    client.begins("SCRAM-SHA-512")
    assert client.says(b"c=biws,r=nonce,p=proof") is None


def bearer(claims: Any, alg: str = "RS256") -> bytes:
    """The message by which a token is brought, as Java's client makes it."""
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in ({"alg": alg}, claims)]
    signature = b"" if alg == "none" else b"c2ln"
    return b"n,,\1auth=Bearer " + b".".join([*parts, signature]) + b"\1extension=value\1\1"


@pytest.mark.parametrize("alg", ["none", "RS256"])
def test_a_bearer_is_whom_the_token_names(alg: str) -> None:
    """Signed or not: the broker judges that."""
    assert Connection("OAUTHBEARER").says(bearer({"sub": "ann", "exp": 1.5}, alg)) == "User:ann"


def test_a_claim_that_brokers_were_told_counts_in_place_of_the_subject() -> None:
    """By sasl.oauthbearer.sub.claim.name."""
    said = bearer({"sub": "4711", "preferred_username": "ann"})
    assert Connection("OAUTHBEARER", "preferred_username").says(said) == "User:ann"


def test_a_token_that_is_refused_names_nobody() -> None:
    """The broker first says why, without an error; that comes with the answer to the client's next word (RFC 7628)."""
    client = Connection("OAUTHBEARER")
    assert client.says(bearer({"sub": "ann"}), answered=b'{"status":"invalid_token"}') is None
    assert client.says(b"\1", FAILED) is None


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"n,,\1auth=Bearer opaque\1\1",
        b"n,,\1auth=Bearer a.b.c\1\1",
        b"n,,\1auth=Bearer e30." + b"W1s" * 100 + b".\1\1",
        bearer(["no", "claims"]),
        bearer({"sub": ""}),
        bearer({"sub": 7}),
        bearer({}),
    ],
)
def test_a_token_that_cannot_be_read_names_nobody(said: bytes) -> None:
    """It may be one that the broker asks somebody else about."""
    assert Connection("OAUTHBEARER").says(said) is None


@pytest.mark.parametrize("mechanism", ["", "GSSAPI", "X-OWN"])
@pytest.mark.parametrize("said", [b"\0alice\0secret", b"\x60\x82gss", b"\x05\x04\x05\xff\0alice\0"])
def test_other_mechanisms_name_nobody(mechanism: str, said: bytes) -> None:
    """Who comes with a Kerberos ticket stands where only the broker can read it; tokens are not taken for others'."""
    client = Connection(mechanism)
    assert client.says(said) is None
    assert client.says(b"c=biws,r=nonce,p=proof") is None


def test_who_logs_in_again_stays_who_he_is() -> None:
    """A session that goes on (KIP-368) ends no run of decisions."""
    client = Connection("PLAIN")
    client.says(b"\0alice\0right")
    client.begins("PLAIN")
    assert client.says(b"\0alice\0right") == "User:alice"


def test_a_message_that_cannot_be_read_is_the_brokers_to_refuse() -> None:
    """It passes."""
    client = Connection("PLAIN")
    assert client.login.asks(VERSION, memoryview(b"\xff")) is None
    client.login.begins(1, memoryview(b"\xff"))
    assert client.says(b"\0alice\0right") == "User:alice"
