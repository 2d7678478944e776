"""What is put on record of one client connection: its counts, its log line, its decisions."""

from __future__ import annotations

from ssl import SSLObject
from time import monotonic

from kordon.codecs.decision import Decision, Kind
from kordon.proxy.core.causes import IN_FLIGHT, LIMIT_OF_CAUSE, ORDINARY, CloseCause
from kordon.proxy.core.tally import Tally
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.runtime import log_limits
from kordon.proxy.runtime.tls import certified

log = log_limits.client_log(__name__)


class ConnectionRecord:
    """The record of one connection.

    Args:
        role: The role of the listener: `bootstrap` or the node id.
    """

    def __init__(self, journal: Journal, tally: Tally, client: str, role: str) -> None:
        self.peer = journal.connected()
        """The connection as decisions name it."""
        self.client = client
        self.role = role
        self.opened = monotonic()
        self._journal = journal
        self._tally = tally
        self._waited = False

    def accepted(self) -> None:
        """Counts the connection among the open ones."""
        self._tally.accepted += 1
        self._tally.connections[self.role] += 1

    def gone(self) -> None:
        """Counts the connection among the open ones no more."""
        self._tally.connections[self.role] -= 1

    def name_bearer(self, tls: SSLObject) -> None:
        """Has decisions name the client by its certificate, until it logs in."""
        if self._journal.is_on:
            self._journal.named(self.peer, self.peer.client_id, certified(tls))

    def waits(self, limit: int) -> None:
        """Notes that the client is read later as it has too much in flight: once, as it may do so all the time."""
        if not self._waited:
            self._waited = True
            self._reach(IN_FLIGHT, f"limits.requests_in_flight ({limit}) had no response yet")

    def closed(self, cause: CloseCause, detail: str) -> None:
        """Counts and logs the one cause of the end; a decision names it if others do, or it is out of the ordinary."""
        self._tally.closed[cause.value] += 1
        if cause in LIMIT_OF_CAUSE:
            self._tally.limit_hits[LIMIT_OF_CAUSE[cause]] += 1
            self._reach(LIMIT_OF_CAUSE[cause], detail)
        self.peer.recorded = self.peer.recorded or cause not in ORDINARY
        self._journal.closed(self.peer, cause.value)
        if cause not in ORDINARY:
            self._tally.errors[cause.value] += 1
        (log.debug if cause in ORDINARY else log.warning)(
            "connection_closed",
            cause=cause.value,
            detail=detail,
            client=self.client,
            listener=self.role,
            seconds=round(monotonic() - self.opened, 3),
        )

    def _reach(self, option: str, detail: str) -> None:
        if self._journal.is_on:
            told = {"detail": detail}
            self._journal.note(Decision(kind=Kind.LIMIT, **self.peer.fields(), rule=option, evidence=told))
