"""Why a connection ended: one cause each, the same word in the log, the metric's label and the decision record."""

from __future__ import annotations

from enum import Enum


class CloseCause(Enum):
    """One of these ends every connection; the value is the label of `kordon_connections_closed_total`."""

    CLIENT_CLOSED = "client_closed"
    BROKER_CLOSED = "broker_closed"
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    UPSTREAM_TLS_FAILED = "upstream_tls_failed"
    DOWNSTREAM_TLS_FAILED = "downstream_tls_failed"
    NOT_KAFKA = "not_kafka"
    FRAME_TOO_LARGE = "frame_too_large"
    HEADER_TOO_LARGE = "header_too_large"
    REQUEST_TOO_LARGE = "request_too_large"
    TOO_MANY_ROWS = "too_many_rows"
    UNPROVEN = "unproven"
    MALFORMED_REQUEST = "malformed_request"
    MALFORMED_RESPONSE = "malformed_response"
    UNSUPPORTED_REQUEST = "unsupported_request"
    IDLE = "idle"
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    REQUEST_TIMEOUT = "request_timeout"
    CONNECTION_LIMIT = "connection_limit"
    ADDRESS_LIMIT = "address_limit"
    MEMORY_LIMIT = "memory_limit"
    BROKER_REMOVED = "broker_removed"
    DRAINED = "drained"
    TAKEN_OVER = "taken_over"
    SLEPT = "slept"
    WRITE_FAILED = "write_failed"
    NETWORK_ERROR = "network_error"
    INTERNAL_ERROR = "internal_error"


ORDINARY = frozenset(
    {
        CloseCause.CLIENT_CLOSED,
        CloseCause.BROKER_CLOSED,
        CloseCause.IDLE,
        CloseCause.DRAINED,
        CloseCause.TAKEN_OVER,
        CloseCause.NETWORK_ERROR,
    }
)
"""Causes that a healthy day brings; all others are counted as errors and logged as warnings."""

LIMIT_OF_CAUSE = {
    CloseCause.FRAME_TOO_LARGE: "frame_bytes",
    CloseCause.HEADER_TOO_LARGE: "header_bytes",
    CloseCause.REQUEST_TOO_LARGE: "request_bytes",
    CloseCause.TOO_MANY_ROWS: "request_rows",
    CloseCause.UNPROVEN: "unproven_bytes",
    CloseCause.IDLE: "idle_ms",
    CloseCause.HANDSHAKE_TIMEOUT: "handshake_ms",
    CloseCause.REQUEST_TIMEOUT: "request_ms",
    CloseCause.CONNECTION_LIMIT: "connections",
    CloseCause.ADDRESS_LIMIT: "connections_per_address",
    CloseCause.MEMORY_LIMIT: "held_bytes",
}
"""The limit (its name in the configuration) that a cause says was hit."""

IN_FLIGHT = "requests_in_flight"
LIMITS = frozenset((*LIMIT_OF_CAUSE.values(), IN_FLIGHT))
"""Limits whose hits are counted: those that end a connection, and the one that only has its client read later."""
