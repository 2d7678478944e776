"""What no single value shows: options that contradict each other, and files that are not what they should be.

Each check is a function of the sections it names as parameters; it runs when those are sound. It yields
findings, which the caller places in the file, variable or flag the value came from.
"""

from __future__ import annotations

import inspect
import os
import re
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from kordon.proxy.config.certificates import read_certificates
from kordon.proxy.config.config import (
    NODE_ID_PLACEHOLDER,
    Admin,
    Decisions,
    Limits,
    Listen,
    Ordering,
    Upstream,
    UpstreamSasl,
)
from kordon.proxy.config.config_source import GivenValues, Key, Problem
from kordon.proxy.config.host_port import MAX_PORT, WILDCARD_HOSTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

LOCAL_HOSTS: Final = WILDCARD_HOSTS | {"localhost", "127.0.0.1", "::1"}
_OF_TOKENS: Final = frozenset(
    {"token_url", "client_id", "client_secret_file", "scope", "token_ca", "token_file", "extensions"}
)
"""Options of a log-in that mean something for OAUTHBEARER only."""
EXPIRY_WARNING: Final = timedelta(days=30)
LIKELY_BROKERS: Final = 32
"""Node ids up to here are taken into account when ports are compared with those a broker may get some day."""


class ConfigFinding(NamedTuple):
    """An error of an option, with its fix."""

    key: Key
    what: str
    warning: bool = False
    """True when Kordon can run with it."""


@dataclass(slots=True)
class CheckedConfig:
    """All findings, in the order of the checks."""

    mistakes: list[Problem] = field(default_factory=list[Problem])
    warnings: list[Problem] = field(default_factory=list[Problem])


def run_checks(sections: Mapping[str, object], source: GivenValues) -> CheckedConfig:
    """Runs every check whose sections are there and sound.

    Args:
        sections: The models by the name of their section.
        source: The source, which knows where each value was given.
    """
    outcome = CheckedConfig()
    for check in CHECKS:
        names = inspect.signature(check).parameters
        if not all(name in sections for name in names):
            continue
        for finding in check(*(sections[name] for name in names)):
            problem = Problem(source.place_of(finding.key), finding.key, finding.what)
            (outcome.warnings if finding.warning else outcome.mistakes).append(problem)
    return outcome


def broker_ports(listen: Listen, upstream: Upstream) -> Iterator[ConfigFinding]:
    """Two listeners on one port, as far as node ids are known, and ports beyond the last one."""
    if listen.sni is not None:
        return
    taken = {listen.address.port: "the bootstrap listener"}
    for node_id in sorted({*listen.ports, *upstream.brokers}):
        port = listen.port_of(node_id)
        key: Key = ("listen", "ports", node_id) if node_id in listen.ports else ("listen", "base_port")
        if port > MAX_PORT:
            yield ConfigFinding(
                key, f"puts node {node_id} on port {port}, beyond {MAX_PORT}; give it one in listen.ports"
            )
        elif port in taken:
            yield ConfigFinding(key, f"puts node {node_id} on port {port}, which is that of {taken[port]}")
        taken.setdefault(port, f"node {node_id}")
    if not listen.ports and listen.first_broker_port == listen.address.port:
        yield ConfigFinding(
            ("listen", "base_port"), "is the bootstrap listener's port; leave it out or take the next one"
        )
    if not listen.ports and listen.first_broker_port > MAX_PORT:
        yield ConfigFinding(("listen", "address"), "leaves no ports for brokers after it; set listen.base_port")


def advertised(listen: Listen) -> Iterator[ConfigFinding]:
    """A wildcard address without a name: clients elsewhere cannot use the address that they happened to reach."""
    if listen.address.host in WILDCARD_HOSTS and listen.advertise is None and listen.sni is None:
        what = (
            "is not set, so clients are told the address at which they reached Kordon; in a container, behind NAT or a"
            " load balancer that is one they cannot reach: name the host that they use"
        )
        yield ConfigFinding(("listen", "advertise"), what, warning=True)


