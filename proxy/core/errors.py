"""What can go wrong between the ends, as one tree.

    KordonError
    ├── ProtocolError              bytes were read but are not allowed now; carries the close cause
    │   ├── ClientProtocolError    … by the client
    │   └── BrokerProtocolError    … by the broker
    ├── SilentWriteFailed          a write with acks=0 failed: its client hears of it by the end of the connection
    └── UpstreamUnavailable        a broker cannot be reached, refuses, or does not answer in time
        └── NoCommonVersion        … or does not speak what is asked for, however well it is

Bytes that cannot be read at all are `kordon.codecs.errors.WireError`; configuration that cannot be used is
`kordon.proxy.config.config_load.ConfigError`.
"""

from __future__ import annotations

from kordon.proxy.core.causes import CloseCause


class KordonError(Exception):
    """Everything that Kordon itself raises."""


class ProtocolError(KordonError):
    """A peer broke the protocol on one connection; that connection ends, and nothing else."""

    def __init__(self, cause: CloseCause, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail


class ClientProtocolError(ProtocolError):
    """Raised when a client sends what Kafka would not take either, or what a limit forbids."""


class BrokerProtocolError(ProtocolError):
    """Raised when a broker answers what nobody asked, or in a form that cannot be made safe to pass on."""


class SilentWriteFailed(KordonError):  # noqa: N818 - says what happened
    """Raised when a write failed for which no answer is waited: brokers close the connection, and so do we."""


class UpstreamUnavailable(KordonError):  # noqa: N818 - a state of the world, named as operators say it
    """Raised when a broker cannot be reached, refuses Kordon's own connection, or does not answer in time."""


class NoCommonVersion(UpstreamUnavailable):
    """Raised when a broker speaks no version of a request that Kordon could send."""
