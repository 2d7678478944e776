"""TLS contexts made from the configuration, and what failed in words a person can act on."""

from __future__ import annotations

import ssl
from contextlib import suppress

from kordon.proxy.config.certificates import subject_name
from kordon.proxy.config.config import ListenTls, UpstreamTls

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def downstream_context(config: ListenTls) -> ssl.SSLContext:
    """Makes the context in which clients are met.

    Raises:
        OSError: A file cannot be read or does not hold what it should (`ssl.SSLError` among them).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(config.certificate, config.key)
    if config.client_ca is not None:
        context.load_verify_locations(config.client_ca)
    context.verify_mode = _CLIENT_AUTH[config.client_auth]
    return context


def upstream_context(config: UpstreamTls) -> ssl.SSLContext:
    """Makes the context in which brokers are met; the system's authorities are trusted where no `ca` is given.

    Raises:
        OSError: A file cannot be read or does not hold what it should (`ssl.SSLError` among them).
    """
    context = ssl.create_default_context(cafile=config.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not config.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.certificate is not None:
        context.load_cert_chain(config.certificate, config.key)
    return context


def certified(ssl_object: ssl.SSLObject) -> str | None:
    """Returns whom Kafka takes a client for that has shown a certificate; None: it has shown none with a name."""
    der = ssl_object.getpeercert(binary_form=True)
    with suppress(ValueError):
        return f"User:{name}" if der is not None and (name := subject_name(der)) else None
    return None


def explain(error: BaseException) -> str:
    """Says what went wrong on a connection in one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if reason in {"wrong version number", "http request", "record layer failure", "unexpected message"}:
            return f"the other side does not speak TLS ({reason})"
        return f"TLS: {reason}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