def admin_port(listen: Listen, admin: Admin) -> Iterator[ConfigFinding]:
    """The admin address on a port that clients use."""
    if admin.address is None or not _same_interface(admin.address.host, listen.address.host):
        return
    port = admin.address.port
    if port == listen.address.port:
        yield ConfigFinding(("admin", "address"), "is the port of listen.address; choose another one")
    for node_id in [node_id for node_id, taken in listen.ports.items() if taken == port]:
        yield ConfigFinding(("admin", "address"), f"is the port of node {node_id} in listen.ports; choose another one")
    node_id = port - listen.first_broker_port
    if listen.sni is None and 0 <= node_id < LIKELY_BROKERS and node_id not in listen.ports:
        what = f"is the port that a broker with node id {node_id} would get; choose one outside that range"
        yield ConfigFinding(("admin", "address"), what, warning=True)


def _same_interface(one: str, other: str) -> bool:
    return one == other or bool(WILDCARD_HOSTS & {one, other}) or {one, other} <= LOCAL_HOSTS


def bootstrap_is_not_ourselves(upstream: Upstream, listen: Listen) -> Iterator[ConfigFinding]:
    """A bootstrap address on which Kordon itself listens: it would wait for itself forever."""
    own = {listen.address.host, listen.advertise} | (LOCAL_HOSTS if listen.address.host in LOCAL_HOSTS else set())
    for index, address in enumerate(upstream.bootstrap):
        if address.port == listen.address.port and address.host in own:
            yield ConfigFinding(
                ("upstream", "bootstrap", index),
                f"{address} is where Kordon itself listens (listen.address); name a broker, or listen elsewhere",
            )


def sni(listen: Listen) -> Iterator[ConfigFinding]:
    """Names in the handshake need TLS, a place for the node id, and a certificate that covers them."""
    if listen.sni is None:
        return
    if listen.tls is None:
        yield ConfigFinding(("listen", "sni"), "needs listen.tls: the host name is only sent in a TLS handshake")
    if NODE_ID_PLACEHOLDER not in listen.sni.broker:
        what = f"must contain {NODE_ID_PLACEHOLDER}, as in broker-{NODE_ID_PLACEHOLDER}.example.com"
        yield ConfigFinding(("listen", "sni", "broker"), what)
    for name in ("base_port", "ports"):
        if name in listen.model_fields_set and getattr(listen, name):
            yield ConfigFinding(("listen", name), "has no effect with listen.sni; leave one of them out")


def downstream_tls(listen: Listen) -> Iterator[ConfigFinding]:
    """Certificate, key and authorities shown to, or asked of, clients."""
    if listen.tls is None:
        return
    tls, section = listen.tls, ("listen", "tls")
    if tls.client_auth != "none" and tls.client_ca is None:
        what = f"{tls.client_auth} needs client_ca, the authorities that sign clients' certificates"
        yield ConfigFinding((*section, "client_auth"), what)
    if tls.client_auth == "none" and tls.client_ca is not None:
        what = "has no effect with client_auth none; set client_auth: required (or requested)"
        yield ConfigFinding((*section, "client_ca"), what)
    yield from _certificate_and_key(section, tls.certificate, tls.key, listen)
    if tls.client_ca is not None:
        yield from _authorities((*section, "client_ca"), tls.client_ca)


def upstream_tls(upstream: Upstream) -> Iterator[ConfigFinding]:
    """Certificate, key and authorities towards brokers."""
    if upstream.tls is None:
        return
    tls, section = upstream.tls, ("upstream", "tls")
    if tls.certificate is not None and tls.key is not None:
        yield from _certificate_and_key(section, tls.certificate, tls.key)
    elif tls.certificate is not None or tls.key is not None:
        given, missing = ("certificate", "key") if tls.certificate else ("key", "certificate")
        yield ConfigFinding((*section, given), f"needs {missing} beside it")
    if tls.ca is not None:
        yield from _authorities((*section, "ca"), tls.ca)
    if not tls.verify:
        what = "false lets anybody pose as a broker; for tests only"
        yield ConfigFinding((*section, "verify"), what, warning=True)


