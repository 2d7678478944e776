"""Why a connection could not be made, in words that say what to look at."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

_NEEDS_LOG_IN: Final = "SASL_"
_HAS_TLS: Final = "SSL"


def trouble(error: BaseException, security_protocol: str, *, was_greeted: bool = False) -> str:
    """Says why a server is of no use.

    Args:
        error: The exception that was raised.
        was_greeted: Whether the server had answered before.
    """
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({error.verify_message}): look at the authorities in ssl_context"
        case ssl.SSLError() | ConnectionResetError() if security_protocol.endswith(_HAS_TLS):
            return f"TLS failed ({error.__class__.__name__}): does it speak TLS at that port? ({error})"
        case SaslAuthenticationFailed() | UnsupportedSaslMechanismError() | IllegalSaslStateError():
            return f"it refuses the log-in ({_words(error)}): look at sasl_mechanism, user name and password"
        case KafkaConnectionError() | ConnectionResetError():
            return f"{_words(error)}{_guess(security_protocol, was_greeted=was_greeted)}"
        case ConnectionRefusedError():
            return "nobody listens there"
        case socket.gaierror():
            return f"there is no such host ({error.strerror})"
        case TimeoutError():
            return "it does not answer in time (request_timeout_ms)"
        case _:
            return _words(error)


def _guess(security_protocol: str, *, was_greeted: bool) -> str:
    """Says what is the likely cause where a server ends a connection without a word."""
    if was_greeted and not security_protocol.startswith(_NEEDS_LOG_IN):
        return f": do clients have to log in there (security_protocol={_NEEDS_LOG_IN}{security_protocol})?"
    if not was_greeted and not security_protocol.endswith(_HAS_TLS):
        wanted = "SASL_SSL" if security_protocol.startswith(_NEEDS_LOG_IN) else "SSL"
        return f": does it want TLS there (security_protocol={wanted})?"
    return ""


def _words(error: BaseException) -> str:
    return str(error.args[0]) if error.args and isinstance(error.args[0], str) else repr(error)
