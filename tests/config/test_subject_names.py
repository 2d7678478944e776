"""Subjects of clients' certificates are written as Kafka's brokers write them.

What is expected here was said by Java 17, X500Principal.getName(), of the same names.
"""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import NameAttribute, RelativeDistinguishedName
from cryptography.x509.oid import NameOID

from kordon.proxy.config.certificates import subject_name
from kordon.proxy.config.config import ListenTls
from kordon.proxy.runtime.tls import certified, downstream_context
from kordon.testing.certificates import make_certificates

CN, UID = NameOID.COMMON_NAME, NameOID.USER_ID


def certificate(*parts: list[tuple[x509.ObjectIdentifier, str]]) -> bytes:
    """Makes a certificate with a subject, as TLS carries it."""
    subject = x509.Name(RelativeDistinguishedName(NameAttribute(*each) for each in part) for part in parts)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    made = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now, now + timedelta(1))
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (
            [
                [(NameOID.COUNTRY_NAME, "DE")],
                [(NameOID.STATE_OR_PROVINCE_NAME, "Berlin")],
                [(NameOID.ORGANIZATION_NAME, "Acme, Inc.")],
                [(NameOID.ORGANIZATIONAL_UNIT_NAME, "R+D")],
                [(CN, "alice")],
            ],
            r"CN=alice,OU=R\+D,O=Acme\, Inc.,ST=Berlin,C=DE",
        ),
        ([[(CN, ' #a"b\\c;<d>=e ')]], r"CN=\ \#a\"b\\c\;\<d\>\=e\ "),
        (
            [[(NameOID.DOMAIN_COMPONENT, "com")], [(UID, "u1"), (CN, "bob")], [(NameOID.EMAIL_ADDRESS, "b@x.org")]],
            "1.2.840.113549.1.9.1=#16076240782e6f7267,CN=bob+UID=u1,DC=com",
        ),
        (
            [
                [(NameOID.SURNAME, "Müller")],
                [(CN, "Ärger 日")],
                [(NameOID.LOCALITY_NAME, "L")],
                [(NameOID.STREET_ADDRESS, "S 1")],
                [(NameOID.SERIAL_NUMBER, "12")],
            ],
            "2.5.4.5=#13023132,STREET=S 1,L=L,CN=Ärger 日,2.5.4.4=#0c074dc3bc6c6c6572",
        ),
        ([], ""),
    ],
)
def test_names_are_javas(parts: list[list[tuple[x509.ObjectIdentifier, str]]], name: str) -> None:
    """The last part comes first, what would be taken for syntax is escaped, what has no keyword is a number."""
    assert subject_name(certificate(*parts)) == name


def test_what_is_no_certificate_is_an_error() -> None:
    """Not a name."""
    with pytest.raises(ValueError, match=r"."):
        subject_name(b"\x30\x03\x02\x01\x01")


@pytest.mark.parametrize(
    ("client_auth", "shows"), [("none", True), ("requested", True), ("requested", False), ("required", True)]
)
def test_a_client_is_whom_its_certificate_names(tmp_path: Path, client_auth: str, *, shows: bool) -> None:
    """As far as it is asked for one, and shows one."""
    files = make_certificates(tmp_path)
    tls = {"client_ca": files.ca} if client_auth != "none" else {}
    config = {"certificate": files.server, "key": files.server_key, "client_auth": client_auth, **tls}
    server_context = downstream_context(ListenTls.model_validate(config))
    client_context = ssl.create_default_context(cafile=str(files.ca))
    if shows:
        client_context.load_cert_chain(files.client, files.client_key)
    known = certified(shaken_hands(server_context, client_context))
    assert (known or "").startswith("User:CN=client,") is (shows and client_auth != "none")


def shaken_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Has two sides greet each other in memory; returns the server's."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(there, back, server_side=True), client.wrap_bio(back, there, server_hostname="localhost")]
    left = set(ends)
    while left:
        for end in list(left):
            try:
                end.do_handshake()
                left.discard(end)
            except ssl.SSLWantReadError:
                pass
    return ends[0]