def sasl(upstream: Upstream) -> Iterator[ConfigFinding]:
    """A log-in without what it needs, and a password or token in the clear."""
    given, section = upstream.sasl, ("upstream", "sasl")
    if given is None:
        return
    if given.mechanism in {"PLAIN", "OAUTHBEARER"} and upstream.tls is None:
        what = "password" if given.mechanism == "PLAIN" else "token"
        what = f"sends the {what} unencrypted without upstream.tls"
        yield ConfigFinding((*section, "mechanism"), what, warning=True)
    if given.mechanism == "OAUTHBEARER":
        yield from _token_source(given, section)
        return
    for name in ("username", "password"):
        if getattr(given, name) is None:
            yield ConfigFinding((*section, "mechanism"), f"{given.mechanism} needs {name} beside it")
    for name in sorted(_OF_TOKENS & given.model_fields_set):
        yield ConfigFinding((*section, name), f"has no effect with {given.mechanism}", warning=True)


def _token_source(given: UpstreamSasl, section: Key) -> Iterator[ConfigFinding]:
    """Where tokens come from: an endpoint with what it asks for, or a file."""
    if (given.token_url is None) == (given.token_file is None):
        what = "needs either token_url or token_file beside it"
        yield ConfigFinding((*section, "mechanism"), what)
    if given.password is not None:
        what = "has no effect with OAUTHBEARER: the client's secret stands in client_secret_file"
        yield ConfigFinding((*section, "password"), what, warning=True)
    if given.token_url is None:
        return
    for name in ("client_id", "client_secret_file"):
        if getattr(given, name) is None:
            yield ConfigFinding((*section, "token_url"), f"needs {name} beside it")
    host = _host_of_address(given.token_url)
    if not host:
        yield ConfigFinding(
            (*section, "token_url"), "must be an address such as https://login.example.com/oauth2/token"
        )
    elif given.token_url.startswith("http:") and host not in LOCAL_HOSTS:
        what = "sends the client's secret unencrypted: use https"
        yield ConfigFinding((*section, "token_url"), what, warning=True)
    if given.client_secret_file is not None and not os.access(given.client_secret_file, os.R_OK):
        yield ConfigFinding((*section, "client_secret_file"), f"{given.client_secret_file} cannot be read")
    if given.token_ca is not None:
        yield from _authorities((*section, "token_ca"), given.token_ca)


def _host_of_address(url: str) -> str | None:
    """Returns the host of an address of the web; None: it is none, or names a user."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        return None
    return parts.hostname if is_good and not re.search(r"[^\x21-\x7e]", url) else None


def limits_fit(limits: Limits) -> Iterator[ConfigFinding]:
    """Limits that another limit makes meaningless."""
    if limits.header_bytes > limits.frame_bytes:
        yield ConfigFinding(("limits", "header_bytes"), f"is more than limits.frame_bytes ({limits.frame_bytes})")
    if limits.connections_per_address > limits.connections:
        what = f"is more than limits.connections ({limits.connections})"
        yield ConfigFinding(("limits", "connections_per_address"), what)


def workers_fit(workers: int) -> Iterator[ConfigFinding]:
    """More workers than processors only take turns."""
    processors = os.cpu_count() or workers
    if workers > processors:
        yield ConfigFinding(("workers",), f"{workers} workers share {processors} processors", warning=True)


def decisions_go_somewhere(decisions: Decisions, ordering: Ordering, workers: int) -> Iterator[ConfigFinding]:
    """A decision log without a folder, without room for each worker's file, or without decisions."""
    folder = decisions.folder
    if decisions.to != "files":
        if folder is not None:
            what = f"has no effect with decisions.to {decisions.to}"
            yield ConfigFinding(("decisions", "folder"), what, warning=True)
    elif folder is None:
        yield ConfigFinding(("decisions", "to"), "files needs decisions.folder: where are they to lie?")
    elif not (folder.is_dir() and os.access(folder, os.W_OK)):
        problem = "cannot be written to" if folder.is_dir() else "is no folder"
        yield ConfigFinding(("decisions", "folder"), f"{folder} {problem}")
    if decisions.to == "files" and decisions.files < 2 * workers:
        what = f"is less than two for each of the {workers} workers, which would remove each other's"
        yield ConfigFinding(("decisions", "files"), what)
    if decisions.to != "none" and not ordering.enabled:
        what = "records nothing with ordering.enabled false: decisions concern managed topics"
        yield ConfigFinding(("decisions", "to"), what, warning=True)


