"""A certificate authority for one test run, and what clients, proxy and brokers need of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files; every certificate is signed by `ca`."""

    ca: Path
    server: Path
    """Chain for localhost, 127.0.0.1 and *.kordon.test."""
    server_key: Path
    client: Path
    """Chain of a client with the common name `client`."""
    client_key: Path
    other_ca: Path
    """An authority that signed nothing here."""

    def broker_store(self) -> Path:
        """Key and chain in one file, as Kafka's PEM keystore wants them (KIP-651)."""
        store = self.server.with_name("broker.pem")
        store.write_text(pkcs8(self.server_key) + self.server.read_text())
        return store


def make_certificates(folder: Path) -> Certificates:
    """Makes an authority and certificates in a folder."""
    authority = trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1", "*.kordon.test", key_type=trustme.KeyType.RSA)
    client = authority.issue_cert("client@kordon.test", common_name="client", key_type=trustme.KeyType.RSA)
    files = Certificates(
        folder / "ca.pem", folder / "server.pem", folder / "server.key", folder / "client.pem", folder / "client.key",
        folder / "other-ca.pem",
    )  # fmt: skip
    authority.cert_pem.write_to_path(files.ca)
    trustme.CA().cert_pem.write_to_path(files.other_ca)
    for cert, chain, key in ((server, files.server, files.server_key), (client, files.client, files.client_key)):
        cert.private_key_pem.write_to_path(key)
        chain.write_bytes(b"".join(blob.bytes() for blob in cert.cert_chain_pems))
    return files


def pkcs8(key: Path) -> str:
    """Returns a private key in the only form that Kafka's PEM stores take."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - slow to import, seldom needed

    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    return loaded.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
