"""Hosts and ports, as Kafka and the configuration write them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BeforeValidator

MAX_PORT = 65535
WILDCARD_HOSTS = frozenset({"0.0.0.0", "::"})  # noqa: S104  (only recognised, never bound because of this)


@dataclass(frozen=True, slots=True)
class HostPort:
    """A network address as Kafka writes it: `broker-1:9092`, `10.0.0.7:9092` or `[fe80::1]:9092`."""

    host: str
    """Name or address, an IPv6 one without its brackets."""
    port: int
    """The port, from 1 to 65535."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `host:port`.

        Raises:
            ValueError: The text is no address. The message says what to write instead.
        """
        if "://" in text:
            bare = text.split("://", 1)[1]
            raise ValueError(f"write {bare!r} without the scheme; encryption is set in the tls section")
        host, separator, port_text = text.strip().rpartition(":")
        if not separator:
            raise ValueError(f"the port is missing: write host:port, for example {text.strip() or 'localhost'}:9092")
        return cls(cls._parse_host(host, text), cls._parse_port(port_text))

    @staticmethod
    def _parse_host(host: str, text: str) -> str:
        if host.startswith("[") and host.endswith("]"):
            try:
                return ipaddress.IPv6Address(host[1:-1]).compressed
            except ValueError:
                raise ValueError(f"{host[1:-1]!r} is no IPv6 address") from None
        if ":" in host:
            raise ValueError(f"put an IPv6 address in brackets: [::1]:9092, not {text}")
        if not host:
            raise ValueError(f"the host is missing: write 0.0.0.0{text} for all interfaces")
        _check_host(host)
        return host

    @staticmethod
    def _parse_port(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= MAX_PORT:
            raise ValueError(f"the port must be a number from 1 to {MAX_PORT}, not {text!r}")
        return int(text)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _check_host(host: str) -> None:
    """Refuses what no resolver can take (DNS, RFC 1035 §2.3.4: 253 characters in all)."""
    if len(host) > 253 or any(character.isspace() or character in "/,@[]" for character in host):
        raise ValueError(f"{host!r} is no host name")


def _host(value: object) -> object:
    """A host without a port, as it stands in the answers to clients."""
    if not isinstance(value, str):
        return value
    if value in WILDCARD_HOSTS:
        raise ValueError(f"clients cannot connect to {value}; name the host they reach Kordon by")
    bare = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    if bare.count(":") == 1:
        raise ValueError(f"write the host only: {bare.split(':')[0]}; the ports are those Kordon listens on")
    _check_host(bare)
    return bare


def _address(value: object) -> object:
    return HostPort.parse(value) if isinstance(value, str) else value


def addresses(value: object) -> object:
    """One address, several separated by commas, or a list."""
    if isinstance(value, HostPort):
        return (value,)
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


Address = Annotated[HostPort, BeforeValidator(_address)]
Host = Annotated[str, BeforeValidator(_host)]