def _certificate_and_key(
    section: Key, certificate: Path, key: Path, listen: Listen | None = None
) -> Iterator[ConfigFinding]:
    files = {(*section, "certificate"): certificate, (*section, "key"): key}
    unreadable = [ConfigFinding(option, problem) for option, file in files.items() if (problem := _unreadable(file))]
    yield from unreadable
    if unreadable:
        return
    try:
        shown = read_certificates(certificate)[0]
    except ValueError as error:
        yield ConfigFinding((*section, "certificate"), f"{certificate} {error}")
        return
    yield from _lifetime((*section, "certificate"), certificate, shown.not_before, shown.not_after)
    yield from _key_matches(section, certificate, key)
    if listen is not None:
        for name in sorted(name for name in _advertised_names(listen) if not shown.covers(name)):
            what = f"{certificate} does not stand for {name}, so clients will refuse it"
            yield ConfigFinding((*section, "certificate"), what, warning=True)


def _advertised_names(listen: Listen) -> set[str]:
    if listen.sni is not None:
        return {listen.sni.bootstrap, listen.sni.broker.replace(NODE_ID_PLACEHOLDER, "0")}
    return {listen.advertise} if listen.advertise else set()


def _key_matches(section: Key, certificate: Path, key: Path) -> Iterator[ConfigFinding]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    asked: list[bool] = []

    def passphrase() -> str:
        asked.append(True)
        return ""

    try:
        context.load_cert_chain(certificate, key, passphrase)
    except ssl.SSLError as error:
        option: Key = (*section, "key")
        if asked:
            yield ConfigFinding(option, f"{key} is encrypted; give a key without a passphrase, readable by Kordon only")
        elif error.reason == "KEY_VALUES_MISMATCH":
            yield ConfigFinding(option, f"{key} does not belong to the certificate {certificate}")
        else:
            yield ConfigFinding(option, f"{key} holds no usable PEM key ({error.reason or error})")


def _authorities(option: Key, file: Path) -> Iterator[ConfigFinding]:
    problem = _unreadable(file)
    if problem:
        yield ConfigFinding(option, problem)
        return
    try:
        certificates = read_certificates(file)
    except ValueError as error:
        yield ConfigFinding(option, f"{file} {error}")
        return
    now = datetime.now(UTC)
    if all(certificate.not_after < now for certificate in certificates):
        last = max(certificate.not_after for certificate in certificates)
        yield ConfigFinding(option, f"{file} expired on {last:%Y-%m-%d}; no certificate that it signed will be trusted")


def _lifetime(option: Key, file: Path, not_before: datetime, not_after: datetime) -> Iterator[ConfigFinding]:
    now = datetime.now(UTC)
    if not_after < now:
        yield ConfigFinding(option, f"{file} expired on {not_after:%Y-%m-%d %H:%M} UTC; put a new one in its place")
    elif not_before > now:
        yield ConfigFinding(option, f"{file} is valid from {not_before:%Y-%m-%d %H:%M} UTC only; is the clock right?")
    elif not_after - now < EXPIRY_WARNING:
        yield ConfigFinding(option, f"{file} expires on {not_after:%Y-%m-%d %H:%M} UTC", warning=True)


def _unreadable(file: Path) -> str | None:
    try:
        with file.open("rb"):
            return None
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}"


CHECKS: Final[tuple[Callable[..., Iterator[ConfigFinding]], ...]] = (
    broker_ports,
    advertised,
    admin_port,
    bootstrap_is_not_ourselves,
    sni,
    downstream_tls,
    upstream_tls,
    sasl,
    limits_fit,
    workers_fit,
    decisions_go_somewhere,
)
"""Every check there is."""
