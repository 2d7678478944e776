"""What a certificate says about itself: until when it holds, for which names, and whom Kafka takes its bearer for.

The standard library reads certificates only of peers it has shaken hands with, so the files are read here with
asn1crypto, which the SCRAM library brings anyway. The same reads names as Java does.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from asn1crypto import parser, x509

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Of RFC 2253; other attributes are written as numbers."""
_TEXTS: Final = frozenset({12, 19, 20, 22, 27, 28, 30})
"""ASN.1 tags of strings; other values are written as bytes."""
_ESCAPED: Final = re.compile(r'([,=+<>#;"\\])')


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
        OSError: The file cannot be read.
        ValueError: The file holds no certificate, or a damaged one.
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


def subject_name(der: bytes) -> str:
    """Returns the subject of a certificate as Kafka's brokers name it: as Java's X500Principal.getName() does.

    Args:
        der: The certificate, as TLS carries it.

    Raises:
        ValueError: The text is not a certificate.
    """
    try:
        subject = cast("Any", x509.Certificate).load(der).subject
        return ",".join("+".join(map(_attribute, parts)) for parts in reversed(subject.chosen))
    except (KeyError, TypeError) as error:
        raise ValueError(f"no certificate: {error}") from error


def _attribute(attribute: Any) -> str:
    """Writes one attribute of a name (RFC 2253 §2.3 and §2.4, as sun.security.x509.AVA reads it)."""
    oid, value = attribute["type"].dotted, attribute["value"].dump()
    keyword = _KEYWORDS.get(oid)
    _, _, tag, _, content, _ = cast("Any", parser).parse(value)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or oid}=#{value.hex()}"
    text = _ESCAPED.sub(r"\\\1", content.decode(errors="replace")).replace("\0", "\\00")
    inner = text.strip(" \r")
    lead = len(text) - len(text.lstrip(" \r")) if inner else len(text)
    before, behind = text[:lead], text[lead + len(inner) :]
    return f"{keyword}=" + "".join(f"\\{each}" for each in before) + inner + "".join(f"\\{c}" for c in behind)
