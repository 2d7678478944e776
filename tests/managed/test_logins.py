"""As whom a client has logged in is on record, once its broker has taken that, and never before."""

from __future__ import annotations

import pytest

from kordon.codecs.messages import request
from kordon.proxy import apis
from kordon.proxy.managed.logins import Login
from kordon.testing.noted import Noted

VERSION = 2
FAILED = 58


class Connection:
    """A client that logs in."""

    def __init__(self) -> None:
        self.journal = Noted().journal
        self.client = self.journal.connected()
        self.login = Login(self.client, self.journal)

    def says(self, auth_bytes: bytes, error_code: int = 0) -> str | None:
        """Says something, and gets an answer; returns as whom it is on record then."""
        body = request(apis.SASL_AUTHENTICATE).build(VERSION, {"auth_bytes": auth_bytes})
        look = self.login.asks(VERSION, memoryview(body))
        if look is not None:
            look({"error_code": error_code, "auth_bytes": b""})
        return self.client.principal


def test_of_plain_the_broker_has_the_last_word() -> None:
    """A wrong password makes nobody anybody."""
    assert Connection().says(b"\0alice\0wrong", FAILED) is None
    assert Connection().says(b"\0alice\0right") == "User:alice"


def test_of_scram_the_name_holds_when_the_proof_is_taken() -> None:
    """It stands in the first message, which proves nothing."""
    client = Connection()
    assert client.says(b"n,,n=al=2Cice,r=nonce") is None
    assert client.says(b"c=biws,r=nonce,p=proof") == "User:al,ice"


def test_a_failed_proof_names_nobody_and_a_second_one_alone_neither() -> None:
    """What was claimed holds for one proof only."""
    client = Connection()
    client.says(b"n,,n=alice,r=nonce")
    assert client.says(b"c=biws,r=nonce,p=proof", FAILED) is None
    assert client.says(b"c=biws,r=nonce,p=proof") is None


@pytest.mark.parametrize("said", [b"", b"n,,\x01auth=Bearer x\x01\x01", b"n,,n=id,r=x,tokenauth=true", b"\x60\x82gss"])
def test_other_mechanisms_name_nobody(said: bytes) -> None:
    """Tokens of OAuth and of Kerberos are not opened, and a delegation token stands for somebody else."""
    client = Connection()
    assert client.says(said) is None
    assert client.says(b"c=biws,r=nonce,p=proof") is None


def test_who_logs_in_again_stays_who_he_is() -> None:
    """A session that goes on (KIP-368) ends no run of decisions."""
    client = Connection()
    client.says(b"\0alice\0right")
    assert client.says(b"\0alice\0right") == "User:alice"


def test_a_message_that_cannot_be_read_is_the_brokers_to_refuse() -> None:
    """It passes."""
    assert Connection().login.asks(VERSION, memoryview(b"\xff")) is None
