"""What a certificate file says about itself: until when it holds, and for which names.

The standard library reads certificates only of peers it has shaken hands with, so the files are read here with
asn1crypto, which the SCRAM library brings anyway.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from asn1crypto import x509

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The parts of an X.509 certificate (RFC 5280) that an operator gets wrong."""

    subject: str
    not_before: datetime
    not_after: datetime
    names: frozenset[str]
    """DNS names and IP addresses it stands for (subjectAltName); clients ignore a common name."""

    def covers(self, host: str) -> bool:
        """Whether it stands for a host name or address, wildcards included (RFC 6125 §6.4.3)."""
        _, _, parent = host.lower().partition(".")
        return bool(self.names & {host.lower(), f"*.{parent}"})


def read_certificates(path: Path) -> list[Certificate]:
    """Reads the certificates of a PEM file, in their order; the first one is the one that is shown.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no certificate, or a damaged one.
    """
    blocks = PEM.findall(path.read_text(encoding="utf-8", errors="replace"))
    if not blocks:
        raise ValueError("holds no PEM certificate (-----BEGIN CERTIFICATE-----)")
    return [_parse(block) for block in blocks]


def _parse(block: str) -> Certificate:
    try:
        parsed = cast("Any", x509.Certificate).load(ssl.PEM_cert_to_DER_cert(block), strict=True)
        validity = parsed["tbs_certificate"]["validity"].native
        return Certificate(
            subject=str(parsed.subject.human_friendly),
            not_before=validity["not_before"],
            not_after=validity["not_after"],
            names=frozenset(name.lower() for name in (*parsed.valid_domains, *parsed.valid_ips)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"holds a damaged certificate: {error}") from error
